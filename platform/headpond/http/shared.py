"""A route that several workloads declare: the model that is asked for decides."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.types import Receive, Scope, Send

from headpond.call import Backend
from headpond.dialect import Route
from headpond.http.endpoint import Endpoint


def can_be_shared(route: Route) -> bool:
    """Say whether a request on a route tells its model before the body is read."""
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
        """Serve one request; where no workload is found, the first one says what is wrong."""
        model: str | None = scope.get("path_params", {}).get("model")
        first = next(iter(self._endpoints.values()))
        await self._endpoints.get(self._workload(model) or "", first)(scope, receive, send)

    def _workload(self, model: str | None) -> str | None:
        if model is not None:
            return self._backend.workload_of(model)
        served = [name for name in self._endpoints if self._backend.only_model(name) is not None]
        return served[0] if len(served) == 1 else None
