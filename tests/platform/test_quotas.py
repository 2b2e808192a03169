"""Quotas: taken when a call is admitted, settled when it is over, and told in headers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from headpond.call import Done, Ended, Output
from headpond.config_file import SettingsError
from headpond.errors import Overloaded, WorkerLost
from headpond.http.app import ASGIApp
from headpond.record import WorkloadRecord
from headpond.settings import Quota, Settings
from headpond.tenancy.quotas import Quotas, check_units
from headpond.tenancy.window import Window
from headpond.testing.asgi import AsgiRequest
from headpond.testing.clock import FakeClock
from headpond.testing.scripted import ScriptedBackend
from headpond.units import Work

MakeApp = Callable[[Settings], ASGIApp]
ADMITTED, CAME_TO = 9, 4
"""Toys: what each call may cost, and what it comes to."""


def settings(*quotas: Mapping[str, object], **more: object) -> Settings:
    return Settings.model_validate(
        {
            "keys": [
                {"key": "sk-acme", "tenant": "acme", "metrics": True},
                {"key": "sk-brook", "tenant": "brook"},
            ],
            "tenants": {"acme": {"quotas": [{"per": "30d", **quota} for quota in quotas]}},
            **more,
        }
    )


@dataclass
class Server:
    """An app whose tenant `acme` has quotas."""

    app: ASGIApp
    backend: ScriptedBackend

    async def post(
        self, key: str = "sk-acme", path: str = "/v1/toy", **body: object
    ) -> AsgiRequest:
        answered = await self.request(key, path, **body).run(self.app)
        for _ in range(5):  # what was settled with the answer is in the store soon after
            await asyncio.sleep(0)
        return answered

    def request(self, key: str = "sk-acme", path: str = "/v1/toy", **body: object) -> AsgiRequest:
        given = {"model": "org/toy-small", "text": "x", **body}
        headers = {"authorization": f"Bearer {key}"}
        return AsgiRequest(path=path, parts=[json.dumps(given).encode()], headers=headers)

    async def left(self) -> int:
        """Return how many toys are left, by a request that is no good and takes nothing."""
        return rates(await self.post(text=7))[1]

    async def metrics(self) -> str:
        headers = {"authorization": "Bearer sk-acme"}
        request = AsgiRequest(path="/metrics", method="GET", headers=headers)
        return (await request.run(self.app)).body.decode()


@pytest.fixture
def serve(make_app: MakeApp, backend: ScriptedBackend) -> Callable[..., Server]:
    work = Work(toys=CAME_TO)
    backend.steps = [[Output(0, "x"), Done(0, work), Ended(work=work)]]

    def make(*quotas: Mapping[str, object], **more: object) -> Server:
        return Server(make_app(settings(*quotas, **more)), backend)

    return make


def rates(request: AsgiRequest, unit: str = "toys") -> tuple[int, int]:
    """Return the limit and what remains of it, as an answer tells."""
    headers = request.answer_headers
    return int(headers[f"x-ratelimit-limit-{unit}"]), int(headers[f"x-ratelimit-remaining-{unit}"])


def code(request: AsgiRequest) -> str | None:
    found: str | None = json.loads(request.body)["error"]["code"]
    return found


async def test_a_call_is_charged_for_what_it_comes_to(serve: Callable[..., Server]) -> None:
    server = serve({"unit": "toys", "limit": 20})
    first, second = await server.post(), await server.post()
    assert (first.status, rates(first)) == (200, (20, 16))
    assert (second.status, rates(second)) == (200, (20, 12))


async def test_what_may_not_fit_is_refused_and_charges_nothing(
    serve: Callable[..., Server],
) -> None:
    server = serve({"unit": "toys", "limit": 12})
    await server.post()
    refused = await server.post()
    assert (refused.status, code(refused)) == (429, "rate_limit_exceeded")
    assert rates(refused) == (12, 8)
    assert int(refused.answer_headers["retry-after"]) >= 1
    assert refused.answer_headers["x-should-retry"] == "true"
    assert "8 left" in json.loads(refused.body)["error"]["message"]
    # The refused call was cancelled, and nothing of it is charged.
    assert len(server.backend.closed) == 2
    assert rates(await server.post()) == (12, 8)
    assert 'headpond_quota_refused_total{unit="toys",workload="*"} 2.0' in await server.metrics()


async def test_a_quota_that_is_used_up_refuses_before_the_body_is_read(
    serve: Callable[..., Server],
) -> None:
    server = serve({"unit": "requests", "limit": 1})
    assert rates(await server.post(), "requests") == (1, 0)
    unread = AsgiRequest(
        path="/v1/toy", parts=[b"{"], headers={"authorization": "Bearer sk-acme"}, ends=False
    )
    refused = await unread.run(server.app)
    assert (refused.status, rates(refused, "requests")) == (429, (1, 0))
    assert len(server.backend.calls) == 1


async def test_a_call_beyond_the_whole_quota_is_not_to_be_tried_again(
    serve: Callable[..., Server],
) -> None:
    server = serve({"unit": "toys", "limit": ADMITTED - 1})
    refused = await server.post()
    assert (refused.status, code(refused)) == (429, "quota_too_small")
    assert refused.answer_headers["x-should-retry"] == "false"
    assert "retry-after" not in refused.answer_headers


async def test_a_request_that_is_no_good_is_not_counted(serve: Callable[..., Server]) -> None:
    server = serve({"unit": "requests", "limit": 5})
    bad = await server.post(text=7)
    assert (bad.status, rates(bad, "requests")) == (400, (5, 5))
    server.backend.refusal = Overloaded()
    full = await server.post()
    assert (full.status, rates(full, "requests")) == (503, (5, 5))
    server.backend.refusal = None
    assert rates(await server.post(), "requests") == (5, 4)


async def test_a_call_that_is_cancelled_is_charged_for_what_ran(
    serve: Callable[..., Server],
) -> None:
    server = serve({"unit": "toys", "limit": 20})
    server.backend.steps = [[Output(0, "x")], asyncio.Event()]
    server.backend.came_to = Work(toys=2)
    request = server.request(stream=True)
    serving = asyncio.create_task(request.run(server.app))
    await request.until(1)
    assert rates(request) == (20, 11)  # what is admitted
    request.hang_up()
    await serving
    assert await server.left() == 20 - 2


async def test_nothing_is_charged_where_the_replica_was_lost(serve: Callable[..., Server]) -> None:
    server = serve({"unit": "toys", "limit": 20})
    server.backend.steps = [WorkerLost()]
    server.backend.came_to = Work()
    assert (await server.post()).status == 502
    server.backend.steps = [[Ended(work=Work(toys=1))]]
    assert rates(await server.post())[1] == 19


@pytest.mark.parametrize("count", [1, 7])
async def test_no_two_take_the_last(serve: Callable[..., Server], count: int) -> None:
    server = serve({"unit": "toys", "limit": count * ADMITTED})
    gate = asyncio.Event()
    server.backend.steps = [gate, [Ended(work=Work(toys=ADMITTED))]]
    requests = [asyncio.create_task(server.post()) for _ in range(4 * count)]
    done: set[asyncio.Task[AsgiRequest]] = set()
    while len(done) < 3 * count:
        done, _ = await asyncio.wait(requests, timeout=0.05)
    assert {task.result().status for task in done} == {429}
    gate.set()
    statuses = sorted([(await task).status for task in requests])
    assert statuses == [200] * count + [429] * 3 * count


async def test_every_quota_holds_and_the_least_is_told(serve: Callable[..., Server]) -> None:
    server = serve(
        {"unit": "toys", "limit": 100, "per": "1d"},
        {"unit": "toys", "limit": 10},
        {"unit": "requests", "limit": 10},
    )
    answer = await server.post()
    assert (rates(answer), rates(answer, "requests")) == ((10, 6), (10, 9))
    refused = await server.post()
    assert (refused.status, rates(refused), rates(refused, "requests")) == (429, (10, 6), (10, 9))


async def test_a_quota_is_of_its_workload_and_models(serve: Callable[..., Server]) -> None:
    server = serve(
        {"unit": "requests", "limit": 1, "workload": "speech"},
        {"unit": "requests", "limit": 1, "models": ["other/*"]},
        {"unit": "toys", "limit": 50, "models": ["org/*"]},
    )
    for left in (46, 42):
        answer = await server.post()
        assert (answer.status, rates(answer)) == (200, (50, left))
        assert "x-ratelimit-limit-requests" not in answer.answer_headers


async def test_tenants_have_their_own(serve: Callable[..., Server]) -> None:
    server = serve({"unit": "requests", "limit": 1})
    for _ in range(2):
        answer = await server.post("sk-brook")
        assert answer.status == 200
        assert not any(name.startswith("x-ratelimit") for name in answer.answer_headers)
    assert [(await server.post()).status for _ in range(2)] == [200, 429]


async def test_a_router_is_asked_for_a_stream_where_work_counts(
    serve: Callable[..., Server],
) -> None:
    """Of a whole answer it learns what it may cost with its end only."""
    await serve({"unit": "requests", "limit": 5}).post()
    await serve({"unit": "toys", "limit": 50}).post()
    streams = [call.stream for call in serve().backend.calls]
    assert streams == [False, True]


async def test_a_store_that_is_away_lets_calls_go_on(serve: Callable[..., Server]) -> None:
    server = serve({"unit": "requests", "limit": 1}, quota_store={"url": "redis://127.0.0.1:1/0"})
    for _ in range(3):
        answer = await server.post()
        assert answer.status == 200
        assert "x-ratelimit-limit-requests" not in answer.answer_headers
    text = await server.metrics()
    assert "headpond_quota_store_up 0.0" in text
    assert "headpond_quota_store_errors_total 0.0" not in text


async def test_a_store_that_is_away_closes_the_door_where_that_is_wanted(
    serve: Callable[..., Server],
) -> None:
    away = {"url": "redis://127.0.0.1:1/0", "when_away": "closed"}
    server = serve({"unit": "requests", "limit": 1}, quota_store=away)
    refused = await server.post()
    assert (refused.status, code(refused)) == (503, "quotas_unavailable")
    assert (await server.post("sk-brook")).status == 200
    assert [call.tenant for call in server.backend.calls] == ["brook"]


@pytest.mark.parametrize(
    ("per", "now_s", "ends_s"),
    [("1m", 119.9, 120), ("1m", 120.0, 180), ("90s", 100.0, 180), ("1d", 86_400.5, 172_800)],
)
def test_windows_begin_at_multiples_of_their_length(per: str, now_s: float, ends_s: int) -> None:
    quota = Quota(unit="toys", limit=1, per=per)
    window = Window.at("acme", quota, now_s)
    assert window.ends_s == ends_s
    assert window.key != Window.at("acme", quota, ends_s).key


def test_no_two_quotas_are_counted_as_one() -> None:
    given: list[tuple[str, dict[str, object]]] = [
        ("a/b", {"workload": "c"}),
        ("a", {"workload": "b/c"}),
        ("a", {"models": ["x,y"]}),
        ("a", {"models": ["x", "y"]}),
        ("a", {"unit": "requests"}),
        ("a", {"per": "2m"}),
    ]
    quotas = [(tenant, {"unit": "toys", "limit": 1, "per": "1m", **more}) for tenant, more in given]
    keys = {Window.at(tenant, Quota.model_validate(quota), 0.0).key for tenant, quota in quotas}
    assert len(keys) == len(given)


@pytest.mark.parametrize(
    ("quota", "field"),
    [
        ({"unit": "tokens", "workload": "toy"}, "unit"),
        ({"unit": "tokens"}, "unit"),
        ({"unit": "toys", "workload": "toi"}, "workload"),
    ],
)
def test_a_quota_that_counts_nothing_is_refused(
    record: WorkloadRecord, quota: dict[str, object], field: str
) -> None:
    good = {"unit": "requests", "limit": 1}
    check_units(settings(good, {"unit": "toys", "limit": 1, "workload": "toy"}), [record])
    with pytest.raises(SettingsError) as caught:
        check_units(settings(good, {"limit": 1, **quota}), [record])
    assert caught.value.param == f"tenants.acme.quotas.1.{field}"


@pytest.mark.parametrize(
    ("remaining_s", "text"),
    [(0.02, "20ms"), (17.25, "17.25s"), (360.0, "6m0s"), (3723.0, "1h2m3s"), (59.9999, "1m0s")],
)
async def test_resets_are_written_as_openai_does(remaining_s: float, text: str) -> None:
    daily = settings({"unit": "requests", "limit": 5, "per": "1d"})
    quotas = Quotas(daily, clock=lambda: 86_400.0 - remaining_s)
    allowance = quotas.allowance("acme", "toy")
    await allowance.look()
    assert dict(allowance.headers())[b"x-ratelimit-reset-requests"].decode() == text


def write_settings(path: Path, text: str) -> None:
    """Replace the file at once, as a mounted one is."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)


def quotas_file(limit: int, unit: str = "requests") -> str:
    quota = {"unit": unit, "limit": limit, "per": "30d"}
    return yaml.safe_dump({"tenants": {"acme": {"quotas": [quota]}}})


async def left(quotas: Quotas) -> int:
    """Return how many requests a tenant's quota has left."""
    allowance = quotas.allowance("acme", "toy")
    await allowance.look()
    return int(dict(allowance.headers())[b"x-ratelimit-remaining-requests"])


async def test_quotas_of_a_file_change_within_a_second_and_use_stays_used(tmp_path: Path) -> None:
    path, clock = tmp_path / "settings.yaml", FakeClock()
    path.write_text(quotas_file(5))
    quotas = Quotas(Settings.load(path), lambda: 1000.0, clock)
    allowance = quotas.allowance("acme", "toy")
    allowance.choose("toy")
    await allowance.take({"requests": 2})
    write_settings(path, quotas_file(9))
    assert await left(quotas) == 3
    clock.advance(1.0)
    assert await left(quotas) == 7


@pytest.mark.parametrize(
    "broken", ["tenants: [", "tenants: 7", quotas_file(0), quotas_file(3, "nothings")]
)
async def test_a_broken_file_keeps_the_quotas_of_before_and_is_counted(
    tmp_path: Path, broken: str
) -> None:
    path, clock = tmp_path / "settings.yaml", FakeClock()
    path.write_text(quotas_file(5))
    quotas = Quotas(Settings.load(path), lambda: 1000.0, clock)
    write_settings(path, broken)
    clock.advance(1.0)
    assert await left(quotas) == 5
    failures = next(each for each in quotas.collect() if each.name.endswith("file_failures"))
    assert [sample.value for sample in failures.samples] == [1.0]
    write_settings(path, quotas_file(4))
    clock.advance(1.0)
    assert await left(quotas) == 4
