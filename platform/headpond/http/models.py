"""The models that can be asked for, as OpenAI lists them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headpond.call import Backend, ModelCard
from headpond.errors import ModelNotFound
from headpond.http.auth import Keyring
from headpond.http.responses import json_response

LIST_PATH = "/v1/models"
ONE_PATH = "/v1/models/{model:path}"


class ModelObject(BaseModel):
    """One model; the last three fields are additions to OpenAI's."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "headpond"
    workload: str
    bundles: tuple[str, ...]
    limits: Mapping[str, int]

    @classmethod
    def of(cls, card: ModelCard) -> ModelObject:
        """Return a card as callers see it."""
        return cls(
            id=card.name,
            created=card.created_s,
            workload=card.workload,
            bundles=card.bundles,
            limits=dict(card.limits),
        )


class ModelList(BaseModel):
    """The models a key may ask for."""

    object: Literal["list"] = "list"
    data: tuple[ModelObject, ...]


class Models:
    """Lists the backend's models, only those that the caller's key opens."""

    def __init__(self, backend: Backend, keyring: Keyring) -> None:
        self._backend = backend
        self._keyring = keyring

    def routes(self) -> list[Route]:
        """Return the routes of the list and of one model."""
        return [Route(LIST_PATH, self._list), Route(ONE_PATH, self._one)]

    async def _list(self, request: Request) -> Response:
        cards = await self._seen(request)
        return json_response(ModelList(data=tuple(ModelObject.of(card) for card in cards)))

    async def _one(self, request: Request) -> Response:
        name = request.path_params["model"]
        for card in await self._seen(request):
            if card.name == name:
                return json_response(ModelObject.of(card))
        raise ModelNotFound("The model does not exist.", param="model")

    async def _seen(self, request: Request) -> Sequence[ModelCard]:
        caller = self._keyring.authenticate(dict(request.scope["headers"]))
        return [card for card in await self._backend.models() if caller.sees(card)]
