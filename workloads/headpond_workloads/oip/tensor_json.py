"""Tensors in JSON: flat or nested data in, flat data out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain
from typing import TypeGuard

from headpond_workloads.oip.datatypes import Datatype, Number
from headpond_workloads.oip.tensor import Tensor

_NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""JSON has no numbers for these; the words are those of protobuf's JSON."""

_NESTING = "must be flat, or nested as the shape says"
_BOOLEANS: frozenset[type] = frozenset({bool})
_INTEGERS: frozenset[type] = frozenset({int})
_NUMBERS: frozenset[type] = frozenset({int, float})


def from_json(
    name: str, datatype: Datatype, shape: Sequence[int], data: Sequence[object]
) -> Tensor:
    """Return the tensor that JSON data is.

    Raises:
        ValueError: The data is not what datatype and shape say.
    """
    if datatype is Datatype.BF16:
        raise ValueError("BF16 can be sent as binary data only")
    entries = _flat(data, shape)
    if datatype is Datatype.BYTES:
        return Tensor.of_elements(name, shape, [_text(entry).encode() for entry in entries])
    return Tensor.of_numbers(name, datatype, shape, _numbers(entries, datatype))


def to_json(tensor: Tensor) -> list[object]:
    """Return the entries as JSON holds them; NaN and infinities are texts.

    Raises:
        ValueError: JSON cannot hold them.
    """
    if tensor.datatype is Datatype.BF16:
        raise ValueError("BF16 can be given as binary data only")
    if tensor.datatype is Datatype.BYTES:
        return _texts(tensor.elements())
    numbers = tensor.numbers()
    if tensor.datatype.is_float and not math.isfinite(sum(numbers)):
        return [number if math.isfinite(number) else _word(number) for number in numbers]
    return list(numbers)


def _flat(data: Sequence[object], shape: Sequence[int]) -> Sequence[object]:
    """Return the entries of flat data, or of data that is nested exactly as the shape says."""
    count = math.prod(shape)
    if list not in set(map(type, data)):
        if len(data) == count:
            return data
        raise ValueError(f"must hold {count} entries, as the shape says, not {len(data)}")
    level: Sequence[object] = [data]
    for length in shape:
        lists = [entry for entry in level if isinstance(entry, list) and len(entry) == length]
        if len(lists) != len(level):
            raise ValueError(_NESTING)
        level = list(chain.from_iterable(lists))
    if list in set(map(type, level)):
        raise ValueError(_NESTING)
    return level


def _numbers(entries: Sequence[object], datatype: Datatype) -> Sequence[Number]:
    """Return entries as they are, when all are of the JSON type that the datatype asks for."""
    if datatype.is_float and str in set(map(type, entries)):
        entries = [
            _NON_FINITE.get(each, each) if isinstance(each, str) else each for each in entries
        ]
    if datatype is Datatype.BOOL:
        types, noun = _BOOLEANS, "booleans"
    elif datatype.is_float:
        types, noun = _NUMBERS, "numbers"
    else:
        types, noun = _INTEGERS, "integers"
    if not _all_of(entries, types):
        raise ValueError(f"must hold {noun} for {datatype}")
    return entries


def _all_of(entries: Sequence[object], types: frozenset[type]) -> TypeGuard[Sequence[Number]]:
    """Compare types, not classes: a boolean is an integer to Python, and none in JSON."""
    return types.issuperset(map(type, entries))


def _text(entry: object) -> str:
    if not isinstance(entry, str):
        raise ValueError("must hold strings for BYTES; send other bytes as binary data")
    return entry


def _texts(elements: Sequence[bytes]) -> list[object]:
    try:
        return [element.decode() for element in elements]
    except UnicodeDecodeError:
        raise ValueError("holds bytes that are no UTF-8; ask for binary data") from None


def _word(number: float) -> str:
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
