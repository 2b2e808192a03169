"""The KV blocks of all sequences: found, reserved, cleared and named step by step."""

from __future__ import annotations

from collections.abc import Sequence

from headpond.engine import Quantum
from headpond_workloads.generation.engine.blocks import BlockPool, BlockTable
from headpond_workloads.generation.engine.forward import CacheMemory
from headpond_workloads.generation.engine.prefix import Chain, PrefixCache
from headpond_workloads.generation.engine.sequence import Portion, Slot


class BlockManager:
    """Gives sequences the blocks that their next tokens go to."""

    def __init__(
        self, pool: BlockPool, caches: Sequence[CacheMemory], prefix: PrefixCache | None
    ) -> None:
        """Start with nothing held.

        Args:
            pool: Who holds which block.
            caches: The memory of the blocks: the model's, and a draft model's under the
                same numbers.
            prefix: Finds blocks of `pool` again; None computes every prompt whole.
        """
        self._pool = pool
        self._caches = tuple(caches)
        self._block_tokens = caches[0].block_tokens
        self._prefix = prefix

    @property
    def free(self) -> int:
        """How many blocks no sequence holds."""
        return self._pool.free

    @property
    def queried_tokens(self) -> int:
        """Prompt tokens that were looked up in the prefix cache."""
        return self._prefix.queried_tokens if self._prefix else 0

    @property
    def hit_tokens(self) -> int:
        """Prompt tokens that were found there."""
        return self._prefix.hit_tokens if self._prefix else 0

    def names(
        self, namespace: str, adapter: str | None, token_ids: Sequence[int], salt: str = ""
    ) -> Chain | None:
        """Return the names of a prompt's blocks; safe to call from any thread."""
        if self._prefix is None:
            return None
        return self._prefix.chain(namespace, adapter, token_ids, salt)

    def cached_tokens(self, names: Chain | None, most: int) -> int:
        """Return how many leading tokens are held now; safe to call from any thread."""
        if self._prefix is None or names is None:
            return 0
        return self._prefix.cached_tokens(names, most)

    def table(self) -> BlockTable:
        """Return a table that holds no block yet."""
        return BlockTable(self._pool, self._block_tokens)

    def portions(self, quanta: Sequence[Quantum[Slot]]) -> list[Portion]:
        """Find and reserve the blocks of a step; say what is left to compute.

        Raises:
            BlocksExhausted: There are too few.
        """
        fresh: list[int] = []
        coming: set[bytes] = set()
        try:
            return [self._portion(each.slot, each.units, fresh, coming) for each in quanta]
        finally:  # also when blocks run out: a table keeps those that it got
            if fresh:
                for cache in self._caches:
                    cache.clear(fresh)

    def begun(self, slot: Slot) -> None:
        """Count what the cache did for a prompt that is computed."""
        if self._prefix is not None:
            self._prefix.count(slot.prompt_tokens, slot.cached_tokens)

    def computed(self, slot: Slot) -> None:
        """Name the blocks that a sequence filled, so that others find them."""
        if self._prefix is not None and slot.names is not None:
            self._prefix.register(slot.names, slot.table, slot.token_ids, slot.computed)

    def _portion(self, slot: Slot, units: int, fresh: list[int], coming: set[bytes]) -> Portion:
        """Return one sequence's share of a step.

        Args:
            slot: The sequence.
            units: What it may compute.
            fresh: Takes the new blocks.
            coming: Names of the blocks that sequences before it fill in this step; takes
                those that this one fills.
        """
        if self._prefix is not None and slot.names is not None and slot.missing > 0:
            prefix, names, most = self._prefix, slot.names, slot.most_cached
            slot.skip_to(prefix.adopt(names, slot.table, slot.computed, most))
            if not coming.isdisjoint(prefix.filled(names, slot.computed, most)[:1]):
                units = 1  # another fills the same block now; from the next step on it is found
            coming.update(prefix.filled(names, slot.computed, slot.computed + slot.due(units)))
        end = slot.computed + slot.due(units)
        fresh += slot.table.reserve(end)
        return Portion(slot=slot, start=slot.computed, end=end, scored_rows=slot.scored_rows(end))
