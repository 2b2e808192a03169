"""Fixtures: fixed inputs whose results must come out of the loaded engine."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from headpond.bundle.contract import Contract
from headpond.bundle.manifest import Fixture, Manifest
from headpond.engine import Json
from headpond.errors import BundleError, HeadpondError
from headpond.record import WorkloadRecord

Observe = Callable[[Mapping[str, Json]], Mapping[str, Json]]

_SHOWN_CHARACTERS = 60


class FixtureFailed(BundleError):
    """A fixture came out differently on the loaded engine."""

    code = "fixture_failed"


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """The first place at which two values differ.

    Attributes:
        position: Where, e.g. `[3]`, `.text` or `character 7`; empty for the value itself.
        expected: What was locked, shortened.
        got: What came out, shortened.
    """

    position: str
    expected: str
    got: str


def check_fixtures(record: WorkloadRecord, manifest: Manifest, observe: Observe) -> None:
    """Compute every fixture and compare, contract by contract in the record's order.

    Raises:
        FixtureFailed: Names the fixture, the contract and what it vouches for.
        BundleError: There is no fixture, or one was never locked.
    """
    check_locked(record, manifest)
    for fixture in manifest.fixtures:
        check_fixture(record, fixture, observe)


def check_locked(record: WorkloadRecord, manifest: Manifest) -> None:
    """Refuse a bundle without fixtures, and fixtures that don't expect what is compared.

    Raises:
        BundleError: Names the fixture and the contract.
    """
    if not manifest.fixtures:
        raise BundleError("the bundle has no fixture, so nothing vouches for it", param="fixtures")
    names = [contract.name for contract in record.contracts]
    for fixture in manifest.fixtures:
        for name in names:
            if name not in fixture.expect:
                raise BundleError(
                    f"fixture {fixture.name!r} expects no {name}; run `headpond bundle lock`",
                    param=_param(fixture, name),
                )
        for name in fixture.expect:
            if name not in names:
                raise BundleError(
                    f"fixture {fixture.name!r} expects {name!r}, which {record.name} does not "
                    f"check; it checks {', '.join(names)}",
                    param=_param(fixture, name),
                )


def check_fixture(record: WorkloadRecord, fixture: Fixture, observe: Observe) -> None:
    """Compute one fixture and compare, contract by contract in the record's order.

    Raises:
        FixtureFailed: Names the fixture, the contract and what it vouches for.
    """
    got = observed(fixture, observe)
    for contract in record.contracts:
        if contract.name not in got:
            raise FixtureFailed(
                f"fixture {fixture.name!r}: the engine gave no {contract.name}",
                param=_param(fixture, contract.name),
            )
        difference = first_difference(
            fixture.expect[contract.name], got[contract.name], fixture.tolerance
        )
        if difference is not None:
            raise _failed(fixture, contract, difference)


def observed(fixture: Fixture, observe: Observe) -> Mapping[str, Json]:
    """Compute a fixture's input.

    Raises:
        FixtureFailed: The engine can't, and says why.
    """
    try:
        return observe(fixture.given)
    except HeadpondError as error:
        raise FixtureFailed(
            f"fixture {fixture.name!r} cannot be computed: {error.message}",
            param=f"fixtures.{fixture.name}.given",
        ) from error


def first_difference(
    expected: JsonValue, got: JsonValue, tolerance: float, position: str = ""
) -> Difference | None:
    """Return the first place at which two values differ, or None.

    Floats may differ by `tolerance`, absolutely; NaN differs from everything. All else is
    exact, and `True` is not `1`.
    """
    if isinstance(expected, list) and isinstance(got, list):
        return _lists(expected, got, tolerance, position)
    if isinstance(expected, dict) and isinstance(got, dict):
        return _mappings(expected, got, tolerance, position)
    if isinstance(expected, str) and isinstance(got, str):
        return _texts(expected, got, position)
    if _equal(expected, got, tolerance):
        return None
    return Difference(position=position, expected=_short(expected), got=_short(got))


def _equal(expected: JsonValue, got: JsonValue, tolerance: float) -> bool:
    numbers = _is_number(expected) and _is_number(got)
    if numbers and (isinstance(expected, float) or isinstance(got, float)):
        return expected == got or _distance(expected, got) <= tolerance
    return type(expected) is type(got) and expected == got


def _is_number(value: JsonValue) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _distance(expected: JsonValue, got: JsonValue) -> float:
    """Return the absolute difference of two numbers; NaN, which no bound holds, for others."""
    if isinstance(expected, int | float) and isinstance(got, int | float):
        return abs(expected - got)
    return math.nan


def _lists(
    expected: list[JsonValue], got: list[JsonValue], tolerance: float, position: str
) -> Difference | None:
    for index, (left, right) in enumerate(zip(expected, got, strict=False)):
        found = first_difference(left, right, tolerance, f"{position}[{index}]")
        if found is not None:
            return found
    if len(expected) == len(got):
        return None
    end = min(len(expected), len(got))
    return Difference(
        position=f"{position}[{end}]",
        expected=_short(expected[end]) if end < len(expected) else f"the end, after {end}",
        got=_short(got[end]) if end < len(got) else f"the end, after {end}",
    )


def _mappings(
    expected: dict[str, JsonValue], got: dict[str, JsonValue], tolerance: float, position: str
) -> Difference | None:
    for key in sorted(expected.keys() | got.keys()):
        at = f"{position}.{key}"
        if key not in got:
            return Difference(position=at, expected=_short(expected[key]), got="nothing")
        if key not in expected:
            return Difference(position=at, expected="nothing", got=_short(got[key]))
        found = first_difference(expected[key], got[key], tolerance, at)
        if found is not None:
            return found
    return None


def _texts(expected: str, got: str, position: str) -> Difference | None:
    if expected == got:
        return None
    pairs = enumerate(zip(expected, got, strict=False))
    at = next((index for index, (left, right) in pairs if left != right), None)
    at = min(len(expected), len(got)) if at is None else at
    return Difference(
        position=f"{position} character {at}".strip(),
        expected=_short(expected[at:]),
        got=_short(got[at:]),
    )


def _short(value: JsonValue) -> str:
    shown = repr(value)
    return shown if len(shown) <= _SHOWN_CHARACTERS else f"{shown[: _SHOWN_CHARACTERS - 1]}…"


def _failed(fixture: Fixture, contract: Contract, difference: Difference) -> FixtureFailed:
    at = f" at {difference.position}" if difference.position else ""
    return FixtureFailed(
        f"fixture {fixture.name!r}: {contract.name} differs{at}: expected {difference.expected}, "
        f"got {difference.got}; this vouches for {contract.vouches_for}",
        param=_param(fixture, contract.name),
    )


def _param(fixture: Fixture, contract: str) -> str:
    return f"fixtures.{fixture.name}.expect.{contract}"
