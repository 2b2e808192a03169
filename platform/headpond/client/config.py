"""What a client was told: where the server is, who asks, and how long to try."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import version

import httpx2

from headpond.client.options import CallOptions

DEFAULT_BASE_URL = "http://localhost:8000"
DEFAULT_TIMEOUT_S = 600.0
DEFAULT_MAX_RETRIES = 2
LIMITS = httpx2.Limits(max_connections=1000, max_keepalive_connections=100)


@dataclass(frozen=True, kw_only=True)
class ClientConfig:
    """Settings of one client.

    Attributes:
        base_url: Where the routes begin: a router's root, or `.../models/<alias>` for a
            replica directly. A trailing `/v1` is cut off.
        api_key: Sent as bearer token; None sends none.
        timeout_s: The longest wait for the next bytes.
        deadline_s: Time for a whole call, retries included; the server gets to know it.
        max_retries: How often a call is sent again.
        headers: Sent with every request.
    """

    base_url: str = DEFAULT_BASE_URL
    api_key: str | None = field(default=None, repr=False)
    timeout_s: float = DEFAULT_TIMEOUT_S
    deadline_s: float | None = None
    max_retries: int = DEFAULT_MAX_RETRIES
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Bring the URL into its one form, and refuse what cannot work.

        Raises:
            ValueError: Names the setting.
        """
        if not self.base_url.startswith(("http://", "https://")):
            raise ValueError("base_url must begin with http:// or https://")
        object.__setattr__(self, "base_url", self.base_url.rstrip("/").removesuffix("/v1"))
        if self.timeout_s <= 0:
            raise ValueError("timeout_s must be above 0")
        if self.deadline_s is not None and self.deadline_s <= 0:
            raise ValueError("deadline_s must be above 0")
        if self.max_retries < 0:
            raise ValueError("max_retries must be 0 or more")

    @classmethod
    def locate(cls, base_url: str | None, api_key: str | None) -> tuple[str, str | None]:
        """Fill up with `HEADPOND_BASE_URL` and `HEADPOND_API_KEY`, then the defaults."""
        base_url = base_url or os.environ.get("HEADPOND_BASE_URL") or DEFAULT_BASE_URL
        return base_url, api_key or os.environ.get("HEADPOND_API_KEY") or None

    def for_call(self, options: CallOptions) -> ClientConfig:
        """Return the settings with what a call was told instead.

        Raises:
            ValueError: An option cannot work; names it.
        """
        timeout_s, deadline_s = options.get("timeout_s"), options.get("deadline_s")
        max_retries, headers = options.get("max_retries"), options.get("extra_headers")
        return replace(
            self,
            timeout_s=self.timeout_s if timeout_s is None else timeout_s,
            deadline_s=self.deadline_s if deadline_s is None else deadline_s,
            max_retries=self.max_retries if max_retries is None else max_retries,
            headers=self.headers if headers is None else {**self.headers, **headers},
        )

    def request_headers(self) -> dict[str, str]:
        """Return the headers of every request; those that the caller gave win."""
        headers = {"user-agent": _user_agent()}
        if self.api_key is not None:
            headers["authorization"] = f"Bearer {self.api_key}"
        return headers | {name.lower(): value for name, value in self.headers.items()}


@cache
def _user_agent() -> str:
    return f"headpond/{version('headpond')}"
