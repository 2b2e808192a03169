"""Where the use of quotas is counted: in this process, or in a store that many share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

import structlog
from limits.aio.storage import MemoryStorage, RedisStorage, Storage
from limits.errors import StorageError
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headpond.config_file import SettingsError
from headpond.settings import QuotaStoreSettings
from headpond.tenancy.errors import QuotasUnavailable
from headpond.tenancy.window import Window

if TYPE_CHECKING:
    from valkey.asyncio import BlockingConnectionPool

log = structlog.get_logger(__name__)

Result = TypeVar("Result")

_CONNECTIONS = 16
_AWAY_S = 1.0
"""A store that did not answer is left alone for so long: nobody waits for it twice."""


class QuotaStore(Collector):
    """Counts by windows, exactly: each change is one atomic increment in the store.

    The kept library's own strategies take, and never give back; so its storages are used
    below them. On one event loop's thread.
    """

    def __init__(
        self, settings: QuotaStoreSettings, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Connect to nothing yet.

        Args:
            settings: Which store, and what happens while it is away.
            clock: Monotonic seconds.

        Raises:
            SettingsError: Its client is not installed.
        """
        self._pool = _pool(settings)
        self._storage = _storage(self._pool)
        self._closed_when_away = settings.when_away == "closed"
        self._clock = clock
        self._away_until_s = 0.0
        self._away = False
        self._errors = 0
        self._working: set[asyncio.Task[object]] = set()

    async def used(self, window: Window) -> int | None:
        """Return what is used up; None when that is not known and calls go on nevertheless.

        Raises:
            QuotasUnavailable: The store is away, and calls are to be refused then.
        """
        return await self._asked(lambda: self._storage.get(window.key))

    async def take(self, window: Window, amount: int) -> tuple[bool, int | None]:
        """Use up `amount`, all of it or nothing.

        Two who want the last of it can't both get it: who passes the limit gives back at
        once. Who asks for less in that very moment may be refused what would have fitted.
        What was taken for somebody who does not wait for it any more is given back.

        Returns:
            Whether it was taken, and what is used up by then; None as `used` has it.

        Raises:
            QuotasUnavailable: As `used`.
        """
        taking = self._begin(self._take(window, amount))
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            self._begin(self._return(taking, window, amount))
            raise

    def change(self, window: Window, by: int) -> None:
        """Use up more, or give back, without waiting, whatever the limit is."""
        if by:
            self._begin(self._change(window, by))

    async def close(self) -> None:
        """Return when all changes so far are in the store, or lost, and it is let go of."""
        while self._working:
            await asyncio.wait(set(self._working))
        if self._pool is not None:
            await self._pool.disconnect()

    def collect(self) -> Iterator[Metric]:
        """Yield whether the store answers, and how often it did not."""
        yield GaugeMetricFamily(
            "headpond_quota_store_up",
            "Whether the store of quotas answered when it was last asked.",
            value=not self._away,
        )
        yield CounterMetricFamily(
            "headpond_quota_store_errors",
            "Times that the store of quotas did not answer.",
            value=self._errors,
        )

    def _begin(self, work: Coroutine[None, None, Result]) -> asyncio.Task[Result]:
        task = asyncio.create_task(work)
        self._working.add(task)
        task.add_done_callback(self._working.discard)
        return task

    async def _take(self, window: Window, amount: int) -> tuple[bool, int | None]:
        used = await self._asked(lambda: self._add(window, amount))
        if used is None or used <= window.limit:
            return True, used
        await self._change(window, -amount)
        return False, used - amount

    async def _return(
        self, taking: asyncio.Task[tuple[bool, int | None]], window: Window, amount: int
    ) -> None:
        with suppress(QuotasUnavailable):
            taken, used = await taking
            if taken and used is not None:
                await self._change(window, -amount)

    async def _change(self, window: Window, by: int) -> None:
        try:
            await self._asked(lambda: self._add(window, by))
        except QuotasUnavailable:
            return  # counted; the window's end forgets it

    async def _add(self, window: Window, amount: int) -> int:
        # What is added late, when a call ends, must still find what it was taken from.
        return await self._storage.incr(window.key, 2 * window.per_s, amount)

    async def _asked(self, ask: Callable[[], Awaitable[Result]]) -> Result | None:
        if self._clock() >= self._away_until_s:
            try:
                answer = await ask()
            except (StorageError, OSError) as error:
                self._errors += 1
                self._away_until_s = self._clock() + _AWAY_S
                if not self._away:
                    log.warning("quota_store_away", problem=repr(error))
                self._away = True
            else:
                self._away = False
                return answer
        if self._closed_when_away:
            raise QuotasUnavailable(retry_after_s=_AWAY_S)
        return None


def _pool(settings: QuotaStoreSettings) -> BlockingConnectionPool | None:
    """Return the connections to a store that is shared; None for one in memory."""
    if settings.url.startswith("memory"):
        return None
    try:
        from valkey.asyncio import BlockingConnectionPool  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise SettingsError(
            "a quota store needs its client: pip install 'headpond[quotas]'",
            param="quota_store.url",
        ) from error
    pool: BlockingConnectionPool = BlockingConnectionPool.from_url(
        settings.url,
        max_connections=_CONNECTIONS,
        timeout=settings.timeout_s,
        socket_timeout=settings.timeout_s,
        socket_connect_timeout=settings.timeout_s,
    )
    return pool


def _storage(pool: BlockingConnectionPool | None) -> Storage:
    if pool is None:
        return MemoryStorage()
    # The client of Valkey speaks with Redis, too.
    return RedisStorage(
        "valkey://",
        wrap_exceptions=True,
        key_prefix="headpond",
        connection_pool=pool,  # type: ignore[arg-type]  # as its documentation has it
    )
