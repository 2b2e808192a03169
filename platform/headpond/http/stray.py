"""What was meant for a model's own replicas, and reaches the router while there are none."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from urllib.parse import parse_qs

from starlette.types import ASGIApp, Receive, Scope, Send

SERVED = "served"
"""The path parameter that holds the alias of the prefix, or the model of the query."""

_PREFIX = re.compile(r"/models/([^/]+)(?=/)")


def path_params(scope: Scope) -> Mapping[str, str]:
    """Return the parameters of a path; of a GET that names no model in it, the query's too."""
    params: Mapping[str, str] = scope.get("path_params", {})
    if scope["method"] != "GET" or SERVED in params or "model" in params:
        return params
    asked = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("model")
    return {**params, SERVED: asked[0]} if asked else params


def with_strays(app: ASGIApp, knows: Callable[[str], bool]) -> ASGIApp:
    """Serve `/models/<alias>/...` too, as if it were asked for without that prefix.

    The proxy sends such requests to the router while the replicas of that application are
    being replaced. They are then served by the successor, or refused as not ready, where
    they would get a 404 that nobody repeats.

    Args:
        app: The router's.
        knows: Whether there is such an alias.
    """

    async def strays(scope: Scope, receive: Receive, send: Send) -> None:
        root: str = scope.get("root_path", "")
        path: str = scope.get("path", "")
        found = _PREFIX.match(path.removeprefix(root)) if scope["type"] != "lifespan" else None
        if found is not None and knows(found[1]):
            params = {**scope.get("path_params", {}), SERVED: found[1]}
            scope = {**scope, "root_path": root + found[0], "path_params": params}
        await app(scope, receive, send)

    return strays
