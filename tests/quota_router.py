"""A router's HTTP layer in a process of its own: many calls of one tenant at once.

Reads one line when it is to begin, and writes how many answers had each status.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter

import structlog

from headpond.call import Accepted, Done, Ended, ModelCard, Output
from headpond.http.app import ASGIApp, build_app
from headpond.settings import Settings
from headpond.testing.asgi import AsgiRequest
from headpond.testing.echo import record
from headpond.testing.scripted import ScriptedBackend
from headpond.units import Work

BUNDLE = "echo@1+0123456789ab"
COST = Work(input_bytes=5, output_chunks=5)


def router(url: str, limit: int, came_to: Work) -> ASGIApp:
    """Return an app whose public tenant may have `limit` chunks an hour or so."""
    quota = {"workload": "echo", "unit": "output_chunks", "limit": limit, "per": "365d"}
    settings = {
        "tenants": {"public": {"quotas": [quota]}},
        "quota_store": {"url": url, "timeout_s": 60},
    }
    card = ModelCard(name="echo", workload="echo", bundles=(BUNDLE,), created_s=0, limits={})
    backend = ScriptedBackend(
        accepted=Accepted(bundle=BUNDLE, model="echo", work=COST),
        cards=[card],
        steps=[[Output(0, "hello"), Done(0, came_to), Ended(work=came_to)]],
    )
    return build_app([record], backend, Settings.read(settings))


async def post(app: ASGIApp) -> AsgiRequest:
    """Send one call."""
    body = json.dumps({"model": "echo", "text": "hello", "chunks": 5}).encode()
    return await AsgiRequest(path="/v1/echo", parts=[body]).run(app)


async def main(url: str, limit: int, calls: int) -> None:
    """Send all calls at once."""
    app = router(url, limit, COST)
    await asyncio.to_thread(sys.stdin.readline)
    answers = await asyncio.gather(*(post(app) for _ in range(calls)))
    print(json.dumps(Counter(answer.status for answer in answers)))


if __name__ == "__main__":
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
