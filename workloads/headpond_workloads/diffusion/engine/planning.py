"""From what is asked for to what will be painted: all that needs no device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headpond.engine import Plan
from headpond.errors import InvalidRequest, UnsupportedParameter
from headpond_workloads.diffusion.engine.conditioning import Conditioning, Read
from headpond_workloads.diffusion.engine.options import Outputs
from headpond_workloads.diffusion.engine.slot import Pixels, Prepared
from headpond_workloads.diffusion.engine.sources import Sources
from headpond_workloads.diffusion.engine.table import Table
from headpond_workloads.diffusion.engine.tables import Tables
from headpond_workloads.diffusion.items import Picture, Scheduler
from headpond_workloads.diffusion.record import cost


@dataclass(frozen=True, kw_only=True, slots=True)
class Bounds:
    """What the model can paint.

    Attributes:
        granule: Sides are multiples of so many pixels.
        pixels: The largest picture.
        steps: The most denoising steps.
        factor: Pixels that a place of the latents is wide.
        guides: Whether guidance takes a second row; False where the model is told of it.
    """

    granule: int
    pixels: int
    steps: int
    factor: int
    guides: bool


class Planning:
    """Checks pictures against the model and lays them out."""

    def __init__(
        self,
        conditioning: Conditioning,
        tables: Mapping[Scheduler, Tables],
        defaults: Outputs,
        bounds: Bounds,
    ) -> None:
        """Put the parts together."""
        self._conditioning = conditioning
        self._tables = tables
        self._defaults = defaults
        self._bounds = bounds
        self._sources = Sources(bounds.factor)

    def plan(self, picture: Picture) -> Plan[Prepared]:
        """Lay out a picture.

        Raises:
            InvalidRequest: The model can't paint it; names the field.
            PayloadTooLarge: What it begins from has too many pixels.
        """
        width, height = self._size(picture)
        tokens = (width // self._bounds.granule) * (height // self._bounds.granule)
        steps = self._steps(picture)
        scheduler, table = self._schedule(picture, steps, tokens)
        guidance = self._defaults.guidance if picture.guidance is None else picture.guidance
        guided = guidance > 1.0 and self._bounds.guides
        prompt = self._conditioning.read(picture.prompt, "prompt")
        negative = self._negative(picture) if guided else None
        source = self._source(picture, width, height)
        factor = self._bounds.factor
        rows, columns = height // factor, width // factor
        shape = {
            "pixels": width * height,
            "latents": rows * columns,
            "steps": steps,
            "forwards": table.steps,
            "passes": 2 if guided else 1,
            "sources": 0 if source is None else 1 if source.mask is None else 3,
        }
        prepared = Prepared(
            prompt=prompt,
            negative=negative,
            guided=guided,
            guidance=guidance,
            table=table,
            steps=steps,
            strength=None if picture.source is None else picture.source.strength,
            scheduler=scheduler.value,
            seed=picture.seed,
            width=width,
            height=height,
            encoding=picture.encoding,
            previews=_spread(picture.partials, table.steps),
            source=source,
            work=cost(shape),
        )
        return Plan(shape=shape, prepared=prepared, key=((rows, columns), ()))

    def _size(self, picture: Picture) -> tuple[int, int]:
        width = self._defaults.width if picture.width is None else picture.width
        height = self._defaults.height if picture.height is None else picture.height
        granule = self._bounds.granule
        if width < granule or height < granule or width % granule or height % granule:
            raise InvalidRequest(
                f"width and height must be multiples of {granule}, not {width}x{height}",
                param="size",
            )
        if width * height > self._bounds.pixels:
            raise InvalidRequest(
                f"{width}x{height} are more than this model's {self._bounds.pixels} pixels",
                param="size",
            )
        return width, height

    def _steps(self, picture: Picture) -> int:
        steps = self._defaults.steps if picture.steps is None else picture.steps
        if steps > self._bounds.steps:
            raise InvalidRequest(
                f"this model does at most {self._bounds.steps} steps", param="num_inference_steps"
            )
        return steps

    def _schedule(self, picture: Picture, steps: int, tokens: int) -> tuple[Scheduler, Table]:
        name = self._defaults.scheduler if picture.scheduler is None else picture.scheduler
        if name not in self._tables:
            raise UnsupportedParameter(
                f"{name!r} does not suit this model; {', '.join(self._tables)} do",
                param="scheduler",
            )
        scheduler = Scheduler(name)
        tables, source = self._tables[scheduler], picture.source
        if source is None:
            return scheduler, tables.table(steps, tokens=tokens)
        # Where all may change, only a mask's known part is kept, and noise is enough.
        picture_begins = source.mask is None or source.strength < 1.0
        return scheduler, tables.table(
            steps, source.strength, picture=picture_begins, tokens=tokens
        )

    def _negative(self, picture: Picture) -> Read | None:
        if picture.negative_prompt is None:
            return None
        return self._conditioning.read(picture.negative_prompt, "negative_prompt")

    def _source(self, picture: Picture, width: int, height: int) -> Pixels | None:
        if picture.source is None:
            return None
        return self._sources.pixels(picture.source, width, height)


def _spread(previews: int, steps: int) -> tuple[int, ...]:
    """Return after which steps the previews come: evenly, and none after the last."""
    wanted = min(previews, steps - 1)
    return tuple(-(-steps * number // (wanted + 1)) for number in range(1, wanted + 1))
