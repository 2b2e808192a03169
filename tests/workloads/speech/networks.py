"""Small networks of random weights, in the form that sherpa-onnx runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FRAMES, SHIFT, ROWS = 21, 16, 4
BANDS, WIDTH, VOCAB, CONTEXT = 80, 16, 12, 2
_KERNEL = 9


def write_transducer(folder: Path, seed: int = 0) -> dict[str, Path]:
    """Write encoder, decoder, joiner and tokens."""
    rng = np.random.default_rng(seed)
    _encoder(rng, folder / "encoder.onnx", ctc=False)
    _decoder(rng, folder / "decoder.onnx")
    _joiner(rng, folder / "joiner.onnx")
    return {name: folder / f"{name}.onnx" for name in ("encoder", "decoder", "joiner")} | {
        "tokens": write_tokens(folder)
    }


def write_ctc(folder: Path, seed: int = 0) -> dict[str, Path]:
    """Write a model whose rows are log probabilities, and tokens."""
    _encoder(np.random.default_rng(seed), folder / "model.onnx", ctc=True)
    return {"model": folder / "model.onnx", "tokens": write_tokens(folder)}


def write_tokens(folder: Path) -> Path:
    names = ["<blk>", "<sos/eos>", "<unk>", *[f"▁{c}" for c in "abcde"], *"nrst"]
    path = folder / "tokens.txt"
    lines = [f"{name} {number}" for number, name in enumerate(names)]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def _encoder(rng: np.random.Generator, path: Path, *, ctc: bool) -> None:
    width = VOCAB if ctc else WIDTH
    weights = {
        "front": rng.normal(0, 0.02, (WIDTH, BANDS, _KERNEL)),
        "input": rng.normal(0, 0.5, (1, 4 * WIDTH, WIDTH)),
        "recurrent": rng.normal(0, 0.5, (1, 4 * WIDTH, WIDTH)),
        "out": rng.normal(0, 2.0 if ctc else 1.0, (WIDTH, width)),
    }
    nodes = [
        helper.make_node("Transpose", ["x"], ["bands"], perm=[0, 2, 1]),
        helper.make_node("Conv", ["bands", "front"], ["rows"], strides=[4]),
        helper.make_node("Transpose", ["rows"], ["steps"], perm=[2, 0, 1]),
        helper.make_node(
            "LSTM",
            ["steps", "input", "recurrent", "", "", "h", "c"],
            ["lstm", "next_h", "next_c"],
            hidden_size=WIDTH,
        ),
        helper.make_node("Squeeze", ["lstm", "one"], ["heard"]),
        helper.make_node("Transpose", ["heard"], ["by_stream"], perm=[1, 0, 2]),
        helper.make_node("MatMul", ["by_stream", "out"], ["raw" if ctc else "encoder_out"]),
    ]
    if ctc:
        nodes.append(helper.make_node("LogSoftmax", ["raw"], ["encoder_out"]))
    state: list[int | str] = [1, "N", WIDTH]
    inputs = [_value("x", ["N", FRAMES, BANDS]), _value("h", state), _value("c", state)]
    outputs = [
        _value("encoder_out", ["N", ROWS, width]),
        _value("next_h", state),
        _value("next_c", state),
    ]
    extra = [numpy_helper.from_array(np.array([1], np.int64), "one")]
    about: dict[str, object] = {"model_type": "lstm", "T": FRAMES, "decode_chunk_len": SHIFT}
    _save(path, nodes, inputs, outputs, weights, extra, about)


def _decoder(rng: np.random.Generator, path: Path) -> None:
    nodes = [
        helper.make_node("Clip", ["y", "zero"], ["ids"]),
        helper.make_node("Gather", ["table", "ids"], ["vectors"]),
        helper.make_node("ReduceMean", ["vectors", "axis"], ["decoder_out"], keepdims=0),
    ]
    weights = {"table": rng.normal(0, 1.0, (VOCAB, WIDTH))}
    extra = [
        numpy_helper.from_array(np.array(0, np.int64), "zero"),
        numpy_helper.from_array(np.array([1], np.int64), "axis"),
    ]
    inputs = [_value("y", ["N", CONTEXT], TensorProto.INT64)]
    about: dict[str, object] = {"context_size": CONTEXT, "vocab_size": VOCAB}
    _save(path, nodes, inputs, [_value("decoder_out", ["N", WIDTH])], weights, extra, about)


def _joiner(rng: np.random.Generator, path: Path) -> None:
    nodes = [
        helper.make_node("Add", ["encoder_out", "decoder_out"], ["sum"]),
        helper.make_node("Tanh", ["sum"], ["joined"]),
        helper.make_node("MatMul", ["joined", "weight"], ["logit"]),
    ]
    weights = {"weight": rng.normal(0, 1.0, (WIDTH, VOCAB))}
    inputs = [_value("encoder_out", ["N", WIDTH]), _value("decoder_out", ["N", WIDTH])]
    _save(path, nodes, inputs, [_value("logit", ["N", VOCAB])], weights, [], {"joiner_dim": WIDTH})


def _value(name: str, shape: list[int | str], kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def _save(
    path: Path,
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    weights: dict[str, np.ndarray],
    extra: list[onnx.TensorProto],
    about: dict[str, object],
) -> None:
    tensors = [numpy_helper.from_array(w.astype(np.float32), name) for name, w in weights.items()]
    graph = helper.make_graph(nodes, "network", inputs, outputs, [*tensors, *extra])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    helper.set_model_props(model, {name: str(value) for name, value in about.items()})
    onnx.checker.check_model(model)
    onnx.save(model, path)
