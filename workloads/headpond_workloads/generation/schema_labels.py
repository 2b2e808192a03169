"""Fields that are accepted, checked for their type, and change no answer."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from headpond_workloads.generation.schema_fields import (
    MAX_ITEMS,
    Count,
    Flag,
    Metadata,
    Number,
    at_most,
)


def _as_names(value: object) -> object:
    return (value,) if isinstance(value, str) else value


Names = Annotated[
    tuple[str, ...],
    Field(fail_fast=True),
    at_most(MAX_ITEMS),
    BeforeValidator(_as_names, json_schema_input_type=str | list[str]),
]

_LABEL = "Accepted; a label without influence."
_ALWAYS = "Accepted; prefixes are always looked up, within a tenant."
_BEAMS = "Accepted; it is about beams, of which there are none."


class LabelledRequest(BaseModel):
    """What a caller may say of a request that its answer does not depend on.

    Unknown fields are kept, for those of other routes and servers that are to be refused.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    metadata: Metadata | None = None
    request_id: str | None = Field(default=None, description=_LABEL)
    rid: Names | None = Field(default=None, description=_LABEL)
    safety_identifier: str | None = None
    service_tier: str | None = None
    session_id: str | None = Field(default=None, description=_LABEL)
    user: str | None = None

    cache_prompt: Flag | None = Field(default=None, description=_ALWAYS)
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = Field(default=None, description=_ALWAYS)
    priority: Count | None = Field(
        default=None, description="Accepted; the header x-headpond-priority does that."
    )

    early_stopping: Flag | None = Field(default=None, description=_BEAMS)
    length_penalty: Number | None = Field(default=None, description=_BEAMS)
    spaces_between_special_tokens: Flag | None = Field(
        default=None, description="Accepted; a text is the bytes of its tokens."
    )
