"""A record that contradicts itself says so where it is declared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from headpond.bundle.contract import Contract
from headpond.errors import BundleError, DeclarationError
from headpond.record import (
    Bounds,
    Continuous,
    Dim,
    Formed,
    GenAi,
    MetricAlias,
    Overload,
    Phase,
    PhaseKind,
    RequestShape,
    Shape,
    Tally,
    ThroughputUnit,
)
from headpond.state import StateTerm
from headpond.testing.echo import record as echo
from headpond.testing.formed import measuring_record
from headpond.testing.simulation import simulated_record
from headpond.units import Work, WorkUnit

GOOD = simulated_record()
PHASES = GOOD.phases
FIT = GOOD.fit


def lazy_cost(shape: Shape) -> Work:
    return Work(read=shape["prompt_units"])


def eager_cost(shape: Shape) -> Work:
    return Work(read=shape["prompt_units"], written=1, erased=1)


def lost_cost(shape: Shape) -> Work:
    return Work(read=shape["pages"], written=1)


def with_dims(*more: Dim) -> RequestShape:
    return replace(GOOD.request, dims=(*GOOD.request.dims, *more))


def phase(name: str, kind: PhaseKind) -> Phase:
    return Phase(name=name, kind=kind)


BAD: Mapping[str, tuple[dict[str, Any], str]] = {
    "name": ({"name": "Two Words"}, "must be one lower-case identifier"),
    "phase twice": ({"phases": (*PHASES[:4], *PHASES[3:])}, "phase 'read' is declared twice"),
    "unit twice": ({"units": (*GOOD.units, GOOD.units[0])}, "unit 'read' is declared twice"),
    "dimension twice": (
        {"request": with_dims(GOOD.request.dims[0])},
        "dimension 'prompt_units' is declared twice",
    ),
    "state term twice": ({"state": GOOD.state * 2}, "state term 'cells' is declared twice"),
    "contract twice": ({"contracts": GOOD.contracts * 2}, "contract 'outputs' is declared twice"),
    "route twice": ({"routes": echo.routes * 2}, "route 'POST /v1/echo' is declared twice"),
    "engine": ({"engine": "headpond.engine.load"}, "must read 'module:function'"),
    "exporter": ({"exporter": "headpond.export"}, "exporter 'headpond.export' must read"),
    "unit nobody produces": ({"cost": lazy_cost}, "unit 'written' is produced by nobody"),
    "unit nobody declares": ({"cost": eager_cost}, "cost produces 'erased'"),
    "cost of an unknown dimension": ({"cost": lost_cost}, "cost reads dimension 'pages'"),
    "throughput": (
        {"throughput": (ThroughputUnit(unit="pages", bounds=Bounds(), quality=""),)},
        "throughput counts 'pages'",
    ),
    "queue limit of an unknown unit": (
        {"overload": Overload(queue_limit=Work(pages=1), deadline_s=1.0)},
        "queue_limit counts 'pages'",
    ),
    "no queue limit": (
        {"overload": Overload(queue_limit=Work(), deadline_s=1.0)},
        "queue_limit is empty",
    ),
    "extent": (
        {"batching": Continuous(axis="units", extent=("pages",))},
        "batching.extent names dimension 'pages'",
    ),
    "first phase": (
        {"batching": Continuous(axis="units", extent=(), first_phase="pages")},
        "batching.first_phase names dimension 'pages'",
    ),
    "cached": (
        {"batching": Continuous(axis="units", extent=(), first_phase="pages", cached="reams")},
        "batching.cached names dimension 'reams'",
    ),
    "cached without first phase": (
        {"batching": Continuous(axis="units", extent=(), cached="cached_units")},
        "batching.cached is part of a first phase",
    ),
    "stretch": (
        {"batching": Continuous(axis="units", extent=(), stretch=1.0)},
        "batching.stretch is 1; it must be above 1",
    ),
    "no wait": (
        {"overload": replace(GOOD.overload, wait_s=0.0)},
        "overload.wait_s is 0; it must be above 0, or None",
    ),
    "tally twice": (
        {"tallies": (Tally(name="drops", summary=""),) * 2},
        "tally 'drops' is declared twice",
    ),
    "tally of a strange name": (
        {"tallies": (Tally(name="Big drops", summary=""),)},
        "tally 'Big drops' must be one lower-case identifier",
    ),
    "tally of a name in use": (
        {"tallies": (Tally(name="finished", summary=""),)},
        "tally 'finished' is a counter of every workload",
    ),
    "alias of a tally": (
        {"metric_aliases": (MetricAlias(name="vllm:x", measure="tally:drops"),)},
        "metric alias 'vllm:x' stands for 'tally:drops'",
    ),
    "granule": (
        {"batching": Continuous(axis="units", extent=(), granule="block_units")},
        "batching.granule names symbol 'block_units'",
    ),
    "formed axis": (
        {"batching": Formed(axis="pages", budget=1)},
        "batching.axis names dimension 'pages'",
    ),
    "formed budget": (
        {"batching": Formed(axis="prompt_units", budget=0)},
        "batching.budget is 0",
    ),
    "state symbol no bundle binds": (
        {"state": (StateTerm(name="cells", shape=("layers", "units")),)},
        "state 'cells' uses symbol 'layers', which no bundle can bind",
    ),
    "state dtype": (
        {"state": (StateTerm(name="cells", shape=("units",), dtype="float3"),)},
        "has dtype 'float3'",
    ),
    "limit": (
        {"request": with_dims(Dim(name="pages", summary="", limit="most_pages"))},
        "dimension 'pages' is limited by 'most_pages'",
    ),
    "two queues": (
        {"phases": (*PHASES[:3], phase("again", PhaseKind.QUEUE), *PHASES[3:])},
        "exactly one queue phase, not 2",
    ),
    "no device": (
        {"phases": (*PHASES[:3], PHASES[-1])},
        "at least one device phase",
    ),
    "queue after device": (
        {"phases": (PHASES[0], PHASES[3], PHASES[2], PHASES[-1])},
        "queue phase must come before the first device phase",
    ),
    "no validation": ({"phases": PHASES[2:]}, "first phase must be a host phase"),
    "delivery first": (
        {"phases": (PHASES[0], PHASES[-1], *PHASES[2:4])},
        "the last phase, and only the last, must be delivery",
    ),
    "no phases": ({"phases": ()}, "first phase must be a host phase"),
    "devices": ({"fit": replace(FIT, devices=())}, "fit.devices is empty"),
    "dtypes": ({"fit": replace(FIT, dtypes=("float3",))}, "fit.dtypes names 'float3'"),
    "static bytes": (
        {"fit": replace(FIT, static_bytes=("weight_bytes",))},
        "fit.static_bytes names symbol 'weight_bytes'",
    ),
    "alias": (
        {"metric_aliases": (MetricAlias(name="vllm:x", measure="phase_s:lunch"),)},
        "metric alias 'vllm:x' stands for 'phase_s:lunch'",
    ),
    "alias label": (
        {"metric_aliases": (MetricAlias(name="x", measure="running", labels={"who": "{tenant}"}),)},
        "label 'who' of metric alias 'x' may hold {bundle}, {model}, {workload} only",
    ),
    "usage": (
        {"gen_ai": GenAi(usage={"pages": "gen_ai.usage.pages"})},
        "gen_ai.usage names 'pages', which units does not declare",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_every_inconsistency_is_named(case: str) -> None:
    changes, message = BAD[case]
    with pytest.raises(DeclarationError) as refused:
        replace(GOOD, **changes)
    assert message in str(refused.value)
    assert f"workload {changes.get('name', 'simulated')!r}" in str(refused.value)


def test_all_problems_are_listed_at_once() -> None:
    with pytest.raises(DeclarationError) as refused:
        replace(
            GOOD,
            engine="nowhere",
            cost=lazy_cost,
            contracts=(Contract(name="a", vouches_for=""), Contract(name="a", vouches_for="")),
        )
    assert str(refused.value).count("\n  - ") == 3


def test_measures_of_phases_units_and_tallies_may_have_aliases() -> None:
    aliases = tuple(
        MetricAlias(name=f"vllm:{at}", measure=measure)
        for at, measure in enumerate(("running", "phase_s:read", "work:written", "tally:drops"))
    )
    tallies = (Tally(name="drops", summary="Drops."),)
    assert replace(GOOD, tallies=tallies, metric_aliases=aliases).metric_aliases == aliases


def test_binding_names_what_the_bundle_lacks() -> None:
    with pytest.raises(BundleError, match="needs most_units") as missing:
        GOOD.bind({}, "uint8")
    assert missing.value.param == "model.most_units"
    with pytest.raises(BundleError, match="not in 'float32'") as dtype:
        GOOD.bind({"most_units": 1}, "float32")
    assert dtype.value.param == "execution.dtype"


def test_binding_resolves_the_granule() -> None:
    batching = Continuous(axis="units", extent=("prompt_units",), granule="most_units")
    state = replace(GOOD, batching=batching).bind({"most_units": 8}, "uint8")
    assert (state.granule, state.request_bytes({}, 9)) == (8, 16)


def test_a_formed_record_binds_with_single_units() -> None:
    state = measuring_record().bind({}, "uint8")
    assert (state.granule, state.request_bytes({"letters": 7}, 7)) == (1, 7)


def test_units_can_be_looked_up_by_name() -> None:
    assert GOOD.units_by_name["read"] == WorkUnit(name="read", summary="unit that was read")
