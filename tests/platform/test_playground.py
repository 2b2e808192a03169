"""The playground as a browser asks for it: the page, its files, and panels of workloads."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urljoin

import httpx2
import pytest

from headpond.errors import DeclarationError
from headpond.http.app import build_app
from headpond.registry import workloads
from headpond.settings import Settings
from headpond.testing.talking import talking_record
from talks import HeldBackend

KEYS = Settings.model_validate({"keys": [{"key": "sk-one"}]})


@pytest.fixture
async def client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[httpx2.AsyncClient]:
    panel = tmp_path / "toy_panel"
    (panel / "parts").mkdir(parents=True)
    (panel / "panel.js").write_text("export function mount() {}\n")
    (panel / "parts/look.css").write_text("p {}\n")
    (panel / "secret.py").write_text("raise SystemExit\n")
    monkeypatch.syspath_prepend(tmp_path)
    record = replace(talking_record(), panel="toy_panel")
    transport = httpx2.ASGITransport(app=build_app([record], HeldBackend(), KEYS))
    async with httpx2.AsyncClient(transport=transport, base_url="http://test") as opened:
        yield opened


async def test_the_page_is_open_and_takes_nothing_from_elsewhere(
    client: httpx2.AsyncClient,
) -> None:
    page = await client.get("/playground")
    assert (await client.get("/")).content == page.content
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    policy = dict(
        each.strip().split(" ", 1) for each in page.headers["content-security-policy"].split(";")
    )
    assert policy["default-src"] == "'none'"
    assert {policy[f"{name}-src"] for name in ("script", "style", "connect")} == {"'self'"}
    assert (policy["img-src"], policy["trusted-types"]) == ("'self' blob:", "'none'")
    found = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert found
    for address in found:
        file = await client.get(f"/{address}")
        assert file.status_code == 200, address
        assert file.headers["x-content-type-options"] == "nosniff"
    assert not re.search(r"<script(?![^>]*src)|<style|\son\w+=|style=", page.text)


async def test_every_module_finds_what_it_imports() -> None:
    records = tuple(workloads().values())
    transport = httpx2.ASGITransport(app=build_app(records, HeldBackend(), Settings()))
    async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
        waiting = [
            "http://test/playground/shell.js",
            *(f"http://test/playground/{own}/{own}.js" for own in ("overview", "batches")),
            *(f"http://test/playground/panels/{each.name}/panel.js" for each in records),
        ]
        seen: set[str] = set()
        while waiting:
            address = waiting.pop()
            if address in seen:
                continue
            seen.add(address)
            module = await client.get(address)
            assert module.status_code == 200, address
            found = re.findall(r'(?:from|import\() ?"(\./[^"]+|\.\./[^"]+)"', module.text)
            waiting += [urljoin(address, each) for each in found]
        assert len(seen) > 40


async def test_panels_are_served_and_listed_with_the_records(client: httpx2.AsyncClient) -> None:
    index = await client.get("/v1/workloads", headers={"authorization": "Bearer sk-one"})
    (workload,) = index.json()["data"]
    assert workload["panel"] == "toy_panel"
    panel = await client.get(f"/playground/panels/{workload['name']}/panel.js")
    assert panel.headers["content-type"] == "text/javascript; charset=utf-8"
    assert panel.text == "export function mount() {}\n"
    look = await client.get(f"/playground/panels/{workload['name']}/parts/look.css")
    assert look.text == "p {}\n"


@pytest.mark.parametrize(
    "path", ["panels/listening/secret.py", "../http/app.py", "%2e%2e/assets.py", "nothing", ""]
)
async def test_nothing_else_is_served(client: httpx2.AsyncClient, path: str) -> None:
    answer = await client.get(f"/playground/{path}")
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "not_found"


async def test_the_page_is_told_what_it_can_not_ask_without_a_key(
    client: httpx2.AsyncClient,
) -> None:
    told = await client.get("/playground/server.json")
    assert told.headers["content-type"] == "application/json"
    assert told.json() == {"secured": True, "jobs": False}


async def test_what_a_browser_has_is_not_sent_again(client: httpx2.AsyncClient) -> None:
    page = await client.get("/playground")
    again = await client.get("/playground", headers={"if-none-match": page.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    other = await client.get("/playground/shell.js", headers={"if-none-match": "nonsense"})
    assert other.status_code == 200


@pytest.mark.parametrize("panel", ["headpond.playground.static", "no_such.package"])
def test_a_panel_that_is_not_there_is_named(panel: str) -> None:
    record = replace(talking_record(), panel=panel)
    with pytest.raises(DeclarationError, match=re.escape(panel)):
        build_app([record], HeldBackend(), KEYS)
