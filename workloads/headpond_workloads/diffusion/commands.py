"""`headpond imagine`: pictures from text, and from a picture."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from headpond.cli.console import people
from headpond.cli.options import ApiKey, AsJson, BaseUrl, chosen, completing, connected

if TYPE_CHECKING:
    from headpond_workloads.diffusion.client_params import EditParams, GenerateParams
    from headpond_workloads.diffusion.schema import PictureEvent

_WORKLOAD = "diffusion"
Form = Literal["png", "jpeg", "webp"]
_FORMS: dict[str, Form] = {".png": "png", ".jpg": "jpeg", ".jpeg": "jpeg", ".webp": "webp"}


def imagine(  # noqa: PLR0913 - an option each
    prompt: Annotated[str, typer.Argument(help="What the picture shows.")],
    *,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="A .png, .jpeg or .webp; replaced if there.")
    ] = Path("picture.png"),
    n: Annotated[int, typer.Option("-n", help="How many: NAME-1.png, NAME-2.png, ...", min=1)] = 1,
    size: Annotated[str | None, typer.Option(help="512x512; else the model's own.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of the first picture.")] = None,
    steps: Annotated[int | None, typer.Option(help="Denoising steps.", min=1)] = None,
    guidance: Annotated[float | None, typer.Option(help="How strictly the text counts.")] = None,
    negative_prompt: Annotated[str | None, typer.Option(help="What it must not show.")] = None,
    scheduler: Annotated[str | None, typer.Option(help="One that suits the model.")] = None,
    image: Annotated[
        Path | None, typer.Option(help="Change this picture.", exists=True, dir_okay=False)
    ] = None,
    mask: Annotated[
        Path | None, typer.Option(help="What is clear in it changes.", exists=True, dir_okay=False)
    ] = None,
    strength: Annotated[
        float | None, typer.Option(help="How much --image may change, up to 1.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Its name.", autocompletion=completing(_WORKLOAD))
    ] = None,
    base_url: BaseUrl = None,
    api_key: ApiKey = None,
    as_json: AsJson = False,
) -> None:
    """Write pictures that a text describes; prints their paths and seeds."""
    form = _FORMS.get(output.suffix.lower())
    if form is None:
        raise typer.BadParameter("must end with .png, .jpeg or .webp", param_hint="--output")
    if not output.parent.is_dir():  # said before anything is painted
        raise typer.BadParameter(f"there is no folder {output.parent}", param_hint="--output")
    if image is None and (mask is not None or strength is not None):
        raise typer.BadParameter("--mask and --strength are of an --image")
    with connected(base_url, api_key) as client:
        params: GenerateParams = {
            "prompt": prompt,
            "model": chosen(client, _WORKLOAD, model),
            "n": n,
            "output_format": form,
            "size": size,
            "seed": seed,
            "num_inference_steps": steps,
            "guidance_scale": guidance,
            "negative_prompt": negative_prompt,
            "scheduler": scheduler,
        }
        if image is None:
            events = client.images.generate(stream=True, progress=True, **params)
        else:
            edit: EditParams = {**params, "image": image, "mask": mask, "strength": strength}
            events = client.images.edit(stream=True, progress=True, **edit)
        with events:
            pictures = _painted(events, n)
    for number, picture in enumerate(pictures, 1):
        path = output if n == 1 else output.with_stem(f"{output.stem}-{number}")
        _write(path, picture)
        shown = {"path": str(path), "seed": picture.seed, "size": picture.size}
        typer.echo(json.dumps(shown) if as_json else f"{path}  seed {picture.seed}")


def _painted(events: Iterable[PictureEvent], n: int) -> list[PictureEvent]:
    """Show how far the pictures are; return those that are done, in the order of their seeds."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    done: dict[int, PictureEvent] = {}
    with Progress(*columns, console=people, transient=True, disable=not people.is_terminal) as bars:
        tasks = [bars.add_task(f"picture {number}", total=None) for number in range(1, n + 1)]
        for event in events:
            if event.step is not None:
                bars.update(tasks[event.index], completed=event.step, total=event.steps)
            elif event.type.endswith(".completed"):
                done[event.index] = event
    return [done[place] for place in sorted(done)]


def _write(path: Path, picture: PictureEvent) -> None:
    try:
        picture.save(path)
    except OSError as error:
        reason = f"{path} can't be written: {error.strerror}"
        raise typer.BadParameter(reason, param_hint="--output") from None
