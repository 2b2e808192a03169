"""A route that several workloads declare: the model that is asked for decides."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.types import Receive, Scope, Send

from headpond.call import Backend
from headpond.dialect import Route
from headpond.errors import InvalidRequest, ModelNotFound
from headpond.http.endpoint import Endpoint
from headpond.http.stray import SERVED, path_params


def can_be_shared(route: Route) -> bool:
    """Say whether a request on a route tells its model before the body is read."""
    if route.conversation is not None:
        return False
    return route.method == "GET" or "{model}" in route.path


class SharedEndpoint:
    """Hands each request to the endpoint of the workload that its model serves."""

    def __init__(self, endpoints: Sequence[Endpoint], backend: Backend) -> None:
        """Stand before the endpoints of one method and path.

        Args:
            endpoints: One for each workload that declares the route.
            backend: Knows which workload a model serves.
        """
        self._endpoints = {endpoint.workload: endpoint for endpoint in endpoints}
        self._backend = backend

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; what no workload here can answer is refused as the first one would."""
        params = path_params(scope)
        model = params.get("model") or params.get(SERVED)
        first = next(iter(self._endpoints.values()))
        if model is None:
            await self._unnamed(scope, receive, send)
            return
        workload = self._backend.workload_of(model)
        endpoint = self._endpoints.get(workload or "")
        if endpoint is not None:
            await endpoint(scope, receive, send)
        elif workload is None:
            await first.refuse(scope, send, ModelNotFound.named(model))
        else:
            problem = f"serves {workload}, which has no such route"
            await first.refuse(scope, send, ModelNotFound.named(model, problem))

    async def _unnamed(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request that names no model, where only one can be meant."""
        cards = await self._backend.models()
        meant = [
            self._endpoints[card.workload] for card in cards if card.workload in self._endpoints
        ]
        first = next(iter(self._endpoints.values()))
        if len(meant) > 1:
            text = "Several models are served here; name one, as in `?model=name`."
            await first.refuse(scope, send, InvalidRequest(text, param="model"))
        else:
            await (meant or [first])[0](scope, receive, send)
