"""Who may do what."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

import pytest

from headpond.call import Done, Ended, Output
from headpond.http.app import ASGIApp
from headpond.settings import Settings
from headpond.testing.asgi import AsgiRequest
from headpond.testing.scripted import ScriptedBackend
from headpond.units import Work

MakeApp = Callable[[Settings], ASGIApp]
NOW = datetime.now(UTC)

KEYS = Settings.model_validate(
    {
        "keys": [
            {"key": "sk-all", "tenant": "acme", "admin": True},
            {"key": "sk-scraper", "tenant": "watch", "workloads": [], "metrics": True},
            {"key": "sk-org", "tenant": "org", "models": ["org/*"]},
            {"key": "sk-other", "tenant": "other", "models": ["other/*", "none"]},
            {"key": "sk-speech", "tenant": "talk", "workloads": ["speech"]},
            {"key": "sk-old", "tenant": "old", "expires": NOW - timedelta(seconds=1)},
            {"key": "sk-new", "tenant": "new", "expires": NOW + timedelta(hours=1)},
        ]
    }
)


@pytest.fixture
def guarded(make_app: MakeApp, backend: ScriptedBackend) -> ASGIApp:
    backend.steps = [[Output(0, "x"), Done(0, Work(toys=1)), Ended(work=Work(toys=1))]]
    return make_app(KEYS)


def shown(key: str | None) -> Mapping[str, str]:
    return {} if key is None else {"authorization": f"Bearer {key}"}


async def post(app: ASGIApp, headers: Mapping[str, str]) -> AsgiRequest:
    body = json.dumps({"model": "org/toy-small", "text": "x"}).encode()
    return await AsgiRequest(path="/v1/toy", parts=[body], headers=headers).run(app)


async def get(app: ASGIApp, path: str, key: str | None) -> AsgiRequest:
    return await AsgiRequest(path=path, method="GET", headers=shown(key)).run(app)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        shown("sk-wrong"),
        shown(""),
        shown("sk-old"),
        {"authorization": "sk-all"},
        {"authorization": "Basic sk-all"},
        {"authorization": "Bearer\xa0sk-all"},
        {"x-api-key": "sk-all"},
    ],
)
async def test_without_a_valid_key_nothing_is_read(
    guarded: ASGIApp, backend: ScriptedBackend, headers: Mapping[str, str]
) -> None:
    for parts in ([b"not json"], [b" " * 3000]):
        request = await AsgiRequest(path="/v1/toy", parts=parts, headers=headers).run(guarded)
        assert request.status == 401
        error = json.loads(request.body)["error"]
        assert list(error) == ["message", "type", "param", "code"]
        assert (error["type"], error["param"], error["code"]) == (
            "invalid_request_error",
            None,
            "invalid_api_key",
        )
        assert request.answer_headers["www-authenticate"] == "Bearer"
        assert request.answer_headers["x-should-retry"] == "false"
    assert backend.calls == []


@pytest.mark.parametrize(
    ("key", "tenant"), [("sk-all", "acme"), ("sk-org", "org"), ("sk-new", "new")]
)
async def test_a_key_is_its_tenant(
    guarded: ASGIApp, backend: ScriptedBackend, key: str, tenant: str
) -> None:
    assert (await post(guarded, shown(key))).status == 200
    assert (await post(guarded, {"authorization": f"bearer  {key} "})).status == 200
    assert [call.tenant for call in backend.calls] == [tenant] * 2


@pytest.mark.parametrize(("key", "param"), [("sk-other", "model"), ("sk-speech", None)])
async def test_a_key_opens_only_what_it_names(
    guarded: ASGIApp, backend: ScriptedBackend, key: str, param: str | None
) -> None:
    request = await post(guarded, shown(key))
    assert request.status == 403
    error = json.loads(request.body)["error"]
    assert (error["code"], error["param"]) == ("permission_denied", param)
    assert backend.calls == []


@pytest.mark.parametrize(
    "path", ["/v1/models", "/v1/models/org/toy-small", "/v1/workloads", "/metrics"]
)
async def test_what_shows_data_needs_a_key(guarded: ASGIApp, path: str) -> None:
    assert (await get(guarded, path, None)).status == 401
    assert (await get(guarded, path, "sk-wrong")).status == 401
    assert (await get(guarded, path, "sk-all")).status == 200


@pytest.mark.parametrize(
    ("key", "status"), [("sk-all", 200), ("sk-scraper", 200), ("sk-org", 403), ("sk-new", 403)]
)
async def test_metrics_are_of_all_tenants_and_for_keys_that_say_so(
    guarded: ASGIApp, key: str, status: int
) -> None:
    assert (await get(guarded, "/metrics", key)).status == status


async def test_a_scraper_s_key_asks_for_no_work(guarded: ASGIApp, backend: ScriptedBackend) -> None:
    assert (await post(guarded, shown("sk-scraper"))).status == 403
    assert backend.calls == []


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/health", "/ping", "/openapi.json"])
async def test_probes_and_the_description_need_none(guarded: ASGIApp, path: str) -> None:
    assert (await get(guarded, path, None)).status == 200


async def test_metrics_can_be_opened(make_app: MakeApp) -> None:
    opened = make_app(KEYS.model_copy(update={"metrics_open": True}))
    assert (await get(opened, "/metrics", None)).status == 200


async def test_lists_show_what_the_key_opens(guarded: ASGIApp) -> None:
    for key, seen in (("sk-all", 1), ("sk-org", 1), ("sk-other", 0), ("sk-speech", 0)):
        assert len(json.loads((await get(guarded, "/v1/models", key)).body)["data"]) == seen
        one = await get(guarded, "/v1/models/org/toy-small", key)
        assert one.status == (200 if seen else 404)
    workloads = json.loads((await get(guarded, "/v1/workloads", "sk-speech")).body)
    assert workloads["data"] == []


async def test_without_keys_everybody_is_the_public_tenant(
    app: ASGIApp, backend: ScriptedBackend
) -> None:
    await post(app, {})
    await post(app, shown("sk-whatever"))
    assert [call.tenant for call in backend.calls] == ["public", "public"]
