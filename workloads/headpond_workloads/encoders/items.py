"""What the workloads of text encoders ask of their engines alike, and get."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class DescribeItem:
    """A question for what the model is; answered while planning, with a `Described`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Described:
    """What a model is, whatever it makes of texts.

    Attributes:
        model: `name@version` of the bundle.
        digest: The bundle's digest.
        dtype: What it computes in.
        max_tokens: The longest input, special tokens included.
        max_batch_tokens: Tokens in one batch.
    """

    model: str
    digest: str
    dtype: str
    max_tokens: int
    max_batch_tokens: int
