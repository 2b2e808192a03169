"""The toy workload over HTTP, in one process."""

from __future__ import annotations

import json
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from headpond.backend import LocalBackend
from headpond.engine import Json
from headpond.http.app import build_app
from headpond.settings import Settings
from headpond_workloads.oip.binary import LENGTH_HEADER
from workloads.oip.toy import BUNDLE, LABELS, MODEL, VERSION, adapter, copying, record

INFER = f"/v2/models/{MODEL}/infer"
INPUT: Json = {"name": "x", "shape": [2, 2], "datatype": "FP32", "data": [[0.5, 2.5], [3, -1]]}


@pytest.fixture
async def backend(tmp_path: Path) -> AsyncIterator[LocalBackend]:
    async with copying(tmp_path) as running:
        yield running


@pytest.fixture
async def client(backend: LocalBackend) -> AsyncIterator[httpx2.AsyncClient]:
    transport = httpx2.ASGITransport(app=build_app([record], backend, Settings()))
    async with httpx2.AsyncClient(transport=transport, base_url="http://test") as opened:
        yield opened


async def test_tensors_come_back_in_json(client: httpx2.AsyncClient) -> None:
    answer = await client.post(INFER, json={"id": "i1", "inputs": [INPUT]})
    assert answer.status_code == 200
    assert answer.json() == {
        "model_name": MODEL,
        "model_version": VERSION,
        "id": "i1",
        "outputs": [
            {"name": "y", "shape": [2, 2], "datatype": "FP32", "data": [0.5, 2.5, 3.0, -1.0]},
            {"name": "sizes", "shape": [2], "datatype": "INT64", "data": [8, 8]},
        ],
    }
    assert answer.headers["x-headpond-work"] == "input_bytes=16, output_chunks=2"


async def test_without_an_id_there_is_none(client: httpx2.AsyncClient) -> None:
    answer = await client.post(INFER, json={"id": None, "inputs": [INPUT]})
    assert "id" not in answer.json()


async def test_binary_outputs_follow_the_json(client: httpx2.AsyncClient) -> None:
    outputs: Json = [
        {"name": "sizes", "parameters": {"binary_data": True}},
        {"name": "y", "parameters": {"classification": 1}},
    ]
    answer = await client.post(INFER, json={"inputs": [INPUT], "outputs": outputs})
    assert answer.headers["content-type"] == "application/octet-stream"
    length = int(answer.headers[LENGTH_HEADER])
    assert json.loads(answer.content[:length])["outputs"] == [
        {
            "name": "sizes",
            "shape": [2],
            "datatype": "INT64",
            "parameters": {"binary_data_size": 16},
        },
        {
            "name": "y",
            "shape": [2, 1],
            "datatype": "BYTES",
            "data": [f"2.5:1:{LABELS[1]}", f"3:0:{LABELS[0]}"],
        },
    ]
    assert answer.content[length:] == struct.pack("<qq", 8, 8)


async def test_nothing_makes_the_json_invalid(client: httpx2.AsyncClient) -> None:
    head = json.dumps(
        {
            "inputs": [
                {
                    "name": "x",
                    "shape": [1, 3],
                    "datatype": "FP16",
                    "parameters": {"binary_data_size": 6},
                }
            ],
            "outputs": [{"name": "y"}],
        }
    ).encode()
    tail = struct.pack("<eee", float("nan"), float("-inf"), 1.0)
    answer = await client.post(INFER, content=head + tail, headers={LENGTH_HEADER: str(len(head))})
    assert json.loads(answer.content, parse_constant=pytest.fail)["outputs"][0]["data"] == [
        "NaN",
        "-Infinity",
        1.0,
    ]


async def test_bytes_that_are_no_text_need_binary_data(client: httpx2.AsyncClient) -> None:
    given: Json = {
        "name": "x",
        "shape": [1],
        "datatype": "BYTES",
        "parameters": {"binary_data_size": 5},
    }
    head = json.dumps({"inputs": [given]}).encode()
    answer = await client.post(
        INFER,
        content=head + b"\x01\x00\x00\x00\xff",
        headers={LENGTH_HEADER: str(len(head))},
    )
    assert answer.status_code == 400
    assert answer.json() == {
        "error": "outputs.y.parameters.binary_data: "
        "holds bytes that are no UTF-8; ask for binary data"
    }


@pytest.mark.parametrize(
    ("change", "status", "error"),
    [
        ({"shape": [2, -2]}, 400, "inputs.x.shape: must hold no negative number"),
        ({"shape": "22"}, 400, "inputs.0.shape: Input should be an array"),
        ({"datatype": "UINT64", "data": [1, 2, 3, 4]}, 400, "inputs.x: is too large a kind"),
        ({"datatype": "BYTES", "data": ["a"] * 4}, 400, "entries of BYTES cannot be classes"),
    ],
)
async def test_errors_are_one_text(
    client: httpx2.AsyncClient, change: dict[str, Json], status: int, error: str
) -> None:
    assert isinstance(INPUT, dict)
    outputs: Json = [{"name": "y", "parameters": {"classification": 1}}]
    answer = await client.post(INFER, json={"inputs": [INPUT | change], "outputs": outputs})
    assert answer.status_code == status
    (text,) = answer.json().values()
    assert error in text


async def test_a_row_that_fails_is_named(client: httpx2.AsyncClient) -> None:
    answer = await client.post(INFER, json={"inputs": [INPUT], "parameters": {"breaks": 1}})
    assert answer.status_code == 500
    assert answer.json() == {"error": "inputs, row 1: it broke"}


async def test_an_error_is_bounded(client: httpx2.AsyncClient) -> None:
    assert isinstance(INPUT, dict)
    answer = await client.post(INFER, json={"inputs": [INPUT | {"datatype": "x" * 90_000}]})
    assert answer.status_code == 400
    assert len(answer.content) < 3000


@pytest.mark.parametrize("path", [f"/v2/models/{MODEL}", f"/v2/models/{BUNDLE}/versions/{VERSION}"])
async def test_a_model_says_what_it_is_and_that_it_can_serve(
    client: httpx2.AsyncClient, path: str
) -> None:
    name = path.split("/")[3]
    assert (await client.get(path)).json() == {
        "name": name,
        "versions": [VERSION],
        "platform": "toy",
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}],
        "outputs": [
            {"name": "y", "datatype": "FP32", "shape": [-1, 3]},
            {"name": "sizes", "datatype": "INT64", "shape": [-1]},
        ],
    }
    assert (await client.get(f"{path}/ready")).json() == {"name": name, "ready": True}
    answer = await client.post(f"{path}/infer", json=dict(adapter.example))
    assert (answer.json()["model_name"], answer.json()["model_version"]) == (name, VERSION)


@pytest.mark.parametrize("name", ["nobody", f"{BUNDLE}/versions/2"])
async def test_a_model_that_is_not_there(client: httpx2.AsyncClient, name: str) -> None:
    for answer in (
        await client.get(f"/v2/models/{name}"),
        await client.get(f"/v2/models/{name}/ready"),
        await client.post(f"/v2/models/{name}/infer", json={"inputs": [INPUT]}),
    ):
        assert answer.status_code == 404
        assert "does not exist" in answer.json()["error"]


async def test_the_routes_are_documented(client: httpx2.AsyncClient) -> None:
    paths = (await client.get("/openapi.json")).json()["paths"]
    for model in ("/v2/models/{model}", "/v2/models/{model}/versions/{version}"):
        assert set(paths[model]) == {"get"}
        assert set(paths[f"{model}/ready"]) == {"get"}
        assert set(paths[f"{model}/infer"]) == {"post"}
