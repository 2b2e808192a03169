"""One picture on its way from noise to a file."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import Enum, auto

import torch
from torch import Tensor

from headpond.engine import Progress
from headpond.errors import HeadpondError
from headpond.units import Work
from headpond_workloads.diffusion.engine.conditioning import Conditions, Read
from headpond_workloads.diffusion.engine.solo import Solo
from headpond_workloads.diffusion.engine.table import Table
from headpond_workloads.diffusion.items import Encoding, Painted, Preview, Started, Stepped

Output = Started | Stepped | Preview | Painted


@dataclass(frozen=True, kw_only=True, slots=True, eq=False, weakref_slot=True)
class Pixels:
    """A picture to begin from, as the autoencoder takes it.

    Attributes:
        image: `[1, 3, height, width]`, -1 to 1.
        mask: `[1, rows, columns]` of the latents, 1 where it is painted anew; None to
            repaint all of it.
    """

    image: Tensor
    mask: Tensor | None


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Prepared:
    """All that is known of a picture before anything is computed.

    Attributes:
        prompt: Its tokens.
        negative: Tokens of the negative prompt; None where there is none.
        guided: Whether it takes a second row.
        guidance: As asked for, or the bundle's.
        table: Its schedule.
        steps: As asked for, or the bundle's; the table has those that are run.
        strength: The part of them that is run; None where it begins from noise alone.
        scheduler: The schedule's name.
        seed: Of its noise.
        width: Pixels.
        height: Pixels.
        encoding: Of its file.
        previews: The numbers of steps after which one is given.
        source: What it begins from.
        work: What it will have come to.
    """

    prompt: Read
    negative: Read | None
    guided: bool
    guidance: float
    table: Table
    steps: int
    strength: float | None
    scheduler: str
    seed: int
    width: int
    height: int
    encoding: Encoding
    previews: tuple[int, ...]
    source: Pixels | None
    work: Work


class Stage(Enum):
    """What is done next with a picture."""

    CONDITION = auto()
    DENOISE = auto()
    DECODE = auto()
    WRITE = auto()
    OVER = auto()


_PHASES = {Stage.DENOISE: "denoise", Stage.DECODE: "decode", Stage.WRITE: "encode"}


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Known:
    """What inpainting keeps: latents of the picture, their noise, and where it is painted."""

    latents: Tensor
    noise: Tensor
    mask: Tensor


@dataclass(kw_only=True, slots=True, eq=False)
class Slot:
    """The state of one picture.

    Attributes:
        prepared: What is to be painted.
        generator: Its own noise, so that nobody else's draws change it.
        stage: What is done next.
        step: Steps that are done.
        turn: When it was stepped last; the engine counts.
        latents: `[channels, rows, columns]`; set from the stage `DENOISE` on.
        past: Latents and predictions of the steps before that still count, the last first.
        solo: Its own scheduler, where a table does not do.
        conditions: Of its prompt, and of its negative prompt where it is guided.
        known: Of inpainting.
        written: Its file, while that is written elsewhere.
        error: Why it ends without one.
    """

    prepared: Prepared
    generator: torch.Generator
    stage: Stage = Stage.CONDITION
    step: int = 0
    turn: int = 0
    latents: Tensor | None = None
    past: deque[tuple[Tensor, Tensor]] = field(default_factory=deque)
    solo: Solo | None = None
    conditions: tuple[Conditions, ...] = ()
    known: Known | None = None
    written: Future[bytes] | None = None
    error: HeadpondError | None = None
    _outputs: list[Output] = field(default_factory=list)
    _told_steps: int = 0
    _told_stage: Stage = Stage.CONDITION
    _previews: int = 0

    @property
    def rows(self) -> int:
        """Rows that it takes of a forward."""
        return 2 if self.prepared.guided else 1

    @property
    def wants_preview(self) -> bool:
        """Whether one is due after the step that was just done."""
        return self.step in self.prepared.previews

    def begin(self, latents: Tensor, known: Known | None) -> None:
        """Have latents to denoise."""
        prepared = self.prepared
        self.latents, self.known, self.stage = latents, known, Stage.DENOISE
        solo = prepared.table.solo
        self.solo = None if solo is None else solo.copy()
        self._outputs.append(
            Started(steps=prepared.table.steps, width=prepared.width, height=prepared.height)
        )

    def stepped(self, latents: Tensor) -> None:
        """Have gone one step further."""
        self.latents = latents
        self.step += 1
        steps = self.prepared.table.steps
        self._outputs.append(Stepped(step=self.step, steps=steps))
        if self.step == steps:
            self.past.clear()
            self.solo, self.stage = None, Stage.DECODE

    def previewed(self, content: bytes) -> None:
        """Have one more preview to give."""
        medium = self.prepared.encoding.medium
        self._outputs.append(Preview(index=self._previews, content=content, medium=medium))
        self._previews += 1

    def write(self, written: Future[bytes]) -> None:
        """Have a file that is being written; nothing else is needed any more."""
        self.written, self.stage = written, Stage.WRITE
        self.latents, self.known = None, None

    def finish(self, content: bytes) -> None:
        """Have a file to give."""
        prepared = self.prepared
        negative = prepared.negative if prepared.guided else None
        self.stage = Stage.OVER
        self._outputs.append(
            Painted(
                content=content,
                medium=prepared.encoding.medium,
                width=prepared.width,
                height=prepared.height,
                seed=prepared.seed,
                steps=prepared.steps,
                strength=prepared.strength,
                guidance=prepared.guidance,
                scheduler=prepared.scheduler,
                text_tokens=prepared.prompt.count,
                negative_tokens=0 if negative is None else negative.count,
            )
        )

    def fail(self, error: HeadpondError) -> None:
        """End without a picture."""
        self.error, self.stage = error, Stage.OVER

    def progress(self) -> Progress[Output]:
        """Return what came of it since this was last asked."""
        outputs, self._outputs = tuple(self._outputs), []
        units, self._told_steps = self.step - self._told_steps, self.step
        changed, self._told_stage = self.stage is not self._told_stage, self.stage
        finished = self.stage is Stage.OVER and self.error is None
        return Progress(
            outputs=outputs,
            units=units,
            phase=_PHASES.get(self.stage) if changed else None,
            finished=self.prepared.work if finished else None,
            error=self.error,
        )
