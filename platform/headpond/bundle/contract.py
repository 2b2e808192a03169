"""What a fixture checks: a named value, and which part of the bundle it vouches for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Contract:
    """One comparison between a fixture and the loaded engine.

    Attributes:
        name: Key in a fixture's `expect` and in what the engine observes.
        vouches_for: What is broken when it differs, e.g. `tokenizer or template`.
    """

    name: str
    vouches_for: str
