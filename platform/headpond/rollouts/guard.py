"""The guard of a canary: what it must not do worse than the others."""

from __future__ import annotations

import re
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field

from headpond.errors import InvalidRequest
from headpond.rollouts.agreement import Agreement
from headpond.rollouts.chance import chance_of_as_many
from headpond.rollouts.tally import Tally

DEFAULT_GUARD = "error_rate=2%,ttft_p95=1.5x,min_requests=50,window=300s"
"""The guard of a canary whose operator asks for none in particular."""

_CHANCE = 1e-4
"""What happens by chance so seldom or less is no chance.

A guard looks every second; at 1 in 10,000 a canary that is just as good as the others is
hardly ever taken back, and one that is clearly worse is within its first requests.
"""

_STRICT = ConfigDict(frozen=True, extra="forbid")
_LATENCY = re.compile(r"(?P<measure>[a-z][a-z0-9_]*)_p(?P<percent>\d{1,2})")
_BOUND = re.compile(r"(?P<number>\d+(\.\d+)?)(?P<unit>x|ms|s)")


class LatencyBound(BaseModel):
    """The most that a share of the canary's calls may take.

    Attributes:
        measure: `ttft` (to the first output), `total`, or a phase of the record.
        percent: Of the calls.
        times: As a multiple of what the others take.
        seconds: By itself.
    """

    model_config = _STRICT

    measure: str
    percent: Annotated[int, Field(ge=1, le=99)]
    times: Annotated[float, Field(gt=1)] | None = None
    seconds: Annotated[float, Field(gt=0)] | None = None


class Guard(BaseModel):
    """When a canary is taken back.

    Attributes:
        error_rate: By so much more of its calls than of the others' may end by an error.
        latencies: How long its calls may take.
        agreement: So much of its compared answers must agree, where it gets copies of calls.
        drift_s: So often the canary is asked the same; its answer must stay what it was.
        min_requests: Nothing is judged by fewer.
        window_s: What is older does not count.
    """

    model_config = _STRICT

    error_rate: Annotated[float, Field(ge=0, lt=1)] | None = None
    latencies: tuple[LatencyBound, ...] = ()
    agreement: Annotated[float, Field(gt=0, le=1)] | None = None
    drift_s: Annotated[float, Field(gt=0)] | None = None
    min_requests: Annotated[int, Field(ge=1)] = 50
    window_s: Annotated[float, Field(gt=0)] = 300.0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `error_rate=2%,ttft_p95=1.5x,total_p50=800ms,agreement=95%,drift=60s,min_requests=50`.

        Raises:
            InvalidRequest: Names the part that does not read like that.
        """
        fields: dict[str, object] = {}
        latencies = []
        for part in filter(None, (part.strip() for part in text.split(","))):
            name, _, value = part.partition("=")
            if name in fields:
                raise InvalidRequest(f"{name} is given twice", param=f"guard.{name}")
            if name in ("error_rate", "agreement"):
                fields[name] = share(value, f"guard.{name}")
            elif name == "min_requests" and value.isdecimal() and int(value) > 0:
                fields[name] = int(value)
            elif name in ("window", "drift"):
                fields[f"{name}_s"] = _seconds(value, f"guard.{name}")
            elif (found := _LATENCY.fullmatch(name)) is not None:
                latencies.append(_bound(found["measure"], int(found["percent"]), value, name))
            else:
                raise InvalidRequest(
                    f"{part!r} is none of error_rate=2%, ttft_p95=1.5x, total_p50=800ms, "
                    "PHASE_p95=1.5x, agreement=95%, drift=60s, min_requests=50, window=300s",
                    param=f"guard.{name}",
                )
        guard: Self = cls.model_validate({**fields, "latencies": latencies})
        return guard

    def breach(self, canary: Tally, others: Tally, agreed: Agreement) -> str | None:
        """Say what the canary does worse than it may, beyond chance; None while all is well."""
        return (
            self._errors(canary, others)
            or next(
                filter(None, (self._late(each, canary, others) for each in self.latencies)), None
            )
            or self._disagreement(agreed)
        )

    def _errors(self, canary: Tally, others: Tally) -> str | None:
        if self.error_rate is None or canary.ended < self.min_requests:
            return None
        usual = others.failed / max(others.ended, 1)
        if not _beyond(canary.failed, canary.ended, usual + self.error_rate):
            return None
        return (
            f"error_rate: {canary.failed} of {canary.ended} requests failed, more than "
            f"{self.error_rate:.1%} above the others' {usual:.1%}"
        )

    def _late(self, bound: LatencyBound, canary: Tally, others: Tally) -> str | None:
        count, least = canary.measured(bound.measure), self.min_requests
        usual_s = others.quantile_s(bound.measure, bound.percent / 100)
        if count < least or (bound.times is not None and others.measured(bound.measure) < least):
            return None
        limit_s = (
            bound.seconds if bound.seconds is not None else (usual_s or 0) * (bound.times or 1)
        )
        late = canary.longer_than(bound.measure, limit_s)
        if not _beyond(late, count, 1 - bound.percent / 100):
            return None
        found_s = canary.quantile_s(bound.measure, bound.percent / 100) or 0.0
        against = f"; the others' is {usual_s:.3g} s" if usual_s is not None else ""
        return (
            f"{bound.measure}_p{bound.percent}: {found_s:.3g} s over {count} requests, where "
            f"{limit_s:.3g} s is allowed{against}"
        )

    def _disagreement(self, agreed: Agreement) -> str | None:
        if self.agreement is None or agreed.compared < self.min_requests:
            return None
        differing = agreed.compared - agreed.agreed
        if not _beyond(differing, agreed.compared, 1 - self.agreement):
            return None
        return (
            f"agreement: {agreed.agreed} of {agreed.compared} answers agree, where "
            f"{self.agreement:.1%} must; one differs {agreed.example}"
        )


def _beyond(found: int, tried: int, allowed: float) -> bool:
    """Say whether more than an allowed share was found, and not by chance."""
    return found > allowed * tried and chance_of_as_many(found, tried, allowed) < _CHANCE


def share(text: str, param: str) -> float:
    """Read `10%` or `0.1` as a share between 0 and 1.

    Raises:
        InvalidRequest: It is none.
    """
    number, scale = (text[:-1], 100.0) if text.endswith("%") else (text, 1.0)
    try:
        value = float(number) / scale
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise InvalidRequest(f"{text!r} must be a share, e.g. 10% or 0.1", param=param)
    return value


def _seconds(text: str, param: str) -> float:
    found = _BOUND.fullmatch(text)
    if found is None or found["unit"] == "x" or float(found["number"]) == 0:
        raise InvalidRequest(f"{text!r} must be a time, e.g. 300s or 800ms", param=param)
    return float(found["number"]) / (1000 if found["unit"] == "ms" else 1)


def _bound(measure: str, percent: int, value: str, name: str) -> LatencyBound:
    param = f"guard.{name}"
    if not 1 <= percent <= 99:
        raise InvalidRequest(f"{name}: percentiles are from 1 to 99", param=param)
    if not value.endswith("x"):
        return LatencyBound(measure=measure, percent=percent, seconds=_seconds(value, param))
    found = _BOUND.fullmatch(value)
    if found is None or float(found["number"]) <= 1:
        raise InvalidRequest(f"{value!r} must be more than 1x, e.g. 1.5x", param=param)
    return LatencyBound(measure=measure, percent=percent, times=float(found["number"]))
