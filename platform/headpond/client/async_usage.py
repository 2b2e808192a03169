"""What calls came to, asked from asyncio."""

from __future__ import annotations

from collections.abc import Sequence

from headpond.client.async_transport import AsyncTransport
from headpond.client.usage import usage_path
from headpond.usage_wire import UsageGroup, UsageReport


class AsyncUsage:
    """The usage of the key's tenant, or of all for a key with `admin`."""

    def __init__(self, transport: AsyncTransport) -> None:
        """Ask over `transport`."""
        self._transport = transport

    async def retrieve(
        self,
        *,
        start: int | str | None = None,
        end: int | str | None = None,
        group_by: Sequence[UsageGroup] | None = None,
        tenant: str | None = None,
    ) -> UsageReport:
        """Return sums by unit and group; see `Usage.retrieve`."""
        return await self._transport.get(usage_path(start, end, group_by, tenant), UsageReport)
