"""The echo workload: says back what it is told, in pieces, with no model at all.

It takes the whole way of a real workload, so it shows what the platform itself costs, and
it makes tests of everything around an engine quick.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from headpond.bundle.contract import Contract
from headpond.dialect import Route
from headpond.engine import EngineSettings, Json, Plan, Progress, Quantum
from headpond.errors import BundleError, Overloaded
from headpond.record import (
    Bounds,
    Continuous,
    Dim,
    Failure,
    Fit,
    Limiter,
    Overload,
    Phase,
    PhaseKind,
    RequestShape,
    Shape,
    ThroughputUnit,
    WorkloadRecord,
)
from headpond.state import StateTerm
from headpond.testing.echo_dialect import (
    MOST_CHUNKS,
    EchoChunk,
    EchoExchange,
    EchoItem,
    EchoRequest,
    EchoResponse,
)
from headpond.units import Work, WorkUnit

if TYPE_CHECKING:
    from headpond.bundle.store import Bundle

MOST_TEXT_BYTES = 1_048_576


def echo_cost(shape: Shape) -> Work:
    """Return the bytes to read and the pieces to say."""
    return Work(input_bytes=shape["text_bytes"], output_chunks=shape["chunks"])


def echoed(outputs: Sequence[object]) -> Json:
    """Return the text that was said, however it was cut."""
    return "".join(map(str, outputs))


record = WorkloadRecord(
    name="echo",
    summary="Says back what it is told.",
    routes=(
        Route.json(
            "/v1/echo",
            "Say a text back, whole or in pieces",
            request=EchoRequest,
            exchange=EchoExchange,
            response=EchoResponse,
            chunk=EchoChunk,
            example={"text": "hello"},
        ),
    ),
    request=RequestShape(
        dims=(
            Dim(
                name="text_bytes",
                summary="bytes of the text in UTF-8",
                limit="most_text_bytes",
                param="text",
            ),
            Dim(name="chunks", summary="pieces to say it in", limit=MOST_CHUNKS, param="chunks"),
        ),
    ),
    units=(
        WorkUnit(name="input_bytes", summary="byte of text", weight=0.001),
        WorkUnit(name="output_chunks", summary="piece of the answer"),
    ),
    cost=echo_cost,
    symbols=("most_text_bytes",),
    state=(StateTerm(name="text", shape=("text_bytes",), dtype="uint8"),),
    batching=Continuous(axis="chunks", extent=("chunks",)),
    throughput=(
        ThroughputUnit(
            unit="output_chunks", bounds=Bounds(first_output_s=1.0), quality="the text is the same"
        ),
    ),
    phases=(
        Phase(name="validate", kind=PhaseKind.HOST, summary="check the request"),
        Phase(name="queue", kind=PhaseKind.QUEUE, summary="wait for a slot"),
        Phase(name="speak", kind=PhaseKind.DEVICE, summary="say the pieces"),
        Phase(name="delivery", kind=PhaseKind.DELIVERY, summary="hand them to the caller"),
    ),
    fit=Fit(devices=("cpu",), dtypes=("uint8",), limited_by=Limiter.COMPUTE, static_bytes=()),
    overload=Overload(
        queue_limit=Work(output_chunks=65_536),
        deadline_s=30.0,
        failures=(
            Failure(name="crowded", summary="too many pieces wait to be said", error=Overloaded),
        ),
    ),
    contracts=(Contract(name="pieces", vouches_for="how the text is split"),),
    engine="headpond.testing.echo:load",
    compared=echoed,
)


@dataclass(slots=True, eq=False)
class EchoSlot:
    """A text that is being said: the pieces said so far out of `item.chunks`."""

    item: EchoItem
    input_bytes: int
    said: int = 0

    def next_piece(self) -> str:
        """Return the next piece; all together they are the text."""
        text, chunks, said = self.item.text, self.item.chunks, self.said
        self.said += 1
        return text[len(text) * said // chunks : len(text) * self.said // chunks]


class EchoEngine:
    """Says one piece of every slot in a step."""

    def __init__(self, *, step_s: float = 0.0, most_text_bytes: int = MOST_TEXT_BYTES) -> None:
        """Start without slots.

        Args:
            step_s: What a step takes, as if there were something to compute.
            most_text_bytes: The longest text, as the bundle says.
        """
        self._step_s = step_s
        self._most_text_bytes = most_text_bytes

    @property
    def symbols(self) -> Mapping[str, int]:
        """The record's symbols."""
        return {"most_text_bytes": self._most_text_bytes}

    def tallies(self) -> Mapping[str, int]:
        """Count nothing."""
        return {}

    def plan(self, item: EchoItem, namespace: str) -> Plan[EchoItem]:
        """Count the bytes."""
        shape = {"text_bytes": len(item.text.encode()), "chunks": item.chunks}
        return Plan(shape=shape, prepared=item)

    def start(self, plan: Plan[EchoItem]) -> EchoSlot:
        """Return a slot at the beginning of its text."""
        return EchoSlot(plan.prepared, plan.shape["text_bytes"])

    def step(self, quanta: Sequence[Quantum[EchoSlot]]) -> list[Progress[str]]:
        """Say the next piece of each."""
        if self._step_s:
            time.sleep(self._step_s)
        return [_say(quantum.slot) for quantum in quanta]

    def preempt(self, slot: EchoSlot) -> int:
        """Lose nothing: where a slot is, is all there is to it."""
        del slot
        return 0

    def release(self, slot: EchoSlot) -> None:
        """Forget the text."""
        slot.item = EchoItem(text="")

    def observe(self, given: Mapping[str, Json]) -> Mapping[str, Json]:
        """Return the pieces of a fixture's `text` in its `chunks`."""
        text, chunks = given.get("text"), given.get("chunks", 1)
        if not isinstance(text, str) or not isinstance(chunks, int):
            raise BundleError("an echo fixture gives a text, and chunks as an integer")
        slot = self.start(self.plan(EchoItem(text=text, chunks=chunks), ""))
        return {"pieces": [slot.next_piece() for _ in range(chunks)]}


def _say(slot: EchoSlot) -> Progress[str]:
    piece = slot.next_piece()
    if slot.said < slot.item.chunks:
        return Progress(outputs=(piece,))
    work = Work(input_bytes=slot.input_bytes, output_chunks=slot.said)
    return Progress(outputs=(piece,), finished=work)


def load(bundle: Bundle, settings: EngineSettings) -> EchoEngine:
    """Load the engine of an echo bundle; its option `step_ms` makes steps take that long.

    Raises:
        BundleError: `step_ms` is no number.
    """
    del settings
    return EchoEngine(
        step_s=step_s(bundle), most_text_bytes=bundle.manifest.model["most_text_bytes"]
    )


def step_s(bundle: Bundle) -> float:
    """Return what a step takes, as the bundle's option `step_ms` says.

    Raises:
        BundleError: It is no number.
    """
    step_ms = bundle.manifest.execution.options.get("step_ms", 0)
    if not isinstance(step_ms, int | float) or step_ms < 0:
        raise BundleError(
            "step_ms must be a number, not below 0", param="execution.options.step_ms"
        )
    return step_ms / 1000.0


def write_echo_bundle(
    folder: Path, *, step_ms: float = 0, version: str = "1.0.0", name: str | None = None
) -> Path:
    """Write a locked echo bundle into `folder` and return the folder.

    Args:
        folder: Made when it is missing.
        step_ms: What each step of its engine takes.
        version: Its version.
        name: Its name; the folder's unless said.
    """
    folder.mkdir(parents=True, exist_ok=True)
    voice = b'{"voice": "none"}\n'
    (folder / "voice.json").write_bytes(voice)
    (folder / "bundle.yaml").write_text(
        f"""\
name: {name or folder.name}
version: "{version}"
workload: echo
summary: Says back what it is told.
licence: Apache-2.0
created: 2026-01-01T00:00:00Z
artifacts:
  - name: voice
    source: file:voice.json
    bytes: {len(voice)}
    sha256: {sha256(voice).hexdigest()}
model:
  most_text_bytes: {MOST_TEXT_BYTES}
execution:
  architecture: echo
  dtype: uint8
  options:
    step_ms: {step_ms}
fixtures:
  - name: greeting
    given: {{text: hello, chunks: 2}}
    expect: {{pieces: [he, llo]}}
""",
        encoding="utf-8",
    )
    return folder
