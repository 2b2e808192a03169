"""The playground's routes: the shell, and the panels that workloads bring for it.

The page holds no data: what it shows it asks of the API, by the key that its user enters. Its
addresses are relative, so it is at home in the router and below a model's own prefix.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headpond.errors import DeclarationError, NotFound
from headpond.playground.assets import Asset, assets_of
from headpond.record import WorkloadRecord

HOME_PATH, PLAYGROUND_PATH = "/", "/playground"

_SHELL, _ENTRY, _SERVER = "index.html", "panel.js", "server.json"

_HEADERS = {
    # Nothing but what is served here, and pictures that panels were answered with. What a panel
    # shows is elements and text: browsers that know trusted types refuse markup from strings.
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; "
        "img-src 'self' blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "permissions-policy": "microphone=(self), camera=(), geolocation=()",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-cache",
}


class Playground:
    """Serves the page, without a key: it shows nothing of its own."""

    def __init__(self, records: Sequence[WorkloadRecord], *, secured: bool, jobs: bool) -> None:
        """Read the shell, and the panel of each workload that has one.

        Args:
            records: The workloads that may be served.
            secured: Whether the API asks for a key; the page then does at once.
            jobs: Whether batches are kept here, and so have a tab.

        Raises:
            DeclarationError: A record names a panel that is not there.
        """
        self._assets = dict(assets_of("headpond.playground.static"))
        server = json.dumps({"secured": secured, "jobs": jobs}).encode()
        self._assets[_SERVER] = Asset.of(server, "application/json")
        for record in records:
            if record.panel is not None:
                panel = assets_of(record.panel)
                if _ENTRY not in panel:
                    raise DeclarationError(f"the panel {record.panel!r} holds no {_ENTRY}")
                named = {f"panels/{record.name}/{path}": each for path, each in panel.items()}
                self._assets.update(named)

    def routes(self) -> list[Route]:
        """Return the routes of the page and of its files."""
        return [
            Route(HOME_PATH, self._page),
            Route(PLAYGROUND_PATH, self._page),
            Route(PLAYGROUND_PATH + "/{name:path}", self._file),
        ]

    async def _page(self, request: Request) -> Response:
        return _answer(request, self._assets[_SHELL])

    async def _file(self, request: Request) -> Response:
        asset = self._assets.get(request.path_params["name"])
        if asset is None:
            raise NotFound
        return _answer(request, asset)


def _answer(request: Request, asset: Asset) -> Response:
    headers = {**_HEADERS, "etag": asset.etag}
    if request.headers.get("if-none-match") == asset.etag:
        return Response(status_code=304, headers=headers)
    return Response(asset.content, headers=headers, media_type=asset.media_type)
