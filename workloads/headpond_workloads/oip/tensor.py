"""A tensor: what a workload takes and gives where callers speak the protocol."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Self

from headpond.errors import InvalidRequest
from headpond_workloads.oip.datatypes import (
    Datatype,
    Number,
    join_elements,
    pack,
    split_elements,
    unpack,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Tensor:
    """Entries of one datatype, in row-major order.

    Attributes:
        name: What the model calls it.
        datatype: What its entries are.
        shape: Entries along each axis; empty for a single entry.
        data: The entries, little-endian; of BYTES each with its length before it, as a
            uint32.
        labels: Names of the entries of a row, where an output has them; shown when a caller
            asks for classes.
    """

    name: str
    datatype: Datatype
    shape: tuple[int, ...]
    data: bytes
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse data of another length than the shape says.

        Raises:
            ValueError: With both numbers.
        """
        least_bytes = self.count * self.datatype.width_bytes
        exact = self.datatype is not Datatype.BYTES
        if len(self.data) < least_bytes or (exact and len(self.data) > least_bytes):
            raise ValueError(
                f"tensor {self.name!r} has {len(self.data)} bytes; {self.datatype} in shape "
                f"{list(self.shape)} takes {least_bytes}{'' if exact else ' or more'}"
            )

    @classmethod
    def of_numbers(
        cls, name: str, datatype: Datatype, shape: Sequence[int], values: Sequence[Number]
    ) -> Self:
        """Make a tensor of numbers.

        Raises:
            ValueError: The datatype cannot hold one of them, or they do not fill the shape.
        """
        return cls(name=name, datatype=datatype, shape=tuple(shape), data=pack(datatype, values))

    @classmethod
    def of_elements(cls, name: str, shape: Sequence[int], elements: Sequence[bytes]) -> Self:
        """Make a tensor of texts or files.

        Raises:
            ValueError: They do not fill the shape.
        """
        if len(elements) != prod(shape):
            raise ValueError(f"{len(elements)} elements do not fill the shape {list(shape)}")
        data = join_elements(elements)
        return cls(name=name, datatype=Datatype.BYTES, shape=tuple(shape), data=data)

    @property
    def count(self) -> int:
        """How many entries it has."""
        return prod(self.shape)

    def numbers(self) -> tuple[Number, ...]:
        """Return its entries as numbers.

        Raises:
            ValueError: It holds BYTES.
        """
        return unpack(self.datatype, self.data)

    def elements(self) -> list[bytes]:
        """Return the entries of a BYTES tensor."""
        return split_elements(self.data, self.count)

    def rows(self, most: int) -> list[Tensor]:
        """Cut an input apart along its first axis.

        Args:
            most: The most rows that one call may hold.

        Raises:
            InvalidRequest: There is no first axis, nothing along it, nothing in a row, or
                there are too many rows.
        """
        param = f"inputs.{self.name}.shape"
        if not self.shape:
            raise InvalidRequest("must begin with the number of rows, as in [1]", param=param)
        if self.count == 0:
            raise InvalidRequest("must hold at least one row", param=param)
        rows, shape = self.shape[0], self.shape[1:]
        if rows > most:
            raise InvalidRequest(f"holds {rows} rows, and {most} are allowed", param=param)
        return [
            Tensor(name=self.name, datatype=self.datatype, shape=shape, data=data)
            for data in self._row_data(rows)
        ]

    def _row_data(self, rows: int) -> list[bytes]:
        if self.datatype is Datatype.BYTES:
            elements = self.elements()
            each = len(elements) // rows
            return [join_elements(elements[at : at + each]) for at in range(0, len(elements), each)]
        each = len(self.data) // rows
        return [self.data[at : at + each] for at in range(0, len(self.data), each)]
