"""Requests whose tensors are read, and those that are refused, over the whole exchange."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headpond.dialect import Incoming
from headpond.engine import Json
from headpond.errors import HeadpondError, InvalidRequest
from headpond_workloads.oip.binary import LENGTH_HEADER
from headpond_workloads.oip.datatypes import Datatype
from headpond_workloads.oip.infer import InferExchange
from headpond_workloads.oip.reading import read_tensors, read_wire
from workloads.oip.toy import adapter

INPUT: dict[str, Json] = {"name": "x", "shape": [1, 2], "datatype": "INT16", "data": [1, 2]}


def request(**fields: Json) -> bytes:
    return json.dumps({"inputs": [INPUT], **fields}).encode()


def one_input(**fields: Json) -> bytes:
    changed: dict[str, Json] = {**INPUT, **fields}
    return request(inputs=[{name: changed[name] for name in changed if changed[name] is not None}])


def read(body: bytes, headers: Mapping[str, str] | None = None) -> InferExchange:
    path = {"model": "copy"}
    given = {name.encode(): value.encode() for name, value in (headers or {}).items()}
    return InferExchange(adapter, Incoming(body=body, path=path, headers=given))


def refusal(body: bytes, headers: Mapping[str, str] | None = None) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as refused:
        read(body, headers)
    return refused.value


def sized(head: bytes) -> dict[str, str]:
    return {LENGTH_HEADER: str(len(head))}


def binary(size: int, **fields: Json) -> bytes:
    return one_input(data=None, parameters={"binary_data_size": size}, **fields)


def test_one_item_per_row() -> None:
    ask = read(one_input(shape=[2, 1])).ask()
    assert (ask.model, len(ask.items), ask.stream) == ("copy", 2, False)


def test_a_version_in_the_path_is_a_part_of_the_model() -> None:
    incoming = Incoming(body=request(), path={"model": "parrot", "version": "1.0.0"})
    assert InferExchange(adapter, incoming).ask().model == "parrot@1.0.0"


def test_binary_data_follows_the_json_in_the_order_of_the_inputs() -> None:
    inputs: list[Json] = [
        {"name": "a", "shape": [2], "datatype": "INT16", "parameters": {"binary_data_size": 4}},
        {"name": "b", "shape": [1], "datatype": "FP32", "data": [0.5]},
        {"name": "c", "shape": [1], "datatype": "BYTES", "parameters": {"binary_data_size": 6}},
    ]
    head = json.dumps({"inputs": inputs, "parameters": {"temperature": 2}}).encode()
    tail = struct.pack("<hh", 7, -8) + struct.pack("<I", 2) + b"\xff\x00"
    wire, data = read_wire(
        Incoming(body=head + tail, headers={LENGTH_HEADER.encode(): b"%d" % len(head)})
    )
    tensors = read_tensors(wire, data, inputs=("a", "b", "c"), outputs=("y",))
    assert tensors.input("a", Datatype.INT16).numbers() == (7, -8)
    assert tensors.input("b", Datatype.FP32).numbers() == (0.5,)
    assert tensors.input("c", Datatype.BYTES).elements() == [b"\xff\x00"]
    assert tensors.parameters == {"temperature": 2}


@pytest.mark.parametrize(
    ("parameters", "outputs", "expected"),
    [
        (None, None, [("y", False, None), ("sizes", False, None)]),
        ({"binary_data_output": True}, [], [("y", True, None), ("sizes", True, None)]),
        (None, [{"name": "sizes"}], [("sizes", False, None)]),
        (
            {"binary_data_output": True},
            [{"name": "y", "parameters": {"binary_data": False}}, {"name": "sizes"}],
            [("y", False, None), ("sizes", True, None)],
        ),
        (None, [{"name": "y", "parameters": {"classification": 2}}], [("y", False, 2)]),
    ],
)
def test_which_outputs_are_wanted(
    parameters: Json, outputs: Json, expected: list[tuple[str, bool, int | None]]
) -> None:
    body = request(parameters=parameters, outputs=outputs)
    wire, data = read_wire(Incoming(body=body))
    wanted = read_tensors(wire, data, inputs=("x",), outputs=("y", "sizes")).outputs
    assert [(each.name, each.is_binary, each.classification) for each in wanted] == expected


@pytest.mark.parametrize(
    ("body", "param", "message"),
    [
        (b"[1]", None, "should be an object"),
        (b"{", None, "not valid JSON"),
        (b"\xff", None, "not valid JSON"),
        (request(inputs=[]), "inputs", "at least 1"),
        (request(inputs=[INPUT] * 65), "inputs", "at most 64"),
        (request(inputs=[INPUT, INPUT]), "inputs.x", "more than once"),
        (one_input(name="z"), "inputs.z", "none of this model's inputs: `x`"),
        (one_input(name=""), "inputs.0.name", "at least 1 character"),
        (one_input(shape="2"), "inputs.0.shape", "array"),
        (one_input(shape=["2"]), "inputs.0.shape.0", "valid integer"),
        (one_input(shape=[2.5]), "inputs.0.shape.0", "valid integer"),
        (one_input(shape=[-1, -2]), "inputs.x.shape", "no negative number"),
        (one_input(shape=[2**62, 2**62]), "inputs.x.shape", "more entries than a request can hold"),
        (one_input(shape=[2**62, 0], data=[]), "inputs.x.shape", "more entries"),
        (one_input(shape=[1] * 17), "inputs.0.shape", "at most 16"),
        (one_input(shape=[1, 3]), "inputs.x.data", "must hold 3 entries"),
        (one_input(shape=[0, 2], data=[]), "inputs.x.shape", "at least one row"),
        (one_input(shape=[9, 1], data=[1] * 9), "inputs.x.shape", "9 rows, and 8 are allowed"),
        (one_input(shape=[2**17], datatype="BYTES"), "inputs.x.shape", "more than 65536 entries"),
        (one_input(datatype="FP8"), "inputs.0.datatype", "Input should be 'BOOL'"),
        (one_input(datatype="BF16"), "inputs.x.data", "binary data only"),
        (one_input(data=[1, 2**15]), "inputs.x.data", "a value that INT16 cannot"),
        (one_input(data=None), "inputs.x.data", "or else parameters.binary_data_size"),
        (one_input(data={"0": 1}), "inputs.0.data", "array"),
        (
            one_input(parameters={"binary_data_size": 0}),
            "inputs.x.data",
            "or else parameters.binary_data_size; not both",
        ),
        (
            one_input(parameters={"binary_data_size": "4"}),
            "inputs.0.parameters.binary_data_size",
            "valid integer",
        ),
        (
            binary(4),
            "inputs.x.parameters.binary_data_size",
            "is 4, but 0 bytes are left after the JSON",
        ),
        (
            one_input(data=None, parameters={"shared_memory_region": "r"}),
            "inputs.x.parameters.shared_memory_region",
            "not supported",
        ),
        (request(outputs=[{"name": "z"}]), "outputs.z", "outputs: `y`, `sizes`"),
        (request(outputs=[{"name": "y"}, {"name": "y"}]), "outputs.y", "more than once"),
        (
            request(outputs=[{"name": "y", "parameters": {"classification": 0}}]),
            "outputs.0.parameters.classification",
            "greater than or equal to 1",
        ),
        (
            request(outputs=[{"name": "y", "parameters": {"shared_memory_region": "r"}}]),
            "outputs.y.parameters.shared_memory_region",
            "not supported",
        ),
        (
            request(parameters={"binary_data_output": 1}),
            "parameters.binary_data_output",
            "valid boolean",
        ),
        (request(id=7), "id", "valid string"),
    ],
)
def test_what_is_refused(body: bytes, param: str | None, message: str) -> None:
    error = refusal(body)
    assert error.status == 400
    assert error.param == param
    assert message in error.message


@pytest.mark.parametrize(
    ("head", "tail", "param", "message"),
    [
        (binary(4), b"123", "inputs.x.parameters.binary_data_size", "is 4, but 3 bytes are left"),
        (binary(4), b"12345", "inputs", "1 bytes after the JSON belong to no input"),
        (binary(3), b"123", "inputs.x.data", "must hold 4 bytes, as the shape says, not 3"),
        (binary(2**70), b"1234", "inputs.x.parameters.binary_data_size", "4 bytes are left"),
        (request(), b"1234", "inputs", "4 bytes after the JSON belong to no input"),
        (one_input(shape=[True]), b"\x00", "inputs.0.shape.0", "valid integer"),
    ],
)
def test_binary_data_that_is_refused(head: bytes, tail: bytes, param: str, message: str) -> None:
    error = refusal(head + tail, sized(head))
    assert error.param == param
    assert message in error.message


@pytest.mark.parametrize(
    ("length", "message"),
    [
        ("0", "without its JSON"),
        ("9999", "is 9999, but the body has"),
        ("-1", "whole number"),
        ("²", "whole number"),
        ("", "whole number"),
        ("9" * 5000, "whole number"),
    ],
)
def test_a_length_of_the_json_that_is_none(length: str, message: str) -> None:
    error = refusal(request(), {LENGTH_HEADER: length})
    assert error.param == LENGTH_HEADER
    assert message in error.message


def test_a_workload_asks_for_the_inputs_that_it_needs() -> None:
    wire, data = read_wire(Incoming(body=request()))
    tensors = read_tensors(wire, data, inputs=("x", "z"), outputs=("y",))
    with pytest.raises(InvalidRequest, match="the input `z` is missing"):
        tensors.input("z", Datatype.BYTES)
    with pytest.raises(InvalidRequest, match="must be FP32 or BYTES, not INT16") as refused:
        tensors.input("x", Datatype.FP32, Datatype.BYTES)
    assert refused.value.param == "inputs.x.datatype"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
TENSORS = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["x", "y", ""]) | JSON,
        "shape": st.lists(st.integers(-1, 3), max_size=3) | JSON,
        "datatype": st.sampled_from(Datatype) | JSON,
        "data": st.lists(st.integers(-1, 300) | JSON, max_size=6) | JSON,
        "parameters": st.fixed_dictionaries({}, optional={"binary_data_size": st.integers(-1, 9)})
        | JSON,
    },
)
REQUESTS = st.fixed_dictionaries(
    {"inputs": st.lists(TENSORS, max_size=3) | JSON},
    optional={
        "id": JSON,
        "parameters": JSON,
        "outputs": st.lists(
            st.fixed_dictionaries(
                {"name": st.sampled_from(["y", "sizes"])},
                optional={
                    "parameters": st.fixed_dictionaries(
                        {}, optional={"classification": st.integers(-1, 3), "binary_data": JSON}
                    )
                },
            ),
            max_size=3,
        )
        | JSON,
    },
)


@given(body=REQUESTS, tail=st.binary(max_size=12), cut=st.integers(-3, 3), counted=st.booleans())
def test_json_never_raises_anything_else(
    body: object, tail: bytes, cut: int, *, counted: bool
) -> None:
    head = json.dumps(body).encode()
    headers = {LENGTH_HEADER: str(len(head) + cut)} if counted else {}
    try:
        read(head + tail, headers).ask()
    except HeadpondError as error:
        assert error.status == 400  # noqa: PT017


@given(body=st.binary(max_size=64), header=st.none() | st.text(max_size=6))
@example(body=b"[" * 100_000, header=None)
@example(body=b'{"inputs":' * 10_000, header=None)
@example(body=b'{"inputs":[{"name":"\\ud800"}]}', header=None)
@example(body=b'{"inputs":[{"name":"x","shape":[' + b"9" * 5000 + b"]}]}", header=None)
@example(body=one_input(data=["\ud800"], datatype="BYTES", shape=[1]), header=None)
def test_bytes_never_raise_anything_else(body: bytes, header: str | None) -> None:
    headers = {} if header is None else {LENGTH_HEADER: header}
    try:
        read(body, headers).ask()
    except HeadpondError as error:
        assert error.status == 400  # noqa: PT017
