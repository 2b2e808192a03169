"""`/v1/usage` on the wire."""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import BaseModel

USAGE_PATH = "/v1/usage"

UsageGroup = Literal["tenant", "workload", "model", "bundle", "outcome", "hour", "day"]
"""What usage can be told apart by; units always are."""

USAGE_GROUPS: tuple[UsageGroup, ...] = get_args(UsageGroup)


class UsageRow(BaseModel):
    """The sum of one group; what is not grouped by is null.

    Attributes:
        start: When the hour or day began, in Unix seconds.
        tenant: Who was served.
        workload: Whose unit it is.
        model: The name that was asked for.
        bundle: What answered.
        outcome: `ok`, or the code of the error that calls ended with.
        unit: A work unit, or `requests`.
        amount: How much.
    """

    start: int | None = None
    tenant: str | None = None
    workload: str | None = None
    model: str | None = None
    bundle: str | None = None
    outcome: str | None = None
    unit: str
    amount: int


class UsageReport(BaseModel):
    """What calls came to that ended from `start` to `end`, in Unix seconds, by whole hours."""

    object: Literal["list"] = "list"
    start: int
    end: int
    group_by: tuple[UsageGroup, ...]
    data: tuple[UsageRow, ...]
