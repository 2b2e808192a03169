"""Blocks of the paged KV cache: who holds which, and what lies in them, by name."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from headpond.errors import Overloaded


class BlocksExhausted(Overloaded):
    """Every KV block is held."""


class BlockPool:
    """A fixed number of blocks, each held by no table, by one, or by several.

    A block may have a name that says what lies in it. A named block that nobody holds is
    kept as it is, and counts as free: it is found by its name until it is taken for
    something else, the one that was given back first before the others. Tables give their
    last block back first, and whoever holds a block holds those before it, so a block goes
    before the ones that its name builds on.

    `find` is safe to call from any thread.
    """

    def __init__(self, count: int) -> None:
        """Start with `count` free blocks, numbered from 0."""
        self.count = count
        self._blank = list(range(count - 1, -1, -1))
        self._kept: OrderedDict[int, None] = OrderedDict()
        self._holders = [0] * count
        self._names: list[bytes | None] = [None] * count
        self._named: dict[bytes, int] = {}

    @property
    def free(self) -> int:
        """How many blocks nobody holds."""
        return len(self._blank) + len(self._kept)

    def take(self, count: int) -> list[int]:
        """Return `count` blocks without names, all or none.

        Of those that were never named, the one given back last comes first: it is still in
        the processor's caches.

        Raises:
            BlocksExhausted: Fewer are free.
        """
        if count > self.free:
            raise BlocksExhausted
        return [self._take() for _ in range(count)]

    def give(self, blocks: Sequence[int]) -> None:
        """Take blocks back from one holder, which has them in this order."""
        for block in reversed(blocks):
            self._holders[block] -= 1
            if not self._holders[block]:
                self._put(block)

    def hold(self, block: int) -> None:
        """Add a holder to a block that has a name or a holder."""
        if not self._holders[block]:
            del self._kept[block]
        self._holders[block] += 1

    def find(self, name: bytes) -> int | None:
        """Return the block of this name, if there is one."""
        return self._named.get(name)

    def name(self, block: int, name: bytes) -> int:
        """Name what lies in a held block; return the block that has the name from now on.

        That is another one when two holders came to the same contents.
        """
        owner = self._named.setdefault(name, block)
        if owner == block:
            self._names[block] = name
        return owner

    def forget(self, block: int) -> None:
        """Take a block's name away, if it has one."""
        name = self._names[block]
        if name is None:
            return
        del self._named[name]
        self._names[block] = None
        if not self._holders[block]:
            del self._kept[block]
            self._blank.append(block)

    def _take(self) -> int:
        if not self._blank:
            self.forget(next(iter(self._kept)))
        block = self._blank.pop()
        self._holders[block] = 1
        return block

    def _put(self, block: int) -> None:
        if self._names[block] is None:
            self._blank.append(block)
        else:
            self._kept[block] = None


class BlockTable:
    """The blocks of one sequence: token `i` lies in `blocks[i // block_tokens]`."""

    __slots__ = ("_pool", "block_tokens", "blocks")

    def __init__(self, pool: BlockPool, block_tokens: int) -> None:
        """Hold no block yet."""
        self._pool = pool
        self.block_tokens = block_tokens
        self.blocks: list[int] = []

    @property
    def tokens(self) -> int:
        """How many tokens the held blocks have room for."""
        return len(self.blocks) * self.block_tokens

    def reserve(self, tokens: int) -> list[int]:
        """Hold enough blocks for `tokens` tokens and return those that are new.

        Raises:
            BlocksExhausted: The pool has too few; the table is as it was.
        """
        missing = -(-tokens // self.block_tokens) - len(self.blocks)
        fresh = self._pool.take(missing) if missing > 0 else []
        self.blocks += fresh
        return fresh

    def adopt(self, at: int, name: bytes) -> bool:
        """Hold the block of this name in a place, or as the next one, if there is one.

        Returns:
            Whether there is one. What the table held in that place is given back.
        """
        block = self._pool.find(name)
        if block is None:
            return False
        self._pool.hold(block)
        replaced, self.blocks[at : at + 1] = self.blocks[at : at + 1], [block]
        self._pool.give(replaced)
        return True

    def name(self, at: int, name: bytes) -> None:
        """Name the contents of a block, or go over to the one that holds the same."""
        block = self.blocks[at]
        if self._pool.name(block, name) != block:
            self.adopt(at, name)

    def forget(self) -> None:
        """Take the names of all held blocks away."""
        for block in self.blocks:
            self._pool.forget(block)

    def clear(self) -> None:
        """Give every block back."""
        self._pool.give(self.blocks)
        self.blocks = []
