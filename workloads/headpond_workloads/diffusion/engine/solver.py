"""One step of many schedules at once."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from headpond_workloads.diffusion.engine.slot import Slot


def scaled(slots: Sequence[Slot], latents: Tensor) -> Tensor:
    """Return latents `[slots, channels, rows, columns]` as the model expects them."""
    scales = [slot.prepared.table.scales[slot.step] for slot in slots]
    return latents * _column(scales, latents)


def guided(slots: Sequence[Slot], predictions: Tensor) -> Tensor:
    """Return one prediction for each slot.

    Args:
        slots: In the order of the rows.
        predictions: Of all slots for their prompts, then of those that are guided for their
            negative prompts.
    """
    with_prompt, without = predictions[: len(slots)], predictions[len(slots) :]
    at = [row for row, slot in enumerate(slots) if slot.prepared.guided]
    if not at:
        return with_prompt
    guidance = _column([slots[row].prepared.guidance for row in at], predictions)
    mixed = with_prompt.clone()
    mixed[at] = without + guidance * (with_prompt[at] - without)
    return mixed


def advanced(slots: Sequence[Slot], latents: Tensor, predictions: Tensor) -> Tensor:
    """Return the latents after this step; what counts for the next ones is kept in the slots.

    A slot that looks back less far than another gets zeros for its factors: adding them
    changes no bit.

    Args:
        slots: In the order of the rows.
        latents: `[slots, channels, rows, columns]`, float32.
        predictions: Of the same shape.
    """
    tables = [slot.prepared.table for slot in slots]
    window = max(table.window for table in tables)
    after = torch.zeros_like(latents)
    for back in range(window):
        pairs = [
            table.factors[slot.step][back] if back < table.window else (0.0, 0.0)
            for slot, table in zip(slots, tables, strict=True)
        ]
        old, said = _looked_back(slots, latents, predictions, back)
        after += _column([pair[0] for pair in pairs], latents) * old
        after += _column([pair[1] for pair in pairs], latents) * said
    for row, (slot, table) in enumerate(zip(slots, tables, strict=True)):
        if slot.solo is not None:
            after[row] = slot.solo.step(slot.step, latents[row], predictions[row], slot.generator)
        elif table.draws[slot.step]:
            noise = torch.randn((1, *latents.shape[1:]), generator=slot.generator)
            after[row] += table.noises[slot.step] * noise[0].to(after.device)
        if slot.known is not None:
            picture, noisy = table.known[slot.step]
            known = picture * slot.known.latents + noisy * slot.known.noise
            after[row] = (1 - slot.known.mask) * known + slot.known.mask * after[row]
        _remember(slot, latents[row], predictions[row], table.window)
    return after


def clean(slot: Slot, scaled_latents: Tensor, prediction: Tensor) -> Tensor:
    """Return what the latents of the finished picture look like, as far as it is known."""
    kept, said = slot.prepared.table.clean[slot.step]
    return kept * scaled_latents + said * prediction


def _looked_back(
    slots: Sequence[Slot], latents: Tensor, predictions: Tensor, back: int
) -> tuple[Tensor, Tensor]:
    if not back:
        return latents, predictions
    nothing = torch.zeros_like(latents[0])
    found = [
        slot.past[back - 1] if len(slot.past) >= back else (nothing, nothing) for slot in slots
    ]
    return torch.stack([pair[0] for pair in found]), torch.stack([pair[1] for pair in found])


def _remember(slot: Slot, latents: Tensor, prediction: Tensor, window: int) -> None:
    if window > 1:
        slot.past.appendleft((latents, prediction))
        while len(slot.past) >= window:
            slot.past.pop()


def _column(values: Sequence[float], like: Tensor) -> Tensor:
    return torch.tensor(values, dtype=like.dtype, device=like.device).view(-1, 1, 1, 1)
