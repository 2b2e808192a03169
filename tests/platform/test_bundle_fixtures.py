"""Fixtures: what counts as a difference, and what a failure says."""

from __future__ import annotations

import math
import pickle
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from headpond.bundle.fixtures import Difference, FixtureFailed, check_fixtures, first_difference
from headpond.bundle.manifest import Manifest
from headpond.engine import Json
from headpond.errors import BundleError, InvalidRequest
from headpond.record import WorkloadRecord

EXPECTED: dict[str, Json] = {"ids": [5, 6, 7], "shares": [0.5, 0.25]}


@pytest.fixture
def record(monkeypatch: pytest.MonkeyPatch) -> WorkloadRecord:
    """Return the spelling workload's record; it compares `ids`, then `shares`."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "spelling"))
    found = import_module("spelling_workload").record
    assert isinstance(found, WorkloadRecord)
    return found


def manifest(*expects: dict[str, Json], tolerance: float = 0.01) -> Manifest:
    fixtures = [
        {"name": f"f{at}", "given": {"text": str(at)}, "expect": expect, "tolerance": tolerance}
        for at, expect in enumerate(expects)
    ]
    return Manifest.parse(
        {
            "name": "tiny",
            "version": "1.0.0",
            "workload": "spelling",
            "summary": "Tiny.",
            "licence": "MIT",
            "artifacts": [{"name": "a", "source": "file:a.txt", "bytes": 1, "sha256": "0" * 64}],
            "execution": {"architecture": "Spelling", "dtype": "float32"},
            "fixtures": fixtures,
        }
    )


def failure(record: WorkloadRecord, got: Mapping[str, Json]) -> FixtureFailed:
    with pytest.raises(FixtureFailed) as caught:
        check_fixtures(record, manifest(EXPECTED), lambda given: got)
    return caught.value


def test_fixtures_that_come_out_pass_and_all_are_computed(record: WorkloadRecord) -> None:
    asked = []

    def observe(given: Mapping[str, Json]) -> Mapping[str, Json]:
        asked.append(given["text"])
        return EXPECTED | {"shares": [0.509, 0.25], "more": 1}

    check_fixtures(record, manifest(EXPECTED, EXPECTED), observe)
    assert asked == ["0", "1"]


def test_a_failure_names_fixture_contract_position_and_what_it_vouches_for(
    record: WorkloadRecord,
) -> None:
    error = failure(record, EXPECTED | {"ids": [5, 9, 7]})
    assert error.message == (
        "fixture 'f0': ids differs at [1]: expected 6, got 9; this vouches for template or alphabet"
    )
    assert error.param == "fixtures.f0.expect.ids"


def test_contracts_are_compared_in_the_order_of_the_record(record: WorkloadRecord) -> None:
    both_wrong: dict[str, Json] = {"shares": [1.0, 1.0], "ids": [1]}
    assert failure(record, both_wrong).param == "fixtures.f0.expect.ids"
    assert failure(record, both_wrong | {"ids": [5, 6, 7]}).param == "fixtures.f0.expect.shares"


def test_a_failure_survives_a_process_border(record: WorkloadRecord) -> None:
    error = failure(record, EXPECTED | {"ids": []})
    again = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert isinstance(again, FixtureFailed)
    assert (again.message, again.param) == (error.message, error.param)


def test_a_long_value_is_shortened(record: WorkloadRecord) -> None:
    error = failure(record, EXPECTED | {"ids": "x" * 10_000})
    assert len(error.message) < 400


def test_a_contract_that_the_engine_does_not_give_fails(record: WorkloadRecord) -> None:
    assert "gave no shares" in failure(record, {"ids": [5, 6, 7]}).message


def test_a_fixture_that_cannot_be_computed_says_why(record: WorkloadRecord) -> None:
    def observe(given: Mapping[str, Json]) -> Mapping[str, Json]:
        raise InvalidRequest("text must be longer", param="text")

    with pytest.raises(FixtureFailed, match="'f0' cannot be computed: text must be longer"):
        check_fixtures(record, manifest(EXPECTED), observe)


@pytest.mark.parametrize(
    ("expects", "says"),
    [
        ((), "no fixture"),
        ((EXPECTED, {}), "'f1' expects no ids; run `headpond bundle lock`"),
        (({"ids": []},), "'f0' expects no shares"),
        ((EXPECTED | {"text": "x"},), "'f0' expects 'text', which spelling does not check"),
    ],
    ids=["none", "empty", "half", "unknown"],
)
def test_fixtures_that_check_nothing_or_too_much_are_refused_uncomputed(
    record: WorkloadRecord, expects: tuple[dict[str, Json], ...], says: str
) -> None:
    def never(given: Mapping[str, Json]) -> Mapping[str, Json]:
        raise KeyError

    with pytest.raises(BundleError, match=says):
        check_fixtures(record, manifest(*expects), never)


@pytest.mark.parametrize(
    ("expected", "got", "position"),
    [
        (1, 2, ""),
        (1, True, ""),
        (0, None, ""),
        (1, "1", ""),
        ("abc", "abd", "character 2"),
        ("abc", "ab", "character 2"),
        ("", "a", "character 0"),
        ([1, 2, 3], [1, 2], "[2]"),
        ([1], [1, 2], "[1]"),
        ([[1.0], [2.0]], [[1.0], [2.2]], "[1][0]"),
        ([1], {"0": 1}, ""),
        ({"a": 1, "b": 2}, {"a": 1}, ".b"),
        ({"a": 1}, {"a": 1, "b": 2}, ".b"),
        ({"a": [{"b": "x"}]}, {"a": [{"b": "y"}]}, ".a[0].b character 0"),
        (1.0, 1.11, ""),
        (100.0, 99.8, ""),
        (math.nan, math.nan, ""),
        (1.0, math.nan, ""),
        (math.inf, 1.0, ""),
        (math.inf, -math.inf, ""),
        (1.0, True, ""),
        (1.0, "1.0", ""),
    ],
)
def test_the_first_difference_has_a_position(
    expected: JsonValue, got: JsonValue, position: str
) -> None:
    found = first_difference(expected, got, 0.1)
    assert isinstance(found, Difference)
    assert found.position == position


@pytest.mark.parametrize(
    ("expected", "got"),
    [(1.0, 1.0625), (1.0, 1), (2, 2.0625), (math.inf, math.inf), ([0.5, [1.5]], [0.5, [1.5625]])],
)
def test_floats_may_differ_by_the_tolerance(expected: JsonValue, got: JsonValue) -> None:
    assert first_difference(expected, got, 0.0625) is None
    assert first_difference(got, expected, 0.0625) is None


def test_integers_are_exact_whatever_the_tolerance() -> None:
    assert first_difference([1000], [1001], 5.0) == Difference(
        position="[0]", expected="1000", got="1001"
    )


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(value=json_values)
def test_a_value_equals_itself(value: JsonValue) -> None:
    assert first_difference(value, value, 0.0) is None


@given(left=json_values, right=json_values)
def test_comparison_is_symmetric(left: JsonValue, right: JsonValue) -> None:
    there, back = first_difference(left, right, 0.5), first_difference(right, left, 0.5)
    assert (there is None) == (back is None)
    if there is not None and back is not None:
        assert there.position == back.position
