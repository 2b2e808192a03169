"""Usage: counted where calls end, written by many processes, and shown to whom it concerns."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from headpond.call import Call
from headpond.http.app import ASGIApp, build_app
from headpond.http.usage import UsageDoor
from headpond.jobs.database import Database
from headpond.jobs.errors import JobsUnavailable
from headpond.record import WorkloadRecord
from headpond.settings import Settings, UsageSettings
from headpond.telemetry.report import CallReport
from headpond.testing.clock import FakeClock
from headpond.testing.scripted import ScriptedBackend
from headpond.units import Work
from headpond.usage.ledger import Ledger
from headpond.usage.recorder import Recorder
from headpond.usage.table import DAY_S

NOON_S = 1_780_315_200  # 2026-06-01T12:00:00Z
BUNDLE = "toy-small@1+0123456789ab"


def report(
    tenant: str = "acme", outcome: str = "ok", model: str = "toy", **work: int
) -> CallReport:
    call = Call(
        request_id="r", tenant=tenant, workload="toy", model=model, items=("x",), deadline_s=1.0
    )
    return CallReport(
        call=call,
        outcome=outcome,
        work=Work(**work),
        phases_s={},
        first_output_s=None,
        gap_s=None,
        total_s=1.0,
    )


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOON_S)


@pytest.fixture
def settings(tmp_path: Path) -> UsageSettings:
    return UsageSettings(url=f"sqlite:///{tmp_path}/usage.db", write_s=3600)


@pytest.fixture
def ledger(clock: FakeClock) -> Ledger:
    return Ledger(BUNDLE, clock)


@pytest.fixture
async def recorder(settings: UsageSettings, ledger: Ledger) -> AsyncIterator[Recorder]:
    recorder = Recorder(settings, ledger)
    await recorder.start()
    yield recorder
    await recorder.stop()


@pytest.fixture
def app(record: WorkloadRecord, backend: ScriptedBackend, settings: UsageSettings) -> ASGIApp:
    keys = [
        {"key": "sk-acme", "tenant": "acme"},
        {"key": "sk-admin", "tenant": "ops", "admin": True},
        {"key": "sk-scraper", "tenant": "ops", "metrics": True},
    ]
    allowed = Settings.model_validate({"keys": keys})
    return build_app([record], backend, allowed, usage=UsageDoor(settings))


async def ask(app: ASGIApp, key: str = "sk-acme", **query: str) -> tuple[int, dict[str, Any]]:
    """Ask for the usage of that day, unless the query says otherwise."""
    given = {"start": "2026-06-01", "end": "2026-06-02", **query}
    status, body = 0, b""

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Mapping[str, Any]) -> None:
        nonlocal status, body
        status = message.get("status", status)
        body += message.get("body", b"")

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/v1/usage",
        "root_path": "",
        "query_string": urlencode(given).encode(),
        "headers": [(b"authorization", f"Bearer {key}".encode())],
    }
    await app(scope, receive, send)
    return status, json.loads(body)


async def rows(app: ASGIApp, *names: str, key: str = "sk-acme", **query: str) -> list[list[Any]]:
    """Return the columns of each row that are named, and the unit and amount."""
    status, found = await ask(app, key, group_by=",".join(names), **query)
    assert status == 200, found
    return [[row[name] for name in (*names, "unit", "amount")] for row in found["data"]]


async def test_calls_are_counted_by_what_became_of_them(
    app: ASGIApp, ledger: Ledger, recorder: Recorder
) -> None:
    for each in (
        report(toys=3),
        report(toys=4),
        report(outcome="request_cancelled", toys=2),
        report(outcome="overloaded"),
        report("brook", toys=50),
    ):
        ledger.observe(each)
    await recorder.write()
    assert await rows(app, "outcome") == [
        ["ok", "requests", 2],
        ["ok", "toys", 7],
        ["overloaded", "requests", 1],
        ["request_cancelled", "requests", 1],
        ["request_cancelled", "toys", 2],
    ]
    assert await rows(app, "workload", "model", "bundle") == [
        ["toy", "toy", BUNDLE, "requests", 4],
        ["toy", "toy", BUNDLE, "toys", 9],
    ]


async def test_writing_again_and_again_counts_nothing_twice(
    app: ASGIApp, ledger: Ledger, recorder: Recorder
) -> None:
    for amount in (1, 2):
        ledger.observe(report(toys=amount))
        for _ in range(2):
            await recorder.write()
    assert await rows(app) == [["requests", 2], ["toys", 3]]


async def test_many_processes_add_up(
    app: ASGIApp, settings: UsageSettings, clock: FakeClock
) -> None:
    for amount in (1, 10, 100):
        ledger = Ledger(BUNDLE, clock)
        recorder = Recorder(settings, ledger)
        await recorder.start()
        ledger.observe(report(toys=amount))
        await recorder.stop()
    assert await rows(app) == [["requests", 3], ["toys", 111]]


async def test_hours_and_days_are_told_apart(
    app: ASGIApp, ledger: Ledger, recorder: Recorder, clock: FakeClock
) -> None:
    for _ in range(3):
        ledger.observe(report(toys=1))
        await recorder.write()
        clock.advance(3600.0)
    counted = [
        [NOON_S + 3600 * hour, unit, 1] for hour in range(3) for unit in ("requests", "toys")
    ]
    found = (await ask(app, group_by="hour"))[1]["data"]
    assert [[row["start"], row["unit"], row["amount"]] for row in found] == counted
    found = (await ask(app, group_by="day"))[1]["data"]
    midnight_s = NOON_S - 12 * 3600
    assert [(row["start"], row["amount"]) for row in found] == [(midnight_s, 3)] * 2
    only = await rows(app, start=f"{NOON_S + 3600}", end="2026-06-01T14:00:00Z")
    assert only == [["requests", 1], ["toys", 1]]


async def test_a_key_sees_its_tenant_and_an_admin_sees_all(
    app: ASGIApp, ledger: Ledger, recorder: Recorder
) -> None:
    ledger.observe(report("acme", toys=1))
    ledger.observe(report("brook", toys=2))
    await recorder.write()
    acme = [["acme", "requests", 1], ["acme", "toys", 1]]
    brook = [["brook", "requests", 1], ["brook", "toys", 2]]
    assert await rows(app, "tenant") == acme
    assert await rows(app, "tenant", tenant="acme") == acme
    assert await rows(app, "tenant", key="sk-admin") == acme + brook
    assert await rows(app, "tenant", key="sk-admin", tenant="brook") == brook
    assert await rows(app, "tenant", key="sk-scraper") == []
    status, refused = await ask(app, tenant="brook")
    assert (status, refused["error"]["param"]) == (403, "tenant")


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ({"start": "yesterday"}, "start"),
        ({"start": "-1"}, "start"),
        ({"end": "9" * 20}, "end"),
        ({"start": "2026-06-02"}, "start"),
        ({"group_by": "tenant,key"}, "group_by"),
        ({"group_by": "hour,day"}, "group_by"),
    ],
)
async def test_a_bad_query_is_told_by_its_parameter(
    app: ASGIApp, query: dict[str, str], param: str
) -> None:
    status, refused = await ask(app, **query)
    assert (status, refused["error"]["param"]) == (400, param)


async def test_without_a_database_there_is_no_usage(
    record: WorkloadRecord, backend: ScriptedBackend
) -> None:
    status, refused = await ask(build_app([record], backend, Settings()))
    assert (status, refused["error"]["code"]) == (404, "usage_not_configured")


async def test_totals_wait_while_the_database_is_away(
    app: ASGIApp,
    ledger: Ledger,
    recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def away(*_: object) -> None:
        raise JobsUnavailable

    ledger.observe(report(toys=1))
    with monkeypatch.context() as patch:
        patch.setattr(Database, "write", away)
        await recorder.write()
    ledger.observe(report(toys=2))
    await recorder.write()
    assert await rows(app) == [["requests", 2], ["toys", 3]]


async def test_what_is_older_than_it_is_kept_is_deleted(
    app: ASGIApp, settings: UsageSettings
) -> None:
    now_s = int(time.time())
    clock = FakeClock(now_s - 4 * DAY_S)
    ledger = Ledger(BUNDLE, clock)
    recorder = Recorder(settings.model_copy(update={"keep_days": 2}), ledger)
    for age_days in (4, 3, 1, 0):
        clock.advance(now_s - age_days * DAY_S - clock())
        ledger.observe(report(toys=1))
    await recorder.write()
    days = {"start": str(now_s - 5 * DAY_S), "end": str(now_s + DAY_S)}
    assert await rows(app, **days) == [["requests", 4], ["toys", 4]]
    await recorder.tidy()
    await recorder.stop()
    assert await rows(app, **days) == [["requests", 2], ["toys", 2]]
    assert await rows(app, **{**days, "end": str(now_s - 2 * DAY_S)}) == []


async def test_all_is_kept_where_nothing_else_is_said(
    app: ASGIApp, ledger: Ledger, recorder: Recorder
) -> None:
    ledger.observe(report(toys=1))  # of months ago
    await recorder.write()
    await recorder.tidy()
    assert await rows(app) == [["requests", 1], ["toys", 1]]


def test_hours_that_are_written_are_forgotten(ledger: Ledger, clock: FakeClock) -> None:
    ledger.observe(report(toys=1))
    changes = ledger.changes()
    ledger.observe(report(toys=1))
    ledger.written(changes)
    assert sum(ledger.changes().values()) == 4  # it went on while that was written
    clock.advance(3600.0)
    ledger.written(ledger.changes())
    assert ledger.changes() == {}
    ledger.observe(report(toys=5))
    assert sum(ledger.changes().values()) == 6
