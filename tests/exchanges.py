"""Dialects without an engine: bodies in, scripted results out."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from socket import create_server
from typing import Any

import uvicorn

from headpond.call import Accepted, Done, Ended, Event, ModelCard, Output
from headpond.dialect import Exchange, Heading, Incoming, ItemEvent, Route, rendered
from headpond.http.app import ASGIApp, build_app
from headpond.record import WorkloadRecord
from headpond.settings import Settings
from headpond.testing.asgi import AsgiRequest
from headpond.testing.scripted import ScriptedBackend
from headpond.units import Work

MODEL = "pond"
BUNDLE = "pond@1+0123456789ab"
HEADING = Heading(request_id="r-1", created_s=1, model=MODEL, fingerprint=BUNDLE)


def route_of(record: WorkloadRecord, path: str) -> Route:
    """Return a record's route."""
    return next(route for route in record.routes if route.path == path)


def read(record: WorkloadRecord, path: str, **fields: object) -> Exchange:
    """Read a JSON body as a route does."""
    body = json.dumps(fields).encode() if fields else b""
    return route_of(record, path).read(Incoming(body=body))


def events(*payloads: object) -> list[ItemEvent]:
    """Return what a call gives whose items come to these, the last one first."""
    found: list[ItemEvent] = []
    for item, payload in reversed(list(enumerate(payloads))):
        found += [Output(item, payload), Done(item, Work(input_tokens=1))]
    return found


def answer(exchange: Exchange, *payloads: object) -> Any:
    """Return the JSON of the answer to an exchange whose items come to these."""
    assert len(exchange.ask().items) == len(payloads)
    body = rendered(exchange.body(HEADING, events(*payloads), Work()))
    assert body.media_type == "application/json"
    return json.loads(body.content, parse_constant=refuse_constant)


def refuse_constant(name: str) -> None:
    """Refuse NaN and infinity, which JSON does not know."""
    raise AssertionError(f"{name} is no JSON")


def scripted(record: WorkloadRecord, *payloads: object) -> ScriptedBackend:
    """Return a backend whose every call comes to these."""
    return scripted_events(record, [*events(*payloads), Ended(Work(input_tokens=len(payloads)))])


def scripted_events(record: WorkloadRecord, step: Sequence[Event]) -> ScriptedBackend:
    """Return a backend whose every call gives these events."""
    card = ModelCard(name=MODEL, workload=record.name, bundles=(BUNDLE,), created_s=5, limits={})
    accepted = Accepted(bundle=BUNDLE, model=MODEL, work=Work(input_tokens=9))
    return ScriptedBackend(accepted=accepted, cards=[card], steps=[step])


def app_over(record: WorkloadRecord, backend: ScriptedBackend) -> ASGIApp:
    """Return the app of one record."""
    return build_app([record], backend, Settings())


@contextmanager
def serving(app: ASGIApp) -> Iterator[str]:
    """Serve an app on a free port, and yield its base URL."""
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
    with create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


async def post(app: ASGIApp, path: str, **fields: object) -> tuple[int, Any]:
    """Return the status and the JSON that a body is answered with."""
    request = await AsgiRequest(path=path, parts=[json.dumps(fields).encode()]).run(app)
    return request.status, json.loads(request.body)


async def get(app: ASGIApp, path: str) -> tuple[int, Any]:
    """Return the status and the JSON of a GET."""
    request = await AsgiRequest(path=path, method="GET").run(app)
    return request.status, json.loads(request.body)
