"""Who may call, and how much: what every route that does work asks first."""

from __future__ import annotations

from dataclasses import dataclass

from headpond.http.auth import Keyring
from headpond.tenancy.quotas import Quotas


@dataclass(frozen=True, slots=True)
class Tenancy:
    """The keys and the quotas of all tenants."""

    keyring: Keyring
    quotas: Quotas
