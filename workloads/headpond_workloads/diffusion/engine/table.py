"""A schedule as numbers: what happens to the latents in each step."""

from __future__ import annotations

from dataclasses import dataclass

from headpond_workloads.diffusion.engine.solo import Solo


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Begin:
    """How the first latents are made: `source` times a picture's, plus `noise` times noise."""

    source: float
    noise: float


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Table:
    """What happens in each of `steps` steps.

    Attributes:
        timesteps: What the model is told; one for each step.
        scales: What the latents are multiplied by before the model sees them.
        factors: For each step the factors of the latents and the prediction of this step,
            of the step before, and so on: pairs, as many as `window`.
        noises: The factor of fresh noise.
        draws: Whether the step draws noise, even if its factor is 0.
        window: Steps that are looked at: 1 where none before counts.
        begin: How the latents begin.
        known: For each step, how the latents of a known picture look after it: factors of
            the picture's and of the noise they began with.
        clean: For each step, factors of the scaled latents and the prediction whose sum is
            the picture as the model sees it.
        solo: Does the steps instead of the factors, where they are not linear; each picture
            takes a copy.
    """

    timesteps: tuple[float, ...]
    scales: tuple[float, ...]
    factors: tuple[tuple[tuple[float, float], ...], ...]
    noises: tuple[float, ...]
    draws: tuple[bool, ...]
    window: int
    begin: Begin
    known: tuple[tuple[float, float], ...]
    clean: tuple[tuple[float, float], ...]
    solo: Solo | None = None

    @property
    def steps(self) -> int:
        """How many forwards it takes."""
        return len(self.timesteps)
