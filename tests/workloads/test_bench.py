"""`headpond bench`, against the HTTP layer of workloads whose engine is a script."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from exchanges import MODEL, app_over, scripted, serving
from headpond.cli import app
from headpond.cli.bench_figures import Spread, figures
from headpond.cli.bench_load import Seen
from headpond.client.catalogue import LatencyBounds
from headpond.errors import Overloaded
from headpond.record import WorkloadRecord
from headpond.testing.scripted import ScriptedBackend
from headpond_workloads.embedding.items import Embedding
from headpond_workloads.embedding.record import record as embedding
from headpond_workloads.generation.items import TextDelta, TokenUsage
from headpond_workloads.generation.record import record as generation

SAID = TextDelta(
    text="hi", finish_reason="stop", usage=TokenUsage(prompt_tokens=3, completion_tokens=1)
)
VECTORS = [Embedding(vectors=struct.pack("<2f", 1.0, 2.0), dimensions=2, tokens=3)] * 2
QUICK = ("--seconds", "0.3", "--capacity", "40", "--rates", "0.5,2")


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["bench", *words])


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., ScriptedBackend]]:
    with ExitStack() as stack:

        def start(record: WorkloadRecord, *payloads: object) -> ScriptedBackend:
            backend = scripted(record, *payloads)
            url = stack.enter_context(serving(app_over(record, backend)))
            monkeypatch.setenv("HEADPOND_BASE_URL", url)
            return backend

        yield start


def test_whole_answers_are_counted(serve: Callable[..., ScriptedBackend]) -> None:
    backend = serve(embedding, *VECTORS)
    done = run("embedding", *QUICK, "--json", "--deadline-s", "9")
    assert done.exit_code == 0, done.output
    report: dict[str, Any] = json.loads(done.stdout)
    assert (report["model"], report["route"]) == (MODEL, "/v1/embeddings")
    assert (report["unit"], report["bounds"]["total_s"]) == ("input_tokens", 2.0)
    calls = 1
    for rate in report["rates"]:
        assert rate["good_s"] == rate["answered_s"] == rate["offered_s"] > 0
        assert (rate["refused"], rate["failed"], rate["errors"]) == (0, 0, {})
        assert list(rate["phases_ms"]) == [phase.name for phase in embedding.phases]
        calls += round(rate["offered_s"] * 0.3)
    assert len(backend.calls) == calls
    assert all(call.deadline_s <= 9 for call in backend.calls)


def test_streams_are_asked_for_where_the_record_bounds_them(
    serve: Callable[..., ScriptedBackend],
) -> None:
    backend = serve(generation, SAID)
    done = run("generation", *QUICK)
    assert done.exit_code == 0, done.output
    assert all(call.stream for call in backend.calls)
    assert "first ms" in done.stdout
    assert "prefill" in done.stdout
    assert "(offered/s)" in done.stdout


def test_the_capacity_is_measured(serve: Callable[..., ScriptedBackend], tmp_path: Path) -> None:
    backend = serve(embedding, *VECTORS)
    path = tmp_path / "bodies.jsonl"
    path.write_text('{"input": ["one", "two"]}\n\n{"input": ["three", "four"]}\n')
    words = ("--seconds", "0.2", "--callers", "2", "--rates", "0.1", "--json", "--bodies")
    done = run("embedding", *words, str(path))
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["capacity_s"] > 0
    first = [call.items[0] for call in backend.calls[:2]]
    assert [getattr(item, "text", None) for item in first] == ["one", "three"]


def test_a_server_that_refuses_is_told_of(serve: Callable[..., ScriptedBackend]) -> None:
    backend = serve(embedding, *VECTORS)
    backend.refusal = Overloaded("come later")
    done = run("embedding", *QUICK)
    assert done.exit_code == 1
    assert "come later" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("unheard-of",),
        ("embedding", "--route", "/v1/none"),
        ("embedding", "--rates", "0"),
        ("embedding", "--rates", "many"),
        ("embedding", "--bodies", __file__),
        ("embedding", "--seconds", "0"),
    ],
)
def test_wrong_usage(serve: Callable[..., ScriptedBackend], words: tuple[str, ...]) -> None:
    serve(embedding, *VECTORS)
    assert run(*words).exit_code == 2


def test_what_counts() -> None:
    good = Seen(status=200, first_s=0.5, total_s=1.5, outputs=11, work={"tokens": 7})
    slow = Seen(status=200, first_s=2.5, total_s=2.6, outputs=2, work={"tokens": 7})
    jerky = Seen(status=200, first_s=0.5, total_s=3.5, outputs=11, work={"tokens": 7})
    refused = Seen(status=503, error="full", total_s=0.1)
    broken = Seen(status=200, error="cut", total_s=0.1)
    bounds = LatencyBounds(first_output_s=2.0, gap_s=0.2)
    found = figures([good, slow, jerky, refused, refused, broken], 2.0, bounds, "tokens")
    assert (found.offered_s, found.answered_s, found.good_s) == (3.0, 1.5, 0.5)
    assert (found.good_work_s, found.refused, found.failed) == (3.5, 2, 1)
    assert found.errors == {"full": 2, "cut": 1}
    assert found.total_ms == Spread(p50=2600.0, p95=3500.0)
    assert Spread.of([]) == Spread(p50=0.0, p95=0.0)
