"""How quotas refuse calls."""

from __future__ import annotations

from headpond.errors import Overloaded, RateLimited


class QuotaTooSmall(RateLimited):
    """The request may take more than the tenant's whole quota."""

    code = "quota_too_small"
    retryable = False


class QuotasUnavailable(Overloaded):
    """The store of quotas does not answer."""

    code = "quotas_unavailable"
