"""The diffusion engine: a step is one denoising step of as many pictures as pay together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from headpond.engine import Json, Plan, Progress, Quantum
from headpond.errors import EngineFailed
from headpond_workloads.diffusion.engine import fixtures, memory, solver
from headpond_workloads.diffusion.engine.autoencoder import Autoencoder
from headpond_workloads.diffusion.engine.conditioning import Conditioning, Tokens
from headpond_workloads.diffusion.engine.denoiser import Denoiser
from headpond_workloads.diffusion.engine.media import Writer, encode
from headpond_workloads.diffusion.engine.planning import Planning
from headpond_workloads.diffusion.engine.preview import Look
from headpond_workloads.diffusion.engine.slot import Known, Output, Prepared, Slot, Stage
from headpond_workloads.diffusion.items import Picture

_DECODED_PIXELS = 1024 * 1024
"""Finished latents become pixels in a step until so many are decoded; others go on after."""


class DiffusionEngine:
    """Paints pictures together."""

    def __init__(
        self,
        *,
        planning: Planning,
        conditioning: Conditioning,
        denoiser: Denoiser,
        autoencoder: Autoencoder,
        look: Look,
        rows: int,
        symbols: Mapping[str, int],
    ) -> None:
        """Put the parts together; `load` makes them.

        Args:
            planning: Checks what is asked for.
            conditioning: Reads prompts.
            denoiser: The network.
            autoencoder: Between latents and pixels.
            look: Makes previews.
            rows: The most rows of one forward.
            symbols: What the model is, in the record's symbols.
        """
        self._planning = planning
        self._conditioning = conditioning
        self._denoiser = denoiser
        self._autoencoder = autoencoder
        self._look = look
        self._rows = rows
        self._symbols = symbols
        self._writer = Writer()
        self._turn = 0
        self._tallies = {"pictures": 0, "previews": 0, "denoiser_forwards": 0, "denoiser_rows": 0}

    @property
    def symbols(self) -> Mapping[str, int]:
        """What the loaded model is, in the record's symbols."""
        return self._symbols

    def tallies(self) -> Mapping[str, int]:
        """Return what was counted since the start; only ever grows."""
        return dict(self._tallies)

    def plan(self, item: Picture, namespace: str) -> Plan[Prepared]:
        """Check a picture against the model, tokenize, decode what it begins from.

        Raises:
            InvalidRequest: The model can't paint it; names the field.
            PayloadTooLarge: What it begins from has too many pixels.
        """
        del namespace
        return self._planning.plan(item)

    def start(self, plan: Plan[Prepared]) -> Slot:
        """Return a slot with noise of its own."""
        generator = torch.Generator().manual_seed(plan.prepared.seed)
        # As if it had just been stepped: who comes never goes before those who wait.
        return Slot(prepared=plan.prepared, generator=generator, turn=self._turn)

    def step(self, quanta: Sequence[Quantum[Slot]]) -> list[Progress[Output]]:
        """Take the pictures a step further whose turn it is, as many as pay together.

        Those who waited longest come first; the others stay where they are. Pictures whose
        last step is done are decoded, and given when their files are written.
        """
        slots = [quantum.slot for quantum in quanta]
        with torch.inference_mode():
            self._condition([slot for slot in slots if slot.stage is Stage.CONDITION])
            turn = self._whose_turn(slots)
            self._denoise(turn)
            decoded = self._decode([slot for slot in slots if slot.stage is Stage.DECODE])
        self._finish(slots, patient=not turn and not decoded)
        return [slot.progress() for slot in slots]

    def preempt(self, slot: Slot) -> int:
        """Keep everything: a slot never grows."""
        del slot
        return 0

    def release(self, slot: Slot) -> None:
        """Let go of a slot's tensors, whoever still knows the slot."""
        slot.latents, slot.known, slot.solo, slot.conditions = None, None, None, ()
        slot.past.clear()

    def observe(self, given: Mapping[str, Json]) -> Mapping[str, Json]:
        """Paint a fixture's picture and return what the record's contracts compare.

        Raises:
            BundleError: The fixture describes none.
            HeadpondError: It can't be painted.
        """
        slot = self.start(self.plan(fixtures.picture_of(given), ""))
        with torch.inference_mode():
            self._condition([slot])
            while slot.stage is Stage.DENOISE:
                self._denoise([slot])
            if slot.error is not None or slot.latents is None:
                raise slot.error or EngineFailed()
            image = self._autoencoder.decode(slot.latents)
            return fixtures.observation(slot, slot.latents, image)

    def _condition(self, slots: Sequence[Slot]) -> None:
        """Encode the prompts of those who are new, and draw their noise."""
        if not slots:
            return
        wanted: list[tuple[Tokens | None, int, int]] = []
        for slot in slots:
            prepared = slot.prepared
            size = prepared.width, prepared.height
            wanted.append((prepared.prompt.tokens, *size))
            if prepared.guided:
                negative = prepared.negative
                wanted.append((None if negative is None else negative.tokens, *size))
        encoded = iter(self._conditioning.encode(wanted))
        for slot in slots:
            given = [next(encoded) for _ in range(slot.rows)]
            slot.conditions = tuple(
                self._denoiser.told(each, slot.prepared.guidance) for each in given
            )
            slot.begin(*self._begun(slot))

    def _begun(self, slot: Slot) -> tuple[Tensor, Known | None]:
        """Return the latents a slot begins with; draws in the order of diffusers' pipelines."""
        prepared, source = slot.prepared, slot.prepared.source
        factor = self._autoencoder.factor
        rows, columns = prepared.height // factor, prepared.width // factor
        shape = (1, self._autoencoder.channels, rows, columns)
        begin = prepared.table.begin
        if source is None:
            return self._denoiser.noise(shape, slot.generator) * begin.noise, None
        picture = self._autoencoder.encode(source.image, slot.generator)
        noise = self._denoiser.noise(shape, slot.generator)
        latents = begin.source * picture + begin.noise * noise
        if source.mask is None:
            return latents, None
        if self._autoencoder.draws:
            # The pipeline encodes the masked picture too, for models that are shown it.
            torch.randn(shape, generator=slot.generator)
        return latents, Known(latents=picture, noise=noise, mask=source.mask.to(noise.device))

    def _whose_turn(self, slots: Sequence[Slot]) -> list[Slot]:
        """Return whom the next forward is for, the longest waiting first."""
        turn: list[Slot] = []
        rows = 0
        waiting = [slot for slot in slots if slot.stage is Stage.DENOISE]
        for slot in sorted(waiting, key=lambda each: each.turn):
            if rows + slot.rows > self._rows:
                break
            rows += slot.rows
            self._turn += 1
            slot.turn = self._turn
            turn.append(slot)
        return turn

    def _denoise(self, slots: Sequence[Slot]) -> None:
        """Do one step of each; where memory lacks, of fewer at once."""
        if not slots:
            return
        try:
            self._step(slots)
        except memory.FAILURES as error:
            if not memory.is_lack(error):
                raise
            lack = error
        else:
            return
        memory.give_back()
        if len(slots) == 1:
            failure = EngineFailed("this picture takes more memory than there is")
            failure.__cause__ = lack
            slots[0].fail(failure)
            return
        middle = len(slots) // 2
        self._denoise(slots[:middle])
        self._denoise(slots[middle:])

    def _step(self, slots: Sequence[Slot]) -> None:
        latents = torch.stack([slot.latents for slot in slots if slot.latents is not None])
        given = solver.scaled(slots, latents)
        at = [row for row, slot in enumerate(slots) if slot.prepared.guided]
        steps = [slot.prepared.table.timesteps[slot.step] for slot in slots]
        conditions = [slot.conditions[0] for slot in slots]
        conditions += [slots[row].conditions[1] for row in at]
        timesteps = torch.tensor(steps + [steps[row] for row in at], device=latents.device)
        rows = torch.cat([given, given[at]]) if at else given
        predictions = solver.guided(slots, self._denoiser(rows, timesteps, conditions))
        self._tallies["denoiser_forwards"] += 1
        self._tallies["denoiser_rows"] += len(rows)
        cleaned = [
            solver.clean(slot, given[row], predictions[row])
            if slot.step + 1 in slot.prepared.previews
            else None
            for row, slot in enumerate(slots)
        ]
        after = solver.advanced(slots, latents, predictions)
        finite = after.flatten(1).isfinite().all(dim=1).tolist()
        for row, slot in enumerate(slots):
            if not finite[row]:
                slot.fail(EngineFailed("the latents of this picture hold NaN or infinity"))
                continue
            slot.stepped(after[row])
            seen = cleaned[row]
            if seen is not None:
                slot.previewed(encode(self._look(seen), slot.prepared.encoding))
                self._tallies["previews"] += 1

    def _decode(self, slots: Sequence[Slot]) -> int:
        """Turn finished latents into pixels, and begin to write them; return how many."""
        decoded = pixels = 0
        for slot in slots:
            if slot.latents is None or pixels >= _DECODED_PIXELS:
                break
            pixels += slot.prepared.width * slot.prepared.height
            decoded += 1
            try:
                image = self._autoencoder.decode(slot.latents)
            except memory.FAILURES as error:
                if not memory.is_lack(error):
                    raise
                slot.fail(EngineFailed("this picture takes more memory than there is to decode"))
                continue
            slot.write(self._writer.begin(image, slot.prepared.encoding))
        return decoded

    def _finish(self, slots: Sequence[Slot], *, patient: bool) -> None:
        """Give the files that are written; wait a moment for one if there is nothing else."""
        pending = [slot.written for slot in slots if slot.written is not None]
        if patient and pending and not any(written.done() for written in pending):
            self._writer.wait(pending)
        for slot in slots:
            if slot.stage is Stage.WRITE and slot.written is not None and slot.written.done():
                slot.finish(slot.written.result())
                slot.written = None
                self._tallies["pictures"] += 1
