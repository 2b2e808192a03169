"""A workload that spells, on disk where an installed package would be.

Its bundle holds a template and an alphabet. The engine renders the text into the template
and gives the letters' positions in the alphabet, and their shares.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from headpond.bundle.contract import Contract
from headpond.bundle.exporting import Exported, Quantization
from headpond.bundle.store import Bundle
from headpond.engine import EngineSettings, Json
from headpond.errors import InvalidRequest
from headpond.record import (
    Continuous,
    Dim,
    Fit,
    Limiter,
    Overload,
    Phase,
    PhaseKind,
    RequestShape,
    WorkloadRecord,
)
from headpond.state import StateTerm
from headpond.units import Work, WorkUnit

record = WorkloadRecord(
    name="spelling",
    summary="Letters as numbers.",
    routes=(),
    request=RequestShape(dims=(Dim(name="letters", summary="letters", limit="most_letters"),)),
    units=(WorkUnit(name="letters", summary="letter"),),
    cost=lambda shape: Work(letters=shape["letters"]),
    symbols=("alphabet_letters", "most_letters"),
    state=(StateTerm(name="scores", shape=("letters",)),),
    batching=Continuous(axis="letters", extent=("letters",)),
    throughput=(),
    phases=(
        Phase(name="validate", kind=PhaseKind.HOST),
        Phase(name="queue", kind=PhaseKind.QUEUE),
        Phase(name="spell", kind=PhaseKind.DEVICE),
        Phase(name="delivery", kind=PhaseKind.DELIVERY),
    ),
    fit=Fit(
        devices=("cpu",),
        dtypes=("float32", "bfloat16"),
        limited_by=Limiter.COMPUTE,
        static_bytes=("alphabet_letters",),
    ),
    overload=Overload(queue_limit=Work(letters=100), deadline_s=1.0),
    contracts=(
        Contract(name="ids", vouches_for="template or alphabet"),
        Contract(name="shares", vouches_for="precision"),
    ),
    engine="spelling_workload:load",
    exporter="spelling_workload:export",
)
mumbling = replace(record, name="mumbling", exporter=None)


class SpellingEngine:
    """Computes on three digits in float32 and on one in bfloat16."""

    def __init__(self, template: str, alphabet: str, digits: int) -> None:
        self._template = template
        self._alphabet = alphabet
        self._digits = digits

    @property
    def symbols(self) -> Mapping[str, int]:
        return {"alphabet_letters": len(self._alphabet), "most_letters": 64}

    def tallies(self) -> Mapping[str, int]:
        return {}

    def observe(self, given: Mapping[str, Json]) -> Mapping[str, Json]:
        text = given.get("text")
        if not isinstance(text, str):
            raise InvalidRequest("text must be a string", param="text")
        letters = self._template.replace("{}", text)
        ids: list[Json] = [self._alphabet.find(letter) for letter in letters]
        shares: list[Json] = [round((1 + at) / 7, self._digits) for at in range(len(ids))]
        return {"ids": ids, "shares": shares}


def load(bundle: Bundle, settings: EngineSettings) -> SpellingEngine:
    alphabet = json.loads(bundle.files["alphabet"].read_text())["letters"]
    digits = 3 if bundle.manifest.execution.dtype == "float32" else 1
    return SpellingEngine(bundle.files["template"].read_text(), alphabet, digits)


def export(bundle: Bundle, folder: Path, *, quantization: Quantization | None) -> Exported:
    """Write the alphabet anew; fewer bits are fewer digits."""
    path = folder / "alphabet.json"
    path.write_bytes(bundle.files["alphabet"].read_bytes())
    dtype = "float32" if quantization is None else "bfloat16"
    execution = bundle.manifest.execution.model_copy(update={"dtype": dtype})
    return Exported(execution=execution, files={"alphabet": path}, kept=("template",))
