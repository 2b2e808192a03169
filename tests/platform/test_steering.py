"""Which replica Serve sends a call to."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from headpond.placement import Placement

if TYPE_CHECKING:
    from ray.serve._private.replica_result import ReplicaResult
    from ray.serve.request_router import PendingRequest, ReplicaID, RunningReplica

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Serve's own, of pydantic
    from headpond.steering import Steering


def replica(name: str) -> RunningReplica:
    return cast("RunningReplica", SimpleNamespace(replica_id=SimpleNamespace(unique_id=name)))


def request(placement: Placement | None) -> PendingRequest:
    args = ["call"] if placement is None else ["call", placement]
    return cast("PendingRequest", SimpleNamespace(args=args))


async def chosen(names: str, placement: Placement | None) -> set[str]:
    steering = Steering.__new__(Steering)
    candidates = [replica(name) for name in names]
    (group,) = await steering.choose_replicas(candidates, request(placement))
    return {each.replica_id.unique_id for each in group}


@pytest.mark.parametrize(
    ("names", "avoid", "expected"),
    [
        ("ab", "", {"a", "b"}),
        ("ab", "a", {"b"}),
        ("abc", "c", {"a", "b"}),
        ("a", "a", {"a"}),
    ],
)
async def test_calls_go_past_who_does_not_answer(
    names: str, avoid: str, expected: set[str]
) -> None:
    assert await chosen(names, Placement(avoid=frozenset(avoid))) == expected


async def test_what_is_asked_without_a_placement_goes_to_any_two() -> None:
    assert len(await chosen("abcd", None)) == 2


def test_a_call_is_told_who_took_it_in() -> None:
    placement = Placement()
    taker = cast("ReplicaID", SimpleNamespace(unique_id="b"))
    result = cast("ReplicaResult", None)
    Steering.__new__(Steering).on_request_routed(request(placement), taker, result)
    assert placement.replica == "b"
