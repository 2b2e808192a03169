"""Who is calling, and what their key opens."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from headpond.call import ModelCard
from headpond.errors import AuthenticationFailed, PermissionDenied
from headpond.settings import PUBLIC_TENANT, ApiKey


@dataclass(frozen=True, slots=True)
class Caller:
    """A tenant, and the models and workloads that the key shown may use."""

    tenant: str
    models: tuple[str, ...] = ("*",)
    workloads: tuple[str, ...] = ("*",)

    def require_workload(self, workload: str) -> None:
        """Raise `PermissionDenied` unless the key opens the workload."""
        if not self.opens(workload):
            raise PermissionDenied(f"The API key does not open the workload `{workload}`.")

    def require_model(self, model: str) -> None:
        """Raise `PermissionDenied` unless the key opens the model."""
        if not _matches(model, self.models):
            raise PermissionDenied("The API key does not open this model.", param="model")

    def opens(self, workload: str) -> bool:
        """Return whether the key may use a workload."""
        return _matches(workload, self.workloads)

    def sees(self, card: ModelCard) -> bool:
        """Return whether the key may ask for a model."""
        return self.opens(card.workload) and _matches(card.name, self.models)


def _matches(name: str, globs: tuple[str, ...]) -> bool:
    return globs == ("*",) or any(fnmatchcase(name, glob) for glob in globs)


_PUBLIC = Caller(PUBLIC_TENANT)


class Keyring:
    """The configured keys by hash; without any, everybody is the public tenant."""

    def __init__(self, keys: Iterable[ApiKey]) -> None:
        self._keys = {key.key_sha256: _Entry(key) for key in keys}

    def authenticate(self, headers: Mapping[bytes, bytes]) -> Caller:
        """Return the caller from the headers of a request or of a WebSocket's handshake.

        Args:
            headers: By lower-case name, as ASGI has them.

        Raises:
            AuthenticationFailed: Keys are configured, and none of them was shown.
        """
        if not self._keys:
            return _PUBLIC
        scheme, _, credential = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() != b"bearer" or not credential.strip():
            raise AuthenticationFailed("An API key is needed: `Authorization: Bearer <key>`.")
        shown = hashlib.sha256(credential.strip()).hexdigest()
        entry = self._keys.get(shown)
        if entry is None or not hmac.compare_digest(entry.key_sha256, shown):
            raise AuthenticationFailed("The API key is not valid.")
        if entry.expires_s is not None and time.time() >= entry.expires_s:
            raise AuthenticationFailed("The API key has expired.")
        return entry.caller


class _Entry:
    """A key, with what each request would otherwise have to work out again."""

    __slots__ = ("caller", "expires_s", "key_sha256")

    def __init__(self, key: ApiKey) -> None:
        self.key_sha256 = key.key_sha256
        self.expires_s = key.expires.timestamp() if key.expires is not None else None
        self.caller = Caller(key.tenant, key.models, key.workloads)
