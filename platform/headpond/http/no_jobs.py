"""The addresses of files and batches where none are kept."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headpond.errors import NotFound
from headpond.jobs_wire import (
    BATCH_PATH,
    BATCHES_PATH,
    CANCEL_PATH,
    CONTENT_PATH,
    FILE_PATH,
    FILES_PATH,
)

_PATHS = (FILES_PATH, FILE_PATH, CONTENT_PATH, BATCHES_PATH, BATCH_PATH, CANCEL_PATH)


class JobsNotConfigured(NotFound):
    """No files or batches are kept at this address: see `jobs` among the router's `args`."""

    code = "jobs_not_configured"


def no_jobs() -> list[Route]:
    """Return routes that say so."""
    return [Route(path, _refuse, methods=["GET", "POST", "DELETE"]) for path in _PATHS]


async def _refuse(_: Request) -> Response:
    raise JobsNotConfigured
