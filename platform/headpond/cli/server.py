"""The server that a command asks about, and what it answers to operators."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import httpx2

from headpond.client.config import ClientConfig
from headpond.errors import HeadpondError, NotReady
from headpond.models_wire import MODELS_PATH, Model, ModelList
from headpond.telemetry.scrape import Scrape

_TIMEOUT_S = 10.0


class Server:
    """A running platform, as an operator asks it."""

    def __init__(self, http: httpx2.Client) -> None:
        """Ask through a client that has the address and the key."""
        self._http = http

    def scrape(self) -> Scrape:
        """Read the metrics.

        Raises:
            HeadpondError: They can't be had.
        """
        answer = self._get("/metrics")
        _check(answer)
        return Scrape.parse(answer.text, time.monotonic())

    def models(self) -> tuple[Model, ...]:
        """Return the models that the key opens.

        Raises:
            HeadpondError: They can't be had.
        """
        answer = self._get(MODELS_PATH)
        _check(answer)
        return ModelList.model_validate_json(answer.content).data

    def not_ready(self) -> Mapping[str, str]:
        """Return the models that can't serve, each with the reason.

        Raises:
            HeadpondError: The server does not answer.
        """
        answer = self._get("/readyz")
        if answer.status_code not in (httpx2.codes.OK, httpx2.codes.SERVICE_UNAVAILABLE):
            _check(answer)
        reasons = answer.json().get("not_ready", {})
        return {str(name): str(reason) for name, reason in reasons.items()}

    def _get(self, path: str) -> httpx2.Response:
        try:
            return self._http.get(path)
        except httpx2.HTTPError as error:
            raise NotReady(f"{self._http.base_url} does not answer: {error}") from None


def _check(answer: httpx2.Response) -> None:
    if answer.status_code == httpx2.codes.OK:
        return
    try:
        message = str(answer.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        message = answer.text[:200]
    raise HeadpondError(f"{answer.url} answers {answer.status_code}: {message}")


@contextmanager
def observed(base_url: str | None, api_key: str | None) -> Iterator[Server]:
    """Yield the server that the options, or the environment, name."""
    url, key = ClientConfig.locate(base_url, api_key)
    config = ClientConfig(base_url=url, api_key=key)
    headers = config.request_headers()
    with httpx2.Client(base_url=config.base_url, headers=headers, timeout=_TIMEOUT_S) as http:
        yield Server(http)
