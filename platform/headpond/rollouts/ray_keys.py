"""Ray's own key-value store as a store of revisions.

It lives as long as the cluster's head, and over its restarts where Ray keeps it in Redis: so
as long as the applications that aliases stand for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from ray.exceptions import RpcError
from ray.experimental.internal_kv import (
    _internal_kv_del,
    _internal_kv_get,
    _internal_kv_list,
    _internal_kv_put,
)

from headpond.errors import HeadpondError

_NAMESPACE = b"headpond"

Found = TypeVar("Found")


class KeysAway(HeadpondError):
    """The cluster's head does not answer."""

    status = 503
    code = "rollouts_unavailable"


class RayKeys:
    """Keys in a namespace of our own; every process of the cluster sees the same."""

    def add(self, key: str, value: bytes) -> bool:
        """Write a value where there is none; False when there is one.

        Raises:
            KeysAway: The head does not answer.
        """
        known = _asked(lambda: _internal_kv_put(key, value, overwrite=False, namespace=_NAMESPACE))
        return not known

    def get(self, key: str) -> bytes | None:
        """Return a value.

        Raises:
            KeysAway: The head does not answer.
        """
        value: bytes | None = _asked(lambda: _internal_kv_get(key, namespace=_NAMESPACE))
        return value

    def list(self, prefix: str) -> Sequence[str]:
        """Return all keys with a prefix.

        Raises:
            KeysAway: The head does not answer.
        """
        keys = _asked(lambda: _internal_kv_list(prefix, namespace=_NAMESPACE))
        return [key.decode() for key in keys]

    def remove(self, key: str) -> None:
        """Forget a value.

        Raises:
            KeysAway: The head does not answer.
        """
        _asked(lambda: _internal_kv_del(key, namespace=_NAMESPACE))


def _asked(ask: Callable[[], Found]) -> Found:
    try:
        return ask()
    except RpcError as error:
        raise KeysAway from error
