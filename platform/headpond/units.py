"""Work: integer amounts in a workload's own units, and the arithmetic on them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

REQUESTS = "requests"
"""The unit in which calls themselves are counted, whatever they come to."""


@dataclass(frozen=True, kw_only=True)
class WorkUnit:
    """One unit in which a workload counts what a request costs.

    Attributes:
        name: Plural snake_case name, e.g. `output_tokens`.
        summary: What one of it is.
        weight: Relative cost of one, so that different units compare in one number.
    """

    name: str
    summary: str
    weight: float = 1.0


class Work(Mapping[str, int]):
    """Immutable, non-negative amounts by unit name; an absent unit is zero.

    >>> Work(input_tokens=3) + Work(input_tokens=1, output_tokens=2)
    Work(input_tokens=4, output_tokens=2)
    """

    __slots__ = ("_amounts",)

    def __init__(self, **amounts: int) -> None:
        """Keep the amounts that are not zero.

        Raises:
            ValueError: An amount is negative.
        """
        if any(amount < 0 for amount in amounts.values()):
            raise ValueError(f"work cannot be negative: {amounts}")
        self._amounts = {unit: amount for unit, amount in amounts.items() if amount}

    def __getitem__(self, unit: str) -> int:
        return self._amounts.get(unit, 0)

    def __iter__(self) -> Iterator[str]:
        return iter(self._amounts)

    def __len__(self) -> int:
        return len(self._amounts)

    def __contains__(self, unit: object) -> bool:
        return unit in self._amounts

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Work) and self._amounts == other._amounts

    def __hash__(self) -> int:
        return hash(frozenset(self._amounts.items()))

    def __repr__(self) -> str:
        return f"Work({', '.join(f'{u}={n}' for u, n in self._amounts.items())})"

    def __reduce__(self) -> tuple[object, tuple[dict[str, int]]]:
        return (_from_amounts, (self._amounts,))

    def __add__(self, other: Work) -> Work:
        """Add unit by unit."""
        units = {**self._amounts, **other._amounts}
        return Work(**{unit: self[unit] + other[unit] for unit in units})

    def __sub__(self, other: Work) -> Work:
        """Subtract unit by unit.

        Raises:
            ValueError: `other` holds more of some unit.
        """
        units = {**self._amounts, **other._amounts}
        return Work(**{unit: self[unit] - other[unit] for unit in units})

    def __mul__(self, times: int) -> Work:
        """Repeat the work `times` times."""
        return Work(**{unit: amount * times for unit, amount in self._amounts.items()})

    def weigh(self, units: Mapping[str, WorkUnit]) -> float:
        """Return one comparable number: each amount times its unit's weight."""
        return sum(amount * units[unit].weight for unit, amount in self._amounts.items())

    def header(self) -> str:
        """Return the value of `x-headpond-work`: `input_tokens=3, output_tokens=16`."""
        return ", ".join(f"{unit}={amount}" for unit, amount in self._amounts.items())


def _from_amounts(amounts: dict[str, int]) -> Work:
    return Work(**amounts)
