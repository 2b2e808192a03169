"""Triton's own HTTP client against the routes of the Open Inference Protocol."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
import tritonclient.http as triton  # type: ignore[import-untyped]
import uvicorn
from tritonclient.utils import (  # type: ignore[import-untyped]
    InferenceServerException,
    np_to_triton_dtype,
)

from headpond.http.app import build_app
from headpond.settings import Settings
from workloads.oip.toy import BUNDLE, MODEL, VERSION, copying, record

Array = npt.NDArray[np.generic]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("oip")
    running: list[uvicorn.Server] = []

    async def serve(listening: socket.socket) -> None:
        async with copying(folder) as backend:
            app = build_app([record], backend, Settings())
            running.append(uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off")))
            await running[0].serve(sockets=[listening])

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=asyncio.run, args=[serve(listening)])
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        running[0].should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def client(address: str) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(address) as opened:
        yield opened


def given(array: Array, *, binary: bool) -> triton.InferInput:
    tensor = triton.InferInput("x", list(array.shape), np_to_triton_dtype(array.dtype))
    tensor.set_data_from_numpy(array, binary_data=binary)
    return tensor


def output(result: triton.InferResult, name: str) -> Array:
    array = result.as_numpy(name)
    assert isinstance(array, np.ndarray)
    return array


NUMBERS = ["bool", "u1", "u2", "u4", "i1", "i2", "i4", "i8", "f2", "f4", "f8"]


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("kind", NUMBERS)
def test_numbers_come_back(
    client: triton.InferenceServerClient, kind: str, *, binary: bool
) -> None:
    array: Array = np.array([[0, 1, 100], [7, 0, 1]]).astype(kind)
    asked = [triton.InferRequestedOutput("y", binary_data=binary)]
    result = client.infer(MODEL, [given(array, binary=binary)], outputs=asked, request_id="i7")
    back = output(result, "y")
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back, array)
    response = result.get_response()
    assert (response["id"], response["model_name"]) == ("i7", MODEL)
    assert ("data" in response["outputs"][0]) is not binary


def test_without_outputs_all_come_in_binary(client: triton.InferenceServerClient) -> None:
    array: Array = np.linspace(0, 1, 2 * 4, dtype=np.float32).reshape(2, 4)
    result = client.infer(MODEL, [given(array, binary=True)])
    np.testing.assert_array_equal(output(result, "y"), array)
    np.testing.assert_array_equal(output(result, "sizes"), [16, 16])
    assert "id" not in result.get_response()


@pytest.mark.parametrize("binary", [False, True])
def test_texts_come_back(client: triton.InferenceServerClient, *, binary: bool) -> None:
    array: Array = np.array([[b"pond"], ["Fröschlein".encode()]], dtype=np.object_)
    asked = [triton.InferRequestedOutput("y", binary_data=binary)]
    result = client.infer(MODEL, [given(array, binary=binary)], outputs=asked)
    texts = [
        text if isinstance(text, bytes) else str(text).encode()
        for text in output(result, "y").ravel().tolist()
    ]
    assert texts == array.ravel().tolist()


def test_bf16_comes_back_in_binary(client: triton.InferenceServerClient) -> None:
    array: Array = np.array([[1.0, -2.5, 0.15625]], dtype=ml_dtypes.bfloat16)
    result = client.infer(MODEL, [given(array, binary=True)])
    np.testing.assert_array_equal(output(result, "y"), array)
    asked = [triton.InferRequestedOutput("y", binary_data=False)]
    with pytest.raises(InferenceServerException, match="BF16 can be given as binary data only"):
        client.infer(MODEL, [given(array, binary=True)], outputs=asked)


@pytest.mark.parametrize("binary", [False, True])
def test_what_is_not_finite_comes_back(
    client: triton.InferenceServerClient, *, binary: bool
) -> None:
    array: Array = np.array([[np.nan, np.inf, -np.inf, 0.5]], dtype=np.float32)
    asked = [triton.InferRequestedOutput("y", binary_data=binary)]
    result = client.infer(MODEL, [given(array, binary=binary)], outputs=asked)
    np.testing.assert_array_equal(output(result, "y"), array)


@pytest.mark.parametrize("binary", [False, True])
def test_classes(client: triton.InferenceServerClient, *, binary: bool) -> None:
    array: Array = np.array([[0.25, 2, 0.5], [8, 1, 2]], dtype=np.float32)
    asked = [triton.InferRequestedOutput("y", binary_data=binary, class_count=2)]
    result = client.infer(MODEL, [given(array, binary=True)], outputs=asked)
    texts = [
        text.decode() if isinstance(text, bytes) else text
        for text in output(result, "y").ravel().tolist()
    ]
    assert texts == ["2:1:bee", "0.5:2:cat", "8:0:ant", "2:2:cat"]


def test_a_picture(client: triton.InferenceServerClient) -> None:
    array: Array = np.random.default_rng(1).random((1, 224, 224, 3)).astype(np.float32)
    for binary in (False, True):
        result = client.infer(MODEL, [given(array, binary=binary)])
        np.testing.assert_array_equal(output(result, "y"), array)


def test_metadata_and_ready(client: triton.InferenceServerClient) -> None:
    for name, version in ((MODEL, ""), (BUNDLE, VERSION)):
        assert client.is_model_ready(name, version)
        told = client.get_model_metadata(name, version)
        assert (told["name"], told["versions"], told["platform"]) == (name, [VERSION], "toy")
        assert told["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}]
    result = client.infer(
        BUNDLE, [given(np.zeros((1, 2), np.int8), binary=True)], model_version=VERSION
    )
    assert result.get_response()["model_version"] == VERSION


def test_the_configuration(client: triton.InferenceServerClient) -> None:
    for name, version in ((MODEL, ""), (BUNDLE, VERSION)):
        told = client.get_model_config(name, version)
        assert (told["name"], told["platform"], told["max_batch_size"]) == (name, "toy", 0)
        assert told["input"] == [{"name": "x", "data_type": "TYPE_FP32", "dims": [-1, 3]}]


def test_what_there_is_not_is_an_error_that_the_client_can_read(
    client: triton.InferenceServerClient,
) -> None:
    asked: list[Callable[[], object]] = [
        lambda: client.get_model_config("nobody"),
        lambda: client.get_inference_statistics(MODEL),
        client.get_trace_settings,
        client.get_system_shared_memory_status,
        lambda: client.unload_model(MODEL),
    ]
    for ask in asked:
        with pytest.raises(InferenceServerException, match=r"nobody|nothing at this") as missing:
            ask()
        assert missing.value.status() == "404"


def test_a_model_that_is_not_there(client: triton.InferenceServerClient) -> None:
    assert not client.is_model_ready("nobody")
    assert not client.is_model_ready(BUNDLE, "2")
    with pytest.raises(InferenceServerException, match="nobody") as missing:
        client.infer("nobody", [given(np.zeros((1, 1), np.int8), binary=True)])
    assert missing.value.status() == "404"
    with pytest.raises(InferenceServerException, match="nobody"):
        client.get_model_metadata("nobody")


def test_errors_say_what_is_wrong(client: triton.InferenceServerClient) -> None:
    lying = given(np.zeros((2, 3), np.float32), binary=True)
    lying.set_shape([2, 4])
    for inputs, outputs, message in (
        ([lying], None, r"inputs.x.data: must hold 32 bytes, as the shape says, not 24"),
        ([triton.InferInput("z", [1], "FP32")], None, r"inputs.z: is none of this model's inputs"),
        (
            [given(np.zeros((1, 1), np.int8), binary=False)],
            [triton.InferRequestedOutput("q")],
            r"outputs.q: is none of this model's outputs: `y`, `sizes`",
        ),
        (
            [given(np.zeros((1, 1), np.uint64), binary=True)],
            None,
            r"inputs.x: is too large a kind of number",
        ),
    ):
        with pytest.raises(InferenceServerException, match=message) as refusal:
            client.infer(MODEL, inputs, outputs=outputs)
        assert refusal.value.status() == "400"
