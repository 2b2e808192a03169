"""What a streaming model consists of: an encoder with caches, and a search over its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Cache = tuple[NDArray[np.generic], ...]
"""What an encoder keeps of one stream; each array has a batch dimension of one."""

Path = TypeVar("Path")


@dataclass(frozen=True, slots=True)
class Emission:
    """A token, the row it came with, and the logarithm of how sure the model is of it."""

    token_id: int
    row: int
    log_prob: float


class Encoder(Protocol):
    """An encoder that goes on by a chunk.

    Attributes:
        frames: How many frames it takes at once.
        shift: How many of them are not taken again.
        subsampling: How many frames a row stands for.
        cache_bytes: What a stream's cache takes.
    """

    @property
    def frames(self) -> int: ...  # noqa: D102 - see the class

    @property
    def shift(self) -> int: ...  # noqa: D102

    @property
    def subsampling(self) -> int: ...  # noqa: D102

    @property
    def cache_bytes(self) -> int: ...  # noqa: D102

    def initial(self) -> Cache:
        """Return the cache of a stream that begins."""
        ...

    def encode(self, frames: Floats, caches: Sequence[Cache]) -> tuple[Floats, list[Cache]]:
        """Encode a chunk of each stream.

        Args:
            frames: [streams, frames, bands].
            caches: Of the same streams, of any ages. They are not changed.

        Returns:
            Rows [streams, rows, width], and the caches after them.
        """
        ...


class Search(Protocol[Path]):
    """Finds the tokens that rows say."""

    def initial(self) -> Path:
        """Return the path of a stream that begins."""
        ...

    def search(
        self, rows: Floats, paths: Sequence[Path]
    ) -> tuple[list[list[Emission]], list[Path]]:
        """Go on through rows, [streams, rows, width]; paths are not changed."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Network(Generic[Path]):
    """A whole model.

    Attributes:
        encoder: Hears.
        search: Finds words.
        weight_bytes: What its weights take.
    """

    encoder: Encoder
    search: Search[Path]
    weight_bytes: int
