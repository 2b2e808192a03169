"""Wire types that Cohere's routes share."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

Priority = Annotated[int, Field(strict=True, ge=0, le=999)]
"""Accepted and not looked at: the header `x-headpond-priority` says who goes first."""


class ApiVersion(BaseModel):
    """Which of Cohere's APIs this is."""

    version: str = "2"


class BilledUnits(BaseModel):
    """What a call came to; unset units are left out."""

    input_tokens: int | None = None
    search_units: int | None = None


class Meta(BaseModel):
    """What Cohere's answers say of themselves."""

    api_version: ApiVersion = ApiVersion()
    billed_units: BilledUnits
