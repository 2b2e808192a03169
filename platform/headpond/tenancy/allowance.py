"""What one request may take of its tenant's quotas, and what it has taken."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from headpond.errors import RateLimited
from headpond.globs import matches
from headpond.settings import Quota
from headpond.tenancy.errors import QuotaTooSmall
from headpond.tenancy.quota_store import QuotaStore
from headpond.tenancy.window import Window
from headpond.units import REQUESTS, Work

_ANY_MODEL = ("*",)


@dataclass(slots=True)
class Share:
    """One quota in its present window, as one request knows it.

    Attributes:
        quota: The quota.
        window: Where its use is counted.
        used: What is used up, as far as is known; None while that is not known.
        taken: What this request has taken of it.
    """

    quota: Quota
    window: Window
    used: int | None = None
    taken: int = 0

    @property
    def remaining(self) -> int | None:
        """What is left, as far as is known."""
        return None if self.used is None else max(self.window.limit - self.used, 0)


class Allowance:
    """The quotas of one request: looked at when it comes, taken from, settled when it is over."""

    def __init__(
        self,
        shares: Iterable[Share],
        store: QuotaStore,
        clock: Callable[[], float],
        refused: Callable[[Quota], None],
    ) -> None:
        """Start with nothing taken.

        Args:
            shares: The tenant's quotas for the workload.
            store: Where their use is counted.
            clock: Unix seconds.
            refused: Told of the quota for which the request was refused.
        """
        self._shares = list(shares)
        self._store = store
        self._clock = clock
        self._refused = refused
        self._model_known = False
        self._counts = True
        self._settled = False

    @property
    def shares(self) -> Iterator[Share]:
        """Those that hold for the request, as far as is known of it."""
        return (
            share for share in self._shares if self._model_known or share.quota.models == _ANY_MODEL
        )

    @property
    def counts_work(self) -> bool:
        """Whether it matters what the request comes to."""
        return any(share.quota.unit != REQUESTS for share in self.shares)

    def __bool__(self) -> bool:
        """Whether there are any quotas."""
        return bool(self._shares)

    async def look(self) -> None:
        """Refuse a request that could not get anything, before it is read.

        Raises:
            RateLimited: A quota is used up.
            QuotasUnavailable: The store is away, and calls are to be refused then.
        """
        for share in self.shares:
            share.used = await self._store.used(share.window)
        for share in self.shares:
            if share.remaining == 0:
                raise self._refusal(share, "is used up")

    def choose(self, model: str) -> None:
        """Go by the quotas of a model from now on."""
        self._model_known = True
        self._shares = [share for share in self._shares if matches(model, share.quota.models)]

    async def take(self, work: Mapping[str, int]) -> None:
        """Take the work of every quota that counts it, or of none.

        Nothing is taken for a request that is settled already.

        Raises:
            RateLimited: A quota has less left.
            QuotaTooSmall: A quota is less, even when nothing of it is used.
            QuotasUnavailable: As `look`.
        """
        for share in self.shares:
            amount = work.get(share.quota.unit, 0)
            if not amount or self._settled:
                continue
            if not await self._take(share, amount):
                raise self._refusal(share, f"has {share.remaining} left, of up to {amount} needed")

    async def _take(self, share: Share, amount: int) -> bool:
        limit, quota = share.window.limit, share.quota
        if amount > limit:
            self._refused(quota)
            raise QuotaTooSmall(
                f"The request may take {amount} {quota.unit}; the tenant's quota is {limit} per "
                f"{quota.per}."
            )
        if share.used is not None and share.used + amount > limit:
            # Whoever takes too much gives it back, and is in others' way until then.
            share.used = await self._store.used(share.window)
            if share.used is not None and share.used + amount > limit:
                return False
        taken, share.used = await self._store.take(share.window, amount)
        share.taken += amount if taken and share.used is not None else 0
        return taken

    def release(self) -> None:
        """Give everything back: the request was refused."""
        self._counts = False
        self.settle(Work())

    def refuse(self) -> None:
        """Count no request; what its call has come to nevertheless is yet to be settled."""
        self._counts = False
        for share in self.shares:
            if share.quota.unit == REQUESTS:
                self._correct(share, 0)

    def settle(self, work: Work) -> None:
        """Make what was taken what the request came to; the first settlement holds."""
        if self._settled:
            return
        self._settled = True
        for share in self.shares:
            came_to = int(self._counts) if share.quota.unit == REQUESTS else work[share.quota.unit]
            self._correct(share, came_to)

    def _correct(self, share: Share, came_to: int) -> None:
        change = came_to - share.taken
        self._store.change(share.window, change)
        share.taken = came_to
        if share.used is not None:
            share.used += change

    def headers(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield what is left as OpenAI writes it, by unit; of several quotas the least."""
        least: dict[str, tuple[int, Share]] = {}
        for share in self.shares:
            remaining = share.remaining
            if remaining is not None and (
                share.quota.unit not in least or remaining < least[share.quota.unit][0]
            ):
                least[share.quota.unit] = (remaining, share)
        for unit, (remaining, share) in least.items():
            name = unit.replace("_", "-").encode()
            yield b"x-ratelimit-limit-" + name, b"%d" % share.window.limit
            yield b"x-ratelimit-remaining-" + name, b"%d" % remaining
            yield b"x-ratelimit-reset-" + name, _duration(self._left_s(share)).encode()

    def _refusal(self, share: Share, what: str) -> RateLimited:
        self._refused(share.quota)
        quota = share.quota
        return RateLimited(
            f"The tenant's quota of {quota.limit} {quota.unit} per {quota.per} {what}.",
            retry_after_s=self._left_s(share),
        )

    def _left_s(self, share: Share) -> float:
        return max(share.window.ends_s - self._clock(), 0.001)


def _duration(seconds: float) -> str:
    """Return a time as Go and OpenAI write it: `6m0s`, `17.25s`, `20ms`."""
    if seconds < 1.0:
        return f"{max(round(seconds * 1000), 1)}ms"
    minutes, rest = divmod(round(seconds, 3), 60)
    hours, minutes = divmod(int(minutes), 60)
    text = f"{rest:.3f}".rstrip("0").rstrip(".") + "s"
    if hours:
        return f"{hours}h{minutes}m{text}"
    return f"{minutes}m{text}" if minutes else text
