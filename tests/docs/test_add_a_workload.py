"""`docs/add-a-workload.md` does what it says, with nothing changed in the platform."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path

import httpx2
import pytest
from playwright.async_api import expect
from pydantic import BaseModel
from typer.testing import CliRunner

from browsing import browsed, opened, receipt, served
from headpond.backend import LocalBackend
from headpond.bundle.alias import AliasTable
from headpond.bundle.loading import load_engine
from headpond.bundle.store import open_bundle
from headpond.call import Call
from headpond.cli import app as command_line
from headpond.client.async_transport import AsyncTransport
from headpond.client.config import ClientConfig
from headpond.door import Door
from headpond.engine import EngineSettings
from headpond.errors import HeadpondError, ModelNotFound
from headpond.hop import Answered, ReplicaStatus
from headpond.http.app import build_app
from headpond.lane import LaneAddress
from headpond.registry import workload
from headpond.routing import RoutedBackend
from headpond.scheduling.loop import loop_for
from headpond.settings import Settings
from headpond.telemetry.metrics import Metrics
from headpond.testing.install import declare_workload

PAGE = Path(__file__).parents[2] / "docs/add-a-workload.md"


@pytest.fixture
def workshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Write every titled block of the page to its file, and install the package."""
    for title, text in re.findall(r'```\w+ title="([^"]+)"\n(.*?)```', PAGE.read_text(), re.S):
        path = tmp_path / title
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "loud/voice.txt").write_text("loud\n")
    declare_workload(tmp_path, "shouting", "shouting.record:record")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("HEADPOND_CACHE", str(tmp_path / "cache"))
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "shouting"]:
        del sys.modules[name]


@pytest.fixture
def bundle_folder(workshop: Path) -> Path:
    """The page's bundle, locked and verified by the page's commands."""
    for command in ("lock", "verify"):
        done = CliRunner().invoke(command_line, ["bundle", command, str(workshop / "loud")])
        assert done.exit_code == 0, done.output
    return workshop / "loud"


class InProcess:
    """A model's application whose one replica lives here: no Ray between router and door."""

    def __init__(self, door: Door, backend: LocalBackend) -> None:
        self._door = door
        self._backend = backend
        self.stream = door.stream

    async def answer(self, call: Call) -> Answered | HeadpondError:
        return await self._door.answer(call, 1)

    def comes_over(self, stream: int, lane: LaneAddress) -> None:
        """Nobody stands still here."""

    async def statuses(self) -> Sequence[ReplicaStatus]:
        return [self._door.status]

    async def asleep(self) -> bool:
        return False

    async def expositions(self) -> Mapping[str, str]:
        return {"here": await self._backend.metrics()}


@pytest.fixture
async def backend(bundle_folder: Path) -> AsyncIterator[LocalBackend]:
    bundle = open_bundle(bundle_folder)
    record, manifest = workload("shouting"), bundle.manifest
    metrics = Metrics(record, bundle=manifest.ref, model="loud")
    loop = loop_for(
        record,
        load_engine(record, bundle, EngineSettings(state_bytes=2**20)),
        record.bind(manifest.model, manifest.execution.dtype),
        state_bytes=2**20,
        max_slots=4,
        bundle=manifest.ref,
        observer=metrics.observe,
    )
    loop.start()
    yield LocalBackend(
        record=record, manifest=manifest, alias="loud", loop=loop, metrics_source=metrics
    )
    await loop.stop(0.0)


@pytest.fixture(params=["direct", "routed"])
async def client(
    request: pytest.FixtureRequest, backend: LocalBackend
) -> AsyncIterator[httpx2.AsyncClient]:
    """The app in the replica, or the router's over the replica's door."""
    door = await Door.open(backend, "127.0.0.1")
    routed = RoutedBackend({"loud-app": InProcess(door, backend)}.get)
    await routed.start(AliasTable({"loud": {"loud-app": 1}}))
    behind = backend if request.param == "direct" else routed
    transport = httpx2.ASGITransport(app=build_app([backend.record], behind, Settings()))
    async with httpx2.AsyncClient(transport=transport, base_url="http://test") as opened:
        yield opened
    await routed.stop()
    await door.close()


async def test_the_workload_answers_whole_and_streamed(client: httpx2.AsyncClient) -> None:
    body = {"model": "loud", "text": "hello wide world"}
    whole = await client.post("/v1/shout", json=body)
    assert whole.json() == {"model": "loud", "text": "HELLO WIDE WORLD"}
    assert whole.headers["x-headpond-work"] == "words=3"
    streamed = await client.post("/v1/shout", json={**body, "stream": True})
    assert re.findall(r'data: \{"word":"(\w+)"\}', streamed.text) == ["HELLO", "WIDE", "WORLD"]


async def test_its_panel_is_a_tab_of_the_playground(backend: LocalBackend) -> None:
    app = build_app([backend.record], backend, Settings())
    async with served(app) as base_url, browsed() as page:
        await page.goto(base_url)
        panel = await opened(page, "Shouting")
        await panel.get_by_label("Text").fill("hello wide world")
        await panel.get_by_role("button", name="Shout").click()
        await expect(panel.get_by_role("status")).to_have_text("HELLO WIDE WORLD")
        shown = await receipt(panel)
        assert await shown.get_by_role("rowheader").all_inner_texts() == [
            *("validate", "queue", "shout", "delivery")
        ]


class Shouted(BaseModel):
    """What our client reads."""

    text: str


async def test_our_client_speaks_to_it(client: httpx2.AsyncClient) -> None:
    transport = AsyncTransport(ClientConfig(base_url="http://test"), client)
    body = {"model": "loud", "text": "hello wide world"}
    shouted = await transport.post("/v1/shout", json.dumps(body).encode(), Shouted)
    assert shouted.text == "HELLO WIDE WORLD"
    with pytest.raises(ModelNotFound):
        await transport.post("/v1/shout", b'{"model": "quiet", "text": "x"}', Shouted)


async def test_limits_metrics_and_openapi_come_from_the_record(
    client: httpx2.AsyncClient,
) -> None:
    long = await client.post("/v1/shout", json={"model": "loud", "text": "word " * 1001})
    assert long.status_code == 400
    assert long.json()["error"]["param"] == "text"
    assert "/v1/shout" in (await client.get("/openapi.json")).json()["paths"]
    assert 'workload="shouting"' in (await client.get("/metrics")).text


def test_a_broken_declaration_says_what_to_fix(workshop: Path) -> None:
    page = workshop / "shouting/record.py"
    page.write_text(page.read_text().replace('Work(words=shape["words"])', "Work()"))
    with pytest.raises(Exception, match="unit 'words' is produced by nobody"):
        workload("shouting")


def test_a_changed_artifact_is_named(bundle_folder: Path) -> None:
    (bundle_folder / "voice.txt").write_text("soft\n")
    done = CliRunner().invoke(command_line, ["bundle", "verify", str(bundle_folder)])
    assert done.exit_code == 1
    assert "voice" in done.output
