"""What Serve's own edge already does, taken off the app behind it."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_REQUEST_ID = b"x-request-id"


def behind_serve(app: ASGIApp) -> ASGIApp:
    """Leave `x-request-id` to Serve, which makes or echoes it on every answer itself."""

    async def edge(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_once(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = message["headers"]
                message["headers"] = [pair for pair in headers if pair[0] != _REQUEST_ID]
            await send(message)

        await app(scope, receive, send_once)

    return edge
