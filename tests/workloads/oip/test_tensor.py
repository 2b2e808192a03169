from __future__ import annotations

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headpond.errors import InvalidRequest
from headpond_workloads.oip.binary import from_binary
from headpond_workloads.oip.datatypes import Datatype, Number
from headpond_workloads.oip.schema import InferOutput
from headpond_workloads.oip.tensor import Tensor
from headpond_workloads.oip.tensor_json import from_json, to_json

FLOATS = {
    Datatype.FP16: st.floats(width=16),
    Datatype.FP32: st.floats(width=32),
    Datatype.FP64: st.floats(width=64),
}


def entries(datatype: Datatype) -> st.SearchStrategy[Number]:
    if datatype is Datatype.BOOL:
        return st.booleans()
    if datatype in FLOATS:
        return FLOATS[datatype]
    bits = int(datatype.removeprefix("UINT").removeprefix("INT"))
    low = 0 if datatype.startswith("U") else -(2 ** (bits - 1))
    return st.integers(low, low + 2**bits - 1)


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    datatype = draw(st.sampled_from(Datatype))
    shape = draw(st.lists(st.integers(0, 4), max_size=4))
    count = math.prod(shape)
    if datatype is Datatype.BYTES:
        texts = draw(st.lists(st.binary(max_size=9), min_size=count, max_size=count))
        return Tensor.of_elements("x", shape, texts)
    if datatype is Datatype.BF16:
        data = draw(st.binary(min_size=2 * count, max_size=2 * count))
        return Tensor(name="x", datatype=datatype, shape=tuple(shape), data=data)
    numbers = draw(st.lists(entries(datatype), min_size=count, max_size=count))
    return Tensor.of_numbers("x", datatype, shape, numbers)


def nested(flat: list[object], shape: tuple[int, ...]) -> list[object]:
    if len(shape) < 2:
        return flat
    each = math.prod(shape[1:])
    return [nested(flat[at * each : (at + 1) * each], shape[1:]) for at in range(shape[0])]


def over_the_wire(tensor: Tensor) -> list[object]:
    """The data of a tensor after the wire type has written it as JSON and read it again."""
    output = InferOutput(
        name="x", shape=tensor.shape, datatype=tensor.datatype, data=to_json(tensor)
    )
    text = output.model_dump_json()
    assert "null" not in text
    data = InferOutput.model_validate_json(text).data
    assert data is not None
    return data


def is_text(tensor: Tensor) -> bool:
    try:
        return all(element.decode() is not None for element in tensor.elements())
    except UnicodeDecodeError:
        return False


@given(tensors())
def test_a_tensor_survives_binary(tensor: Tensor) -> None:
    assert from_binary("x", tensor.datatype, tensor.shape, tensor.data) == tensor
    if tensor.datatype is Datatype.BYTES:
        assert Tensor.of_elements("x", tensor.shape, tensor.elements()) == tensor


@given(tensors())
def test_a_tensor_survives_json_flat_and_nested(tensor: Tensor) -> None:
    if tensor.datatype is Datatype.BF16:
        with pytest.raises(ValueError, match="BF16"):
            to_json(tensor)
        return
    if tensor.datatype is Datatype.BYTES and not is_text(tensor):
        with pytest.raises(ValueError, match="UTF-8"):
            to_json(tensor)
        return
    data = over_the_wire(tensor)
    for form in (data, nested(data, tensor.shape)):
        again = from_json("x", tensor.datatype, tensor.shape, form)
        # NaN comes back as NaN, though not with the same bits.
        assert to_json(again) == to_json(tensor)
        if not tensor.datatype.is_float:
            assert again == tensor


@given(tensors())
def test_rows_are_the_tensor_cut_along_its_first_axis(tensor: Tensor) -> None:
    if not tensor.count or not tensor.shape:
        with pytest.raises(InvalidRequest, match=r"at least one row|number of rows"):
            tensor.rows(most=9)
        return
    rows = tensor.rows(most=4)
    assert [row.shape for row in rows] == [tensor.shape[1:]] * tensor.shape[0]
    assert b"".join(row.data for row in rows) == tensor.data
    with pytest.raises(InvalidRequest, match="are allowed") as refusal:
        tensor.rows(most=len(rows) - 1)
    assert refusal.value.param == "inputs.x.shape"


def test_numbers_are_little_endian_and_in_row_order() -> None:
    tensor = from_json("x", Datatype.INT16, [2, 2], [[1, 2], [3, -4]])
    assert tensor.data == bytes([1, 0, 2, 0, 3, 0, 0xFC, 0xFF])
    assert tensor.numbers() == (1, 2, 3, -4)
    texts = from_json("x", Datatype.BYTES, [2], ["ü", ""])
    assert texts.data == b"\x02\x00\x00\x00\xc3\xbc\x00\x00\x00\x00"


def test_bf16_is_the_upper_half_of_a_float32() -> None:
    values = [1.0, -2.5, 0.15625]
    data = b"".join(struct.pack("<f", value)[2:] for value in values)
    tensor = from_binary("x", Datatype.BF16, [3], data)
    assert tensor.numbers() == tuple(values)


def test_what_is_not_finite_is_a_word_in_json() -> None:
    data: list[object] = ["NaN", "Infinity", "-Infinity", 1.5]
    tensor = from_json("x", Datatype.FP32, [4], data)
    assert to_json(tensor) == data
    assert from_json("x", Datatype.FP32, [2], [math.nan, math.inf]).data == tensor.data[:8]


@pytest.mark.parametrize(
    ("datatype", "shape", "data", "message"),
    [
        ("INT8", [1], [128], "a value that INT8 cannot"),
        ("UINT64", [1], [-1], "a value that UINT64 cannot"),
        ("INT64", [1], [10**400], "a value that INT64 cannot"),
        ("FP16", [1], [1e6], "a value that FP16 cannot"),
        ("FP32", [1], [1e39], "a value that FP32 cannot"),
        ("FP64", [1], [10**400], "a value that FP64 cannot"),
        ("INT32", [1], [1.0], "integers for INT32"),
        ("INT32", [1], [True], "integers for INT32"),
        ("INT32", [1], ["NaN"], "integers for INT32"),
        ("INT32", [1], [None], "integers for INT32"),
        ("FP32", [1], [True], "numbers for FP32"),
        ("FP32", [1], ["nan"], "numbers for FP32"),
        ("FP32", [1], [{}], "numbers for FP32"),
        ("BOOL", [1], [1], "booleans for BOOL"),
        ("BYTES", [1], [7], "strings for BYTES"),
        ("BF16", [1], [1.0], "BF16 can be sent as binary data only"),
        ("INT8", [2, 2], [1, 2, 3], "must hold 4 entries, as the shape says, not 3"),
        ("INT8", [], [], "must hold 1 entries"),
        ("INT8", [2, 2], [[1, 2], [3]], "nested as the shape says"),
        ("INT8", [2, 2], [[1, 2], 3], "nested as the shape says"),
        ("INT8", [2, 2], [[1, 2, 3, 4]], "nested as the shape says"),
        ("INT8", [4], [[1, 2], [3, 4]], "nested as the shape says"),
        ("INT8", [2, 1], [[[1]], [[2]]], "nested as the shape says"),
    ],
)
def test_data_that_is_not_what_the_shape_says(
    datatype: str, shape: list[int], data: list[object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        from_json("x", Datatype(datatype), shape, data)


@pytest.mark.parametrize(
    ("datatype", "shape", "data", "message"),
    [
        ("FP32", [2], b"\0" * 7, "must hold 8 bytes, as the shape says, not 7"),
        ("BOOL", [2], b"\x00\x02", "bytes of 0 or 1"),
        ("BYTES", [1], b"\x05\0\0\0four", "ends amid an entry"),
        ("BYTES", [2], b"\0\0\0\0\0\0", "must hold 2 entries, as the shape says, not 1"),
        ("BYTES", [1], b"\0" * 8, "more than 1 entries"),
    ],
)
def test_binary_data_that_is_not_what_the_shape_says(
    datatype: str, shape: list[int], data: bytes, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        from_binary("x", Datatype(datatype), shape, data)


def test_an_output_must_fill_its_shape() -> None:
    for data in (b"\0" * 3, b"\0" * 5):
        with pytest.raises(ValueError, match="bytes; UINT8 in shape \\[2, 2\\] takes 4"):
            Tensor(name="y", datatype=Datatype.UINT8, shape=(2, 2), data=data)
    with pytest.raises(ValueError, match="1 elements do not fill"):
        Tensor.of_elements("y", [2], [b""])
    with pytest.raises(ValueError, match="not packed as BYTES"):
        Tensor.of_numbers("y", Datatype.BYTES, [1], [1])
    with pytest.raises(ValueError, match="no numbers"):
        Tensor.of_elements("y", [1], [b"1"]).numbers()
