"""Workloads are found by the entry points of what is installed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headpond.errors import DeclarationError
from headpond.registry import workload, workloads

Install = Callable[..., None]

RECORD = """
from headpond.bundle.contract import Contract
from headpond.record import *
from headpond.units import Work, WorkUnit

HOST, QUEUE, DEVICE, DELIVERY = PhaseKind
record = WorkloadRecord(
    name="marbles", summary="Counts marbles.", routes=(),
    request=RequestShape(dims=(Dim(name="marbles", summary="Marbles."),)),
    units=(WorkUnit(name="marbles", summary="Marbles."),),
    cost=lambda shape: Work(marbles=shape["marbles"]),
    symbols=(), state=(), batching=Continuous(axis="marbles", extent=("marbles",)),
    throughput=(),
    phases=tuple(Phase(name=kind.value, kind=kind) for kind in PhaseKind),
    fit=Fit(devices=("cpu",), dtypes=("float32",), limited_by=Limiter.COMPUTE, static_bytes=()),
    overload=Overload(queue_limit=Work(marbles=1), deadline_s=1.0),
    contracts=(Contract(name="count", vouches_for="counting"),), engine="marbles:load",
)
number = 3
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install distributions that declare entry points, for this test only."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "marble_workload.py").write_text(RECORD)

    def distribution(name: str, **points: str) -> None:
        info = tmp_path / f"{name.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        lines = [f"{point} = {target}" for point, target in points.items()]
        (info / "entry_points.txt").write_text("\n".join(["[headpond.workloads]", *lines]))

    return distribution


def test_an_installed_workload_is_found_by_its_name(install: Install) -> None:
    install("marble-shop", marbles="marble_workload:record")
    assert workload("marbles").summary == "Counts marbles."
    assert workloads()["marbles"] is workload("marbles")


def test_an_unknown_name_lists_the_known_ones(install: Install) -> None:
    install("marble-shop", marbles="marble_workload:record")
    with pytest.raises(DeclarationError, match=r"'chess'.*marbles"):
        workload("chess")


@pytest.mark.parametrize(
    ("target", "complaint"),
    [
        ("marble_workload:nothing", "cannot be loaded"),
        ("no_such_module:record", "cannot be loaded"),
        ("marble_workload:number", "is a int, not a WorkloadRecord"),
    ],
)
def test_a_broken_declaration_names_its_distribution(
    install: Install, target: str, complaint: str
) -> None:
    install("marble-shop", marbles=target)
    for look in (workloads, lambda: workload("marbles")):
        with pytest.raises(DeclarationError, match=f"marble-shop.*{complaint}"):
            look()


def test_a_record_must_bear_the_name_of_its_entry_point(install: Install) -> None:
    install("marble-shop", balls="marble_workload:record")
    with pytest.raises(DeclarationError, match=r"'balls'.*marble-shop.*'marbles'"):
        workload("balls")


def test_a_broken_neighbour_does_not_hide_a_workload(install: Install) -> None:
    install("broken-shop", chess="no_such_module:record")
    install("marble-shop", marbles="marble_workload:record")
    assert workload("marbles").name == "marbles"


def test_two_distributions_cannot_declare_one_name(install: Install) -> None:
    install("marble-shop", marbles="marble_workload:record")
    install("other-shop", marbles="marble_workload:number")
    with pytest.raises(DeclarationError, match=r"(marble|other)-shop and (marble|other)-shop"):
        workload("marbles")
