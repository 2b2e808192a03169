"""The hard limits of a record, bound to one bundle's symbols."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headpond.errors import InvalidRequest, PayloadTooLarge
from headpond.record import Dim, Shape, WorkloadRecord


class Limits:
    """What a request may at most be, checked before anything is allocated."""

    __slots__ = ("_bounded", "_max_items", "_totals")

    def __init__(
        self, record: WorkloadRecord, symbols: Mapping[str, int], tighter: Mapping[str, int]
    ) -> None:
        """Resolve the limits that are symbols.

        Args:
            record: Whose dimensions are limited.
            symbols: The integers of the bundle's model section.
            tighter: The bundle's own limits, by symbol or dimension.
        """
        self._max_items = record.request.max_items
        self._totals = [
            (dim, dim.call_limit) for dim in record.request.dims if dim.call_limit is not None
        ]
        bounds = {**symbols, **tighter}
        self._bounded: list[tuple[Dim, int]] = []
        for dim in record.request.dims:
            declared = bounds[dim.limit] if isinstance(dim.limit, str) else dim.limit
            given = [limit for limit in (declared, tighter.get(dim.name)) if limit is not None]
            if given:
                self._bounded.append((dim, min(given)))

    def check_items(self, count: int) -> None:
        """Refuse a call without items, or with too many.

        Raises:
            InvalidRequest: With the count and the limit.
        """
        if not 1 <= count <= self._max_items:
            raise InvalidRequest(f"a request holds 1 to {self._max_items} items, not {count}")

    def check_shape(self, shape: Shape) -> None:
        """Refuse a shape with a dimension beyond its limit.

        Raises:
            InvalidRequest: Names the dimension, the numbers and the request field.
        """
        for dim, limit in self._bounded:
            if shape[dim.name] > limit:
                raise InvalidRequest(
                    f"{dim.name} is {shape[dim.name]}; this model takes at most {limit}",
                    param=dim.param,
                )

    def check_call(self, shapes: Sequence[Shape]) -> None:
        """Refuse a call whose items have too much of a dimension together.

        Raises:
            PayloadTooLarge: Names the dimension and the numbers.
        """
        for dim, limit in self._totals:
            total = sum(shape[dim.name] for shape in shapes)
            if total > limit:
                raise PayloadTooLarge(
                    f"{dim.name} of all items are {total}; a call takes at most {limit}, so send "
                    "it in parts",
                    param=dim.param,
                )
