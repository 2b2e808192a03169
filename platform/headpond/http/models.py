"""The models that can be asked for, as OpenAI lists them."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headpond.call import Backend, ModelCard
from headpond.errors import ModelNotFound
from headpond.http.auth import Keyring
from headpond.http.responses import json_response
from headpond.models_wire import MODELS_PATH, Model, ModelList

ONE_PATH = MODELS_PATH + "/{model:path}"


def model_of(card: ModelCard) -> Model:
    """Return a card as callers see it."""
    return Model(
        id=card.name,
        created=card.created_s,
        owned_by="headpond",
        workload=card.workload,
        bundles=card.bundles,
        limits=dict(card.limits),
    )


class Models:
    """Lists the backend's models, only those that the caller's key opens."""

    def __init__(self, backend: Backend, keyring: Keyring) -> None:
        self._backend = backend
        self._keyring = keyring

    def routes(self) -> list[Route]:
        """Return the routes of the list and of one model."""
        return [Route(MODELS_PATH, self._list), Route(ONE_PATH, self._one)]

    async def _list(self, request: Request) -> Response:
        cards = await self._seen(request)
        return json_response(ModelList(data=tuple(model_of(card) for card in cards)))

    async def _one(self, request: Request) -> Response:
        name = request.path_params["model"]
        for card in await self._seen(request):
            if card.name == name:
                return json_response(model_of(card))
        raise ModelNotFound.named(name)

    async def _seen(self, request: Request) -> Sequence[ModelCard]:
        caller = self._keyring.authenticate(dict(request.scope["headers"]), MODELS_PATH)
        return [card for card in await self._backend.models() if caller.sees(card)]
