"""The prefix cache: full KV blocks are found again by what led to them.

A block's name is a digest chained over everything that its keys and values depend on: the
bundle and its position scheme, the tenant's namespace, the adapter, and every token from
the first up to the block's last (as in vLLM's automatic prefix caching, but with BLAKE2b,
so that nobody can make two prompts collide).
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from headpond_workloads.generation.engine.blocks import BlockPool, BlockTable

ABSOLUTE_POSITIONS = "absolute"
"""The position scheme of all models here: keys depend on how far they are from the start."""

_NAME_BYTES = 16


@dataclass(kw_only=True, slots=True)
class Chain:
    """The names of one sequence's blocks.

    Attributes:
        root: What the first name builds on.
        names: One for each full block of the prompt, then of the output as it comes.
        named: How many of the table's leading blocks bear their names.
    """

    root: bytes
    names: list[bytes] = field(default_factory=list)
    named: int = 0

    def copy(self) -> Chain:
        """Return a chain that can go on by itself, of a sequence that holds nothing yet."""
        return Chain(root=self.root, names=list(self.names))


class PrefixCache:
    """Names blocks once they are computed, and lets sequences begin with named ones.

    `chain` and `cached_tokens` are safe to call from any thread.
    """

    def __init__(self, pool: BlockPool, block_tokens: int, scope: Sequence[str]) -> None:
        """Start empty.

        Args:
            pool: Keeps the blocks.
            block_tokens: Tokens of a block.
            scope: What all sequences have in common: the bundle's digest and the like.
        """
        self._pool = pool
        self._block_tokens = block_tokens
        self._scope = tuple(scope)
        self.queried_tokens = 0
        self.hit_tokens = 0

    def chain(
        self, namespace: str, adapter: str | None, token_ids: Sequence[int], salt: str = ""
    ) -> Chain:
        """Return the names of a prompt's full blocks within a namespace, and a salt's part of it."""
        identity = json.dumps([*self._scope, namespace, adapter, salt]).encode()
        chain = Chain(root=blake2b(identity, digest_size=_NAME_BYTES).digest())
        self._extend(chain, token_ids, len(token_ids))
        return chain

    def cached_tokens(self, chain: Chain, most: int) -> int:
        """Return how many leading tokens, up to `most`, are held at the moment."""
        count = 0
        for name in chain.names[: most // self._block_tokens]:
            if self._pool.find(name) is None:
                break
            count += 1
        return count * self._block_tokens

    def adopt(self, chain: Chain, table: BlockTable, computed: int, most: int) -> int:
        """Let a table go on with named blocks while it can; return the tokens it then holds.

        Args:
            chain: The sequence's names.
            table: Where they go; what it holds beyond `computed` tokens is given back.
            computed: Tokens that are held already, to the middle of a block perhaps.
            most: The most tokens that may be held without being computed.
        """
        size = self._block_tokens
        at = computed // size
        for name in chain.names[at : most // size]:
            if not table.adopt(at, name):
                break
            at += 1
        if at * size <= computed:
            return computed
        chain.named = at
        return at * size

    def filled(self, chain: Chain, start: int, end: int) -> Sequence[bytes]:
        """Return the names of the blocks that a chunk of a prompt fills."""
        return chain.names[start // self._block_tokens : end // self._block_tokens]

    def count(self, queried: int, hit: int) -> None:
        """Count the prompt tokens that were looked up for a sequence, and those found."""
        self.queried_tokens += queried
        self.hit_tokens += hit

    def register(
        self, chain: Chain, table: BlockTable, token_ids: Sequence[int], computed: int
    ) -> None:
        """Name every block that `computed` tokens fill."""
        full = computed // self._block_tokens
        if full <= chain.named:
            return
        self._extend(chain, token_ids, computed)
        for at in range(chain.named, full):
            table.name(at, chain.names[at])
        chain.named = full

    def _extend(self, chain: Chain, token_ids: Sequence[int], end: int) -> None:
        size = self._block_tokens
        name = chain.names[-1] if chain.names else chain.root
        for start in range(len(chain.names) * size, end - size + 1, size):
            block = array("q", token_ids[start : start + size])
            name = blake2b(name + block.tobytes(), digest_size=_NAME_BYTES).digest()
            chain.names.append(name)
