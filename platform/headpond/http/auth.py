"""Who is calling, and what their key opens."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Self

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from headpond.api_key import PUBLIC_TENANT, ApiKey, key_id
from headpond.call import ModelCard
from headpond.config_file import located
from headpond.errors import AuthenticationFailed, PermissionDenied
from headpond.globs import matches
from headpond.settings import Settings
from headpond.tenancy.audit import Audit, KeyUse
from headpond.tenancy.key_file import KeyFile


def _unheard() -> None:
    """Tell nobody of a denial: there is no key."""


@dataclass(frozen=True, slots=True)
class Caller:
    """A tenant, and what the key shown opens.

    Attributes:
        tenant: Who is served.
        models: Globs of the models it may ask for.
        workloads: Globs of the workloads it may use.
        metrics: Whether it may read the metrics, which are of all tenants.
        admin: Whether it may see what is other tenants'.
        denied: Called when the key does not open what is asked for.
    """

    tenant: str
    models: tuple[str, ...] = ("*",)
    workloads: tuple[str, ...] = ("*",)
    metrics: bool = False
    admin: bool = False
    denied: Callable[[], None] = field(default=_unheard, compare=False)

    def require_workload(self, workload: str) -> None:
        """Raise `PermissionDenied` unless the key opens the workload."""
        if not self.opens(workload):
            raise self._denial(f"The API key does not open the workload `{workload}`.")

    def require_model(self, model: str) -> None:
        """Raise `PermissionDenied` unless the key opens the model."""
        if not matches(model, self.models):
            raise self._denial("The API key does not open this model.", param="model")

    def require_metrics(self) -> None:
        """Raise `PermissionDenied` unless the key may read the metrics."""
        if not (self.metrics or self.admin):
            raise self._denial("The metrics are for keys with `metrics` or `admin`.")

    def require_tenant(self, tenant: str) -> None:
        """Raise `PermissionDenied` unless the key may see what is a tenant's."""
        if not (self.admin or tenant == self.tenant):
            raise self._denial("What is another tenant's is for keys with `admin`.", param="tenant")

    def opens(self, workload: str) -> bool:
        """Return whether the key may use a workload."""
        return matches(workload, self.workloads)

    def sees(self, card: ModelCard) -> bool:
        """Return whether the key may ask for a model."""
        return self.opens(card.workload) and matches(card.name, self.models)

    def _denial(self, text: str, *, param: str | None = None) -> PermissionDenied:
        self.denied()
        return PermissionDenied(text, param=param)


_PUBLIC = Caller(PUBLIC_TENANT, admin=True)
_NO_KEY = "An API key is needed: `Authorization: Bearer <key>`."


class Keyring(Collector):
    """The configured keys by hash; where none are, everybody is the public tenant."""

    def __init__(
        self, keys: Iterable[ApiKey], file: KeyFile | None = None, audit: Audit | None = None
    ) -> None:
        """Keep the keys of the settings, and look at a file of more of them.

        Args:
            keys: They stay.
            file: Its keys come and go; None for no file.
            audit: Is told of the use of keys.
        """
        self._fixed = {key.key_sha256: _Entry(key) for key in keys}
        self._file = file
        self.audit = audit or Audit()
        self._keys = self._fixed | self._filed()

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Return the keys of an operator's settings.

        Raises:
            SettingsError: The file of keys cannot be read, or is wrong.
        """
        path = settings.keys_file
        return cls(settings.keys, None if path is None else KeyFile(located(path)))

    @property
    def secured(self) -> bool:
        """Whether a key is needed at all; a file without keys in it opens nothing."""
        return bool(self._fixed) or self._file is not None

    def authenticate(self, headers: Mapping[bytes, bytes], route: str) -> Caller:
        """Return the caller from the headers of a request or of a WebSocket's handshake.

        Args:
            headers: By lower-case name, as ASGI has them.
            route: The declared path that is asked for.

        Raises:
            AuthenticationFailed: Keys are configured, and none of them was shown.
        """
        if not self.secured:
            return _PUBLIC
        if self._file is not None and self._file.refresh():
            self._keys = self._fixed | self._filed()
            self.audit.forget({entry.id for entry in self._keys.values()})
        scheme, _, credential = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() != b"bearer" or not credential.strip():
            self.audit.missing()
            raise AuthenticationFailed(_NO_KEY)
        shown = hashlib.sha256(credential.strip()).hexdigest()
        entry = self._keys.get(shown)
        if entry is None or not hmac.compare_digest(entry.key.key_sha256, shown):
            self.audit.refused(key_id(shown), None, route, KeyUse.UNKNOWN)
            raise AuthenticationFailed("The API key is not valid.")
        if entry.expires_s is not None and time.time() >= entry.expires_s:
            self.audit.refused(entry.id, entry.key.tenant, route, KeyUse.EXPIRED)
            raise AuthenticationFailed("The API key has expired.")
        self.audit.used(entry.id, entry.key.tenant, route)
        return entry.caller(self.audit, route)

    def collect(self) -> Iterator[Metric]:
        """Yield what tells of the use of keys, and of their file."""
        yield from self.audit.collect()
        if self._file is not None:
            yield CounterMetricFamily(
                "headpond_keys_file_failures",
                "Times that the file of keys changed and could not be taken.",
                value=self._file.failures,
            )

    def _filed(self) -> dict[str, _Entry]:
        keys = {} if self._file is None else self._file.entries
        return {key_sha256: _Entry(key) for key_sha256, key in keys.items()}


class _Entry:
    """A key, with what each request would otherwise have to work out again."""

    __slots__ = ("expires_s", "id", "key")

    def __init__(self, key: ApiKey) -> None:
        self.key = key
        self.id = key_id(key.key_sha256)
        self.expires_s = key.expires.timestamp() if key.expires is not None else None

    def caller(self, audit: Audit, route: str) -> Caller:
        key = self.key
        denied = partial(audit.refused, self.id, key.tenant, route, KeyUse.DENIED)
        return Caller(key.tenant, key.models, key.workloads, key.metrics, key.admin, denied)
