"""The stretch of time over which a quota counts now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self
from urllib.parse import quote

from headpond.settings import Quota


@dataclass(frozen=True, slots=True)
class Window:
    """One stretch of time of one tenant's quota.

    Stretches begin at whole multiples of their length in Unix time, so that all processes
    agree on them, and what is given back goes to the one that it was taken from.

    Attributes:
        key: Names it, and no other one.
        limit: The most that may be used in it.
        per_s: How long it is.
        ends_s: When it is over, in Unix seconds.
    """

    key: str
    limit: int
    per_s: int
    ends_s: int

    @classmethod
    def at(cls, tenant: str, quota: Quota, now_s: float) -> Self:
        """Return the one that `now_s`, in Unix seconds, is in."""
        number = int(now_s // quota.per_s)
        models = ",".join([quote(model, safe="*") for model in quota.models])
        names = [quote(name, safe="*") for name in (tenant, quota.workload)]
        key = "/".join([*names, models, quota.unit, quota.per, str(number)])
        return cls(key, quota.limit, quota.per_s, (number + 1) * quota.per_s)
