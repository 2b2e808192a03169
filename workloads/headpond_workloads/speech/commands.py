"""`headpond transcribe`: what is said in files, or into the microphone."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.live import Live
from rich.text import Text

from headpond.cli.batch_bars import upload_bar
from headpond.cli.console import people
from headpond.cli.options import ApiKey, AsJson, BaseUrl, chosen, completing, connected
from headpond_workloads.speech.microphone import Microphone
from headpond_workloads.speech.schema_realtime_events import (
    TranscriptionCompleted,
    TranscriptionDelta,
)

if TYPE_CHECKING:
    from headpond import Client

_WORKLOAD = "speech"
TextForm = Literal["text", "srt", "vtt"]


def transcribe(  # noqa: PLR0913 - an option each
    files: Annotated[
        list[Path] | None, typer.Argument(help="Sound of any kind.", exists=True, dir_okay=False)
    ] = None,
    *,
    microphone: Annotated[
        bool, typer.Option("--microphone", help="Listen until Ctrl-C; needs sounddevice.")
    ] = False,
    device: Annotated[str | None, typer.Option(help="The microphone: a part of its name.")] = None,
    form: Annotated[TextForm, typer.Option("--format", help="srt and vtt are subtitles.")] = "text",
    language: Annotated[str | None, typer.Option(help="Spoken, as ISO 639 has it.")] = None,
    model: Annotated[
        str | None, typer.Option(help="Its name.", autocompletion=completing(_WORKLOAD))
    ] = None,
    base_url: BaseUrl = None,
    api_key: ApiKey = None,
    as_json: AsJson = False,
) -> None:
    """Print what is said: a line for each file, or for each utterance into the microphone."""
    if microphone == bool(files):
        raise typer.BadParameter("give files, or --microphone")
    if form != "text" and (microphone or as_json):
        raise typer.BadParameter("subtitles are of files, and no JSON", param_hint="--format")
    with connected(base_url, api_key) as client:
        name = chosen(client, _WORKLOAD, model)
        if microphone:
            _listen(client, name, device, language, as_json=as_json)
        for path in files or ():
            typer.echo(_written(client, name, path, language, None if as_json else form))


def _written(
    client: Client, model: str, path: Path, language: str | None, form: TextForm | None
) -> str:
    """Return what is said in a file; without a form as JSON, with times of words and segments."""
    create = client.transcriptions.create
    with upload_bar(path.name) as told:
        if form is not None:
            return create(
                model=model, file=path, language=language, response_format=form, on_progress=told
            ).rstrip("\n")
        found = create(
            model=model,
            file=path,
            language=language,
            response_format="verbose_json",
            timestamp_granularities=("word", "segment"),
            on_progress=told,
        )
    return json.dumps({"file": str(path), **found.model_dump(mode="json")}, ensure_ascii=False)


def _listen(
    client: Client, model: str, device: str | None, language: str | None, *, as_json: bool
) -> None:
    """Print utterances as they end; Ctrl-C ends the last one, a second Ctrl-C all."""
    try:
        microphone = Microphone(device=device)
        with (
            _interrupting(microphone.stop),
            microphone,
            client.realtime.connect(model=model, language=language) as session,
            Live(
                Text("listening; Ctrl-C ends", style="dim"), console=people, transient=True
            ) as live,
        ):
            text = ""
            for event in session.listen(microphone):
                if isinstance(event, TranscriptionDelta):
                    text += event.delta
                    live.update(Text.assemble(text, (event.revisable, "dim")))
                elif isinstance(event, TranscriptionCompleted):
                    text = ""
                    live.update("")
                    if event.transcript:
                        typer.echo(event.model_dump_json() if as_json else event.transcript)
    except (ImportError, OSError) as error:
        raise typer.BadParameter(str(error), param_hint="--microphone") from None


@contextmanager
def _interrupting(stop: Callable[[], None]) -> Iterator[None]:
    """Let the first Ctrl-C call `stop`, and the next one interrupt as ever."""
    before = signal.getsignal(signal.SIGINT)

    def handle(*_: object) -> None:
        signal.signal(signal.SIGINT, before)
        stop()

    signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
