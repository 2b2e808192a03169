"""Blocks of the paged KV cache: who holds which, counted but not computed with."""

from __future__ import annotations

from headpond.errors import Overloaded


class BlocksExhausted(Overloaded):
    """Every KV block is held."""


class BlockPool:
    """A fixed number of blocks, each held by at most one table.

    The block that was given back last is taken first: it is still in the caches.
    """

    def __init__(self, count: int) -> None:
        """Start with `count` free blocks, numbered from 0."""
        self.count = count
        self._free = list(range(count - 1, -1, -1))

    @property
    def free(self) -> int:
        """How many blocks nobody holds."""
        return len(self._free)

    def take(self, count: int) -> list[int]:
        """Return `count` blocks, all or none.

        Raises:
            BlocksExhausted: Fewer are free.
        """
        if count > len(self._free):
            raise BlocksExhausted
        return [self._free.pop() for _ in range(count)]

    def give(self, blocks: list[int]) -> None:
        """Take blocks back."""
        self._free.extend(reversed(blocks))


class BlockTable:
    """The blocks of one sequence: token `i` lies in `blocks[i // block_tokens]`."""

    __slots__ = ("_block_tokens", "_pool", "blocks")

    def __init__(self, pool: BlockPool, block_tokens: int) -> None:
        """Hold no block yet."""
        self._pool = pool
        self._block_tokens = block_tokens
        self.blocks: list[int] = []

    def reserve(self, tokens: int) -> list[int]:
        """Hold enough blocks for `tokens` tokens and return those that are new.

        Raises:
            BlocksExhausted: The pool has too few; the table is as it was.
        """
        missing = -(-tokens // self._block_tokens) - len(self.blocks)
        fresh = self._pool.take(missing) if missing > 0 else []
        self.blocks += fresh
        return fresh

    def clear(self) -> None:
        """Give every block back."""
        self._pool.give(self.blocks)
        self.blocks = []
