"""Tenants on a running platform: what cancelled calls are charged, and what usage tells."""

from __future__ import annotations

import time
from collections.abc import Mapping

import httpx2
import pytest

from headpond import Client
from headpond.usage_wire import UsageReport
from testbed import KEY, OTHER_KEY, QUOTA, QUOTA_KEY, Platform

pytestmark = pytest.mark.e2e

CHUNKS = 400
WAIT_S = 20.0


def auth(key: str) -> Mapping[str, str]:
    return {"authorization": f"Bearer {key}"}


def left(platform: Platform) -> int:
    """Return what is left of the quota; a request that is no good takes nothing."""
    url = f"{platform.base_url}/v1/echo"
    answer = httpx2.post(url, json={"model": "echo"}, headers=auth(QUOTA_KEY), timeout=10)
    assert answer.status_code == 400
    return int(answer.headers["x-ratelimit-remaining-output-chunks"])


def usage_of(base_url: str, key: str) -> UsageReport:
    with Client(base_url=base_url, api_key=key) as client:
        return client.usage.retrieve(group_by=["tenant", "workload", "outcome"])


def test_a_routed_stream_that_is_cancelled_is_charged_for_what_ran(platform: Platform) -> None:
    before = left(platform)
    body = {"model": "echo", "text": "x" * CHUNKS, "chunks": CHUNKS, "stream": True}
    with httpx2.stream(
        "POST", f"{platform.base_url}/v1/echo", json=body, headers=auth(QUOTA_KEY), timeout=10
    ) as stream:
        assert stream.headers["x-ratelimit-limit-output-chunks"] == str(QUOTA)
        assert stream.headers["x-ratelimit-remaining-output-chunks"] == str(before - CHUNKS)
        assert left(platform) <= before - CHUNKS
        next(stream.iter_raw())
    until = time.monotonic() + WAIT_S
    while left(platform) <= before - CHUNKS and time.monotonic() < until:
        time.sleep(0.1)
    charged = before - left(platform)
    assert 1 <= charged < CHUNKS
    report = usage_of(platform.base_url, QUOTA_KEY)
    while not any(row.outcome == "request_cancelled" for row in report.data):
        assert time.monotonic() < until
        time.sleep(0.1)
        report = usage_of(platform.base_url, QUOTA_KEY)
    (ran,) = [
        row.amount
        for row in report.data
        if (row.outcome, row.unit) == ("request_cancelled", "output_chunks")
    ]
    assert ran == charged


def test_what_may_not_fit_is_refused(platform: Platform) -> None:
    body = {"model": "echo", "text": "x" * 2 * QUOTA, "chunks": QUOTA + 1}
    url = f"{platform.base_url}/v1/echo"
    answer = httpx2.post(url, json=body, headers=auth(QUOTA_KEY), timeout=10)
    assert (answer.status_code, answer.json()["error"]["code"]) == (429, "quota_too_small")


@pytest.mark.parametrize("door", ["router", "direct"])
def test_both_doors_are_counted_for_their_tenant_only(platform: Platform, door: str) -> None:
    base = platform.base_url if door == "router" else platform.direct("echo")

    def counted() -> int:
        rows = usage_of(platform.base_url, OTHER_KEY).data
        assert {row.tenant for row in rows} <= {"two"}
        return sum(
            row.amount for row in rows if (row.workload, row.unit) == ("echo", "input_bytes")
        )

    before, until = counted(), time.monotonic() + WAIT_S
    body = {"model": "echo", "text": "four"}
    httpx2.post(
        f"{base}/v1/echo", json=body, headers=auth(OTHER_KEY), timeout=10
    ).raise_for_status()
    while counted() != before + 4:
        assert time.monotonic() < until
        time.sleep(0.1)
    tenants = {row.tenant for row in usage_of(platform.base_url, KEY).data}
    assert "two" in tenants
