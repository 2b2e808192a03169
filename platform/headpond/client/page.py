"""Lists that come in pages: one page, and all that follow by iterating."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

Item = TypeVar("Item")
Listed_co = TypeVar("Listed_co", covariant=True)


class Listed(Protocol[Listed_co]):
    """A page as it comes over the wire."""

    @property
    def data(self) -> Sequence[Listed_co]:
        """What is on it."""
        ...

    @property
    def last_id(self) -> str | None:
        """Where the next page begins."""
        ...

    @property
    def has_more(self) -> bool:
        """Whether there is a next page."""
        ...


class _Page(Generic[Item]):
    """What both kinds of pages are: a page is its items, in order."""

    def __init__(self, listed: Listed[Item]) -> None:
        self.data = tuple(listed.data)
        self.has_more = listed.has_more
        self.last_id = listed.last_id

    def _following(self) -> str | None:
        return self.last_id if self.has_more else None


class Page(_Page[Item]):
    """One page of a list; iterating goes on over the pages that follow.

    Attributes:
        data: What is on this page.
        has_more: Whether there is a next page.
        last_id: Where that begins.
    """

    def __init__(self, listed: Listed[Item], fetch: Callable[[str], Page[Item]]) -> None:
        """Keep a page, and how the next one is fetched by the `last_id` of this."""
        super().__init__(listed)
        self._fetch = fetch

    def next_page(self) -> Page[Item] | None:
        """Fetch the page that follows; None behind the last.

        Raises:
            HeadpondError: The server's own error, or one of `headpond.client.errors`.
        """
        after = self._following()
        return None if after is None else self._fetch(after)

    def __iter__(self) -> Iterator[Item]:
        page: Page[Item] | None = self
        while page is not None:
            yield from page.data
            page = page.next_page()


class AsyncPage(_Page[Item]):
    """One page of a list; iterating goes on over the pages that follow.

    Attributes:
        data: What is on this page.
        has_more: Whether there is a next page.
        last_id: Where that begins.
    """

    def __init__(
        self, listed: Listed[Item], fetch: Callable[[str], Awaitable[AsyncPage[Item]]]
    ) -> None:
        """Keep a page, and how the next one is fetched by the `last_id` of this."""
        super().__init__(listed)
        self._fetch = fetch

    async def next_page(self) -> AsyncPage[Item] | None:
        """Fetch the page that follows; None behind the last.

        Raises:
            HeadpondError: The server's own error, or one of `headpond.client.errors`.
        """
        after = self._following()
        return None if after is None else await self._fetch(after)

    async def __aiter__(self) -> AsyncIterator[Item]:
        page: AsyncPage[Item] | None = self
        while page is not None:
            for item in page.data:
                yield item
            page = await page.next_page()
