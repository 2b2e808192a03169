"""Retained state as symbolic terms, and the bytes they come to for one bundle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import prod

from headpond.errors import BundleError

COMPUTE_DTYPE = "compute"
"""In a term's `dtype`: the dtype the bundle's execution contract names."""

DTYPE_BYTES: Mapping[str, int] = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int64": 8,
    "int32": 4,
    "int8": 1,
    "uint8": 1,
}


class Lifetime(StrEnum):
    """How long a state term lives."""

    REQUEST = "request"
    FORWARD = "forward"


@dataclass(frozen=True, kw_only=True)
class StateTerm:
    """One tensor of state that a request holds, with a symbolic shape.

    Attributes:
        name: What it is, e.g. `kv_cache`.
        shape: Integers and symbols; a symbol is a dimension of the request shape, the
            batching axis, or a symbol that every bundle of the workload binds.
        dtype: A key of `DTYPE_BYTES`, or `COMPUTE_DTYPE`.
        lifetime: Whether it lives as long as the request, or for one forward.
    """

    name: str
    shape: tuple[int | str, ...]
    dtype: str = COMPUTE_DTYPE
    lifetime: Lifetime = Lifetime.REQUEST

    @property
    def symbols(self) -> frozenset[str]:
        """The symbolic factors of the shape."""
        return frozenset(factor for factor in self.shape if isinstance(factor, str))


@dataclass(frozen=True, kw_only=True)
class StateModel:
    """The state terms of a record, bound to one bundle: request shape in, bytes out.

    Attributes:
        terms: The record's terms.
        symbols: What the bundle binds, e.g. `{"layers": 30, "kv_heads": 3}`.
        dtype: The bundle's compute dtype.
        axis: The batching axis along which a request's state grows.
        granule: The axis is held in multiples of this (a KV block).
    """

    terms: tuple[StateTerm, ...]
    symbols: Mapping[str, int]
    dtype: str
    axis: str
    granule: int = 1

    def __post_init__(self) -> None:
        """Refuse a dtype without a known width and a granule below one."""
        if self.dtype not in DTYPE_BYTES:
            raise BundleError(
                f"dtype {self.dtype!r} has no known width; use one of {sorted(DTYPE_BYTES)}",
                param="execution.dtype",
            )
        if self.granule < 1:
            raise BundleError(f"a granule of {self.granule} is below 1", param="model")

    def request_bytes(self, shape: Mapping[str, int], axis_units: int) -> int:
        """Return the bytes one request holds at `axis_units` along the batching axis.

        Args:
            shape: The request's dimensions by name.
            axis_units: Units held along the axis; rounded up to whole granules.
        """
        held = -(-axis_units // self.granule) * self.granule
        values = {**self.symbols, **shape, self.axis: held}
        return sum(_bytes(term, values, self.dtype) for term in self.terms)


def _bytes(term: StateTerm, values: Mapping[str, int], compute_dtype: str) -> int:
    dtype = compute_dtype if term.dtype == COMPUTE_DTYPE else term.dtype
    return prod(_factors(term.shape, values)) * DTYPE_BYTES[dtype]


def _factors(shape: Sequence[int | str], values: Mapping[str, int]) -> list[int]:
    return [factor if isinstance(factor, int) else values[factor] for factor in shape]
