"""Wire types that the routes of text-embeddings-inference (TEI) share."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from headpond_workloads.encoders.schema_fields import MAX_INPUTS, Flag, NonEmpty

INFO_PATH = "/info"


def _capitalized(value: object) -> object:
    return value.capitalize() if isinstance(value, str) else value


Direction = Annotated[Literal["Left", "Right"], BeforeValidator(_capitalized)]
"""From which end a text that is too long is cut; its documentation writes it small."""


class TeiRequest(BaseModel):
    """What every request of the dialect may say."""

    model_config = ConfigDict(frozen=True)

    model: NonEmpty | None = Field(
        default=None, description="Extension: which model, where several are served."
    )
    truncate: Flag | None = Field(
        default=None, description="Whether a text that is too long is cut; else it is refused."
    )
    truncation_direction: Direction | None = None


class Pooling(BaseModel):
    """How token vectors become one."""

    pooling: str


class Labels(BaseModel):
    """The names of a model's outputs, by number and by name."""

    id2label: dict[str, str]
    label2id: dict[str, int]

    @classmethod
    def of(cls, names: tuple[str, ...]) -> Labels:
        """Number the names in their order."""
        numbers = range(len(names))
        return cls(
            id2label={str(number): names[number] for number in numbers},
            label2id={names[number]: number for number in numbers},
        )


class ModelType(BaseModel):
    """What the model does: one of these, the others are left out."""

    embedding: Pooling | None = None
    reranker: Labels | None = None
    classifier: Labels | None = None


class Info(BaseModel):
    """The answer of `GET /info`."""

    model_id: str
    model_sha: str
    model_dtype: str
    model_type: ModelType
    max_input_length: int
    max_batch_tokens: int
    max_client_batch_size: int = MAX_INPUTS
    auto_truncate: bool = False
    version: str
