"""What calls came to, as the server has counted it."""

from __future__ import annotations

from collections.abc import Sequence

from headpond.client.addresses import queried
from headpond.client.transport import Transport
from headpond.usage_wire import USAGE_PATH, UsageGroup, UsageReport


class Usage:
    """The usage of the key's tenant, or of all for a key with `admin`."""

    def __init__(self, transport: Transport) -> None:
        """Ask over `transport`."""
        self._transport = transport

    def retrieve(
        self,
        *,
        start: int | str | None = None,
        end: int | str | None = None,
        group_by: Sequence[UsageGroup] | None = None,
        tenant: str | None = None,
    ) -> UsageReport:
        """Return sums by unit and group.

        Args:
            start: Unix seconds, or ISO 8601; 30 days before the end unless given.
            end: The same; now unless given.
            group_by: What is told apart; workloads and models unless given.
            tenant: Whose; another one's is for keys with `admin`.

        Raises:
            InvalidRequest: A parameter is not what it must be.
            PermissionDenied: It is another tenant's.
            NotFound: The server keeps no usage.
        """
        return self._transport.get(usage_path(start, end, group_by, tenant), UsageReport)


def usage_path(
    start: int | str | None,
    end: int | str | None,
    group_by: Sequence[UsageGroup] | None,
    tenant: str | None,
) -> str:
    """Return the address that answers `Usage.retrieve`."""
    groups = None if group_by is None else ",".join(group_by)
    return queried(USAGE_PATH, start=start, end=end, group_by=groups, tenant=tenant)
