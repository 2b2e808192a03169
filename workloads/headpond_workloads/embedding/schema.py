"""Wire types of OpenAI's `POST /v1/embeddings`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from headpond_workloads.embedding.schema_texts import Dimensions, Texts
from headpond_workloads.embedding.store import STORE_DESCRIPTION, StoreRequest
from headpond_workloads.embedding.vectors import decode
from headpond_workloads.encoders.schema_fields import Flag, NonEmpty

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

EMBEDDINGS_PATH = "/v1/embeddings"


class EmbeddingRequest(BaseModel):
    """Texts whose vectors are asked for."""

    model_config = ConfigDict(frozen=True)

    model: NonEmpty
    input: Texts
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Dimensions | None = None
    user: str | None = None

    prompt_name: NonEmpty | None = Field(
        default=None, description="Extension: the bundle's prompt to put before each text."
    )
    input_type: Literal["query", "passage", "document"] | None = Field(
        default=None,
        description="Extension: takes the bundle's prompt of that kind; `prompt_name` goes before.",
    )
    normalize: Flag | None = Field(
        default=None,
        description="Extension: whether vectors get length 1, whatever the bundle says.",
    )
    truncate: Literal["NONE", "START", "END"] | None = Field(
        default=None, description="Extension: what a text that is too long loses (`NONE`: refused)."
    )
    truncate_prompt_tokens: Annotated[int, Field(strict=True, ge=-1)] | None = Field(
        default=None,
        description="Extension: the most tokens of a text, special ones included; -1 for all that "
        "the model takes. The rest is cut off.",
    )
    store: StoreRequest | None = Field(default=None, description=STORE_DESCRIPTION)


class TextEmbedding(BaseModel):
    """The vector of one text: numbers, or little-endian float32 in base64."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str

    @property
    def vector(self) -> list[float]:
        """The numbers, in whichever form they came."""
        return decode(self.embedding) if isinstance(self.embedding, str) else self.embedding


class EmbeddingUsage(BaseModel):
    """Tokens that were computed, special ones and prompts included."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingList(BaseModel):
    """The answer: vectors in the order of the texts."""

    object: Literal["list"] = "list"
    data: list[TextEmbedding]
    model: str
    usage: EmbeddingUsage

    def numpy(self) -> NDArray[float32]:
        """Return the vectors as an array of shape (texts, dimensions); needs numpy."""
        import numpy as np  # noqa: PLC0415 - clients may have none

        return np.array([each.vector for each in self.data], dtype=np.float32)
