"""The address of usage where none is kept."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headpond.errors import NotFound
from headpond.usage_wire import USAGE_PATH


class UsageNotConfigured(NotFound):
    """No usage is shown at this address: see `usage` among the router's `settings`."""

    code = "usage_not_configured"


def no_usage() -> Route:
    """Return a route that says so."""
    return Route(USAGE_PATH, _refuse)


async def _refuse(_: Request) -> Response:
    raise UsageNotConfigured
