"""What Serve sees of a request, before any app does."""

from __future__ import annotations

import pytest
from starlette.types import Receive, Scope, Send

from headpond.ray_env import RAY_ENV
from headpond.serve_edge import before_serve, plain_headers

SECRET_BYTES = b"caf\xe9\xff"


async def seen_by_serve(*headers: tuple[bytes, bytes]) -> list[tuple[bytes, bytes]]:
    seen: list[tuple[bytes, bytes]] = []

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        seen.extend(scope["headers"])

    async def unused() -> None:
        raise NotImplementedError

    scope = {"type": "http", "headers": list(headers)}
    await plain_headers(serve)(scope, unused, unused)  # type: ignore[arg-type]
    assert scope["headers"] == list(headers)
    return seen


@pytest.mark.parametrize("given", [b"r-7", b"a.b:c/d"])
async def test_a_plain_request_identifier_stays(given: bytes) -> None:
    assert (b"x-request-id", given) in await seen_by_serve((b"x-request-id", given))


@pytest.mark.parametrize("given", [SECRET_BYTES, b"", b"a b", b"x" * 129])
async def test_another_one_is_replaced_by_a_new_one(given: bytes) -> None:
    (pair,) = await seen_by_serve((b"x-request-id", given))
    assert pair[0] == b"x-request-id"
    assert pair[1].decode("ascii").isalnum()


async def test_what_serve_would_act_on_is_taken_away() -> None:
    kept = (b"authorization", SECRET_BYTES)
    steering = [
        (b"x-session-id", SECRET_BYTES),
        (b"x-request-timeout-seconds", b"0.001"),
        (b"x-request-disconnect-disabled", b"?1"),
        (b"serve_multiplexed_model_id", SECRET_BYTES),
    ]
    assert [name for name, _ in await seen_by_serve(kept, *steering)] == [
        b"authorization",
        b"x-request-id",
    ]
    assert (b"x-session-id", b"s") in await seen_by_serve((b"x-session-id", b"s"))


def test_serve_takes_it_by_the_address_in_the_environment() -> None:
    module, _, name = RAY_ENV["RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH"].partition(":")
    assert (before_serve.__module__, before_serve.__name__) == (module, name)
