"""Field types that the dialects of texts share.

Explicit null is the same as absent, unknown fields are ignored, and numbers and booleans
are never read from strings or from one another. Lists fail at their first bad entry, so
that a body of a million bad ones costs no more than one.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

MAX_INPUTS = 2048
"""The most texts, or pairs of texts, of one call."""

MAX_BODY_BYTES = 32 * 2**20
MAX_ID = 2**31
"""Token IDs are below this, whatever the model."""

MAX_IDS = 131_072
"""The most token IDs of one text that are read at all; models take fewer."""

Flag = Annotated[bool, Field(strict=True)]
Count = Annotated[int, Field(strict=True, ge=1)]
NonEmpty = Annotated[str, Field(min_length=1)]
TokenId = Annotated[int, Field(strict=True, ge=0, lt=MAX_ID)]
TokenIds = Annotated[tuple[TokenId, ...], Field(fail_fast=True, max_length=MAX_IDS)]
TextList = Annotated[tuple[str, ...], Field(fail_fast=True)]
