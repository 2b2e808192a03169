"""The echo workload: bundle, engine and dialect."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from headpond.bundle.loading import load_engine
from headpond.bundle.store import open_bundle
from headpond.call import Done, Failed, Output
from headpond.dialect import Heading, Incoming, ItemEvent, rendered
from headpond.engine import EngineSettings, Quantum
from headpond.errors import BundleError, EngineFailed
from headpond.testing.echo import EchoEngine, load, record, write_echo_bundle
from headpond.testing.echo_dialect import EchoItem
from headpond.units import Work

SETTINGS = EngineSettings(state_bytes=1 << 20)
HEADING = Heading(request_id="r", created_s=0, model="echo", fingerprint="echo@1+0")


@given(st.text(max_size=40), st.integers(1, 50))
def test_the_pieces_are_the_text(text: str, chunks: int) -> None:
    engine = EchoEngine()
    slot = engine.start(engine.plan(EchoItem(text=text, chunks=chunks), "tenant"))
    pieces: list[str] = []
    for at in range(chunks):
        (progress,) = engine.step([Quantum(slot=slot, units=1)])
        pieces.extend(progress.outputs)
        finished = Work(input_bytes=len(text.encode()), output_chunks=chunks)
        assert progress.finished == (finished if at == chunks - 1 else None)
    assert "".join(pieces) == text
    assert len(pieces) == chunks
    engine.release(slot)


def test_its_bundle_opens_and_its_fixture_holds(tmp_path: Path) -> None:
    bundle = open_bundle(write_echo_bundle(tmp_path / "echo", step_ms=0.5), cache=tmp_path)
    assert bundle.manifest.ref.startswith("echo@1.0.0+")
    engine = load_engine(record, bundle, SETTINGS)
    assert engine.observe({"text": "abc", "chunks": 3}) == {"pieces": ["a", "b", "c"]}


def test_a_bad_option_or_fixture_is_named(tmp_path: Path) -> None:
    bundle = open_bundle(write_echo_bundle(tmp_path / "echo"), cache=tmp_path)
    execution = bundle.manifest.execution.model_copy(update={"options": {"step_ms": "slow"}})
    slow = replace(bundle, manifest=bundle.manifest.model_copy(update={"execution": execution}))
    with pytest.raises(BundleError, match="step_ms"):
        load(slow, SETTINGS)
    with pytest.raises(BundleError, match="gives a text"):
        load(bundle, SETTINGS).observe({"chunks": 3})


def test_a_request_is_answered_whole_or_in_pieces() -> None:
    (route,) = record.routes
    body = {"model": "echo", "text": "hello", "chunks": 2, "stream": True, "extra": 1}
    exchange = route.read(Incoming(body=json.dumps(body).encode()))
    ask = exchange.ask()
    assert (ask.model, ask.stream) == ("echo", True)
    assert ask.items == (EchoItem(text="hello", chunks=2),)
    events: list[ItemEvent] = [Output(0, "he"), Output(0, "llo"), Done(0, Work(output_chunks=2))]
    whole = rendered(exchange.body(HEADING, events, Work())).content
    assert json.loads(whole) == {"model": "echo", "text": "hello"}
    writer = exchange.stream(HEADING)
    assert [event.data for event in writer.write(events)] == ['{"text":"he"}', '{"text":"llo"}']
    assert [event.data for event in writer.close(Work())] == ["[DONE]"]


def test_a_failed_item_fails_the_answer() -> None:
    exchange = record.routes[0].read(Incoming(body=b'{"model": "echo", "text": "x"}'))
    failed: list[ItemEvent] = [Failed(0, EngineFailed())]
    with pytest.raises(EngineFailed):
        exchange.body(HEADING, failed, Work())
    with pytest.raises(EngineFailed):
        exchange.stream(HEADING).write(failed)


@pytest.mark.parametrize("chunks", [0, 4097, "many"])
def test_a_wrong_number_of_pieces_is_refused(chunks: object) -> None:
    with pytest.raises(ValidationError):
        record.routes[0].read(
            Incoming(body=json.dumps({"model": "m", "text": "", "chunks": chunks}).encode())
        )
