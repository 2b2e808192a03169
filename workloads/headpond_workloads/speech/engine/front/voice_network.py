"""Silero's network as one graph over many windows of many streams, made from its weights.

The graphs that silero publishes hear one window of each stream in a call, or many windows of
one stream, and convolve the few frames of each window by themselves. Here what does not
depend on the window before is one product for all windows of all streams, and only the LSTM
goes window by window. A convolution over the four frames of a window is a product too: with
its kernel once for each place.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime  # type: ignore[import-untyped]
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, load, numpy_helper

from headpond.errors import BundleError

Floats = NDArray[np.float32]

CONTEXT = 64
"""How many samples of the window before belong to a window."""

WINDOW = 512
UNITS = 128

_HOP = 128
_FRAMES = 4
_MIRROR = _HOP * (_FRAMES + 1) - WINDOW - CONTEXT
_OPSET, _IR_VERSION = 18, 9
_LSTM_WEIGHTS = slice(1, 4)  # of the inputs of ONNX's node


class VoiceNetwork:
    """The network at 16 kHz."""

    def __init__(self, path: Path) -> None:
        """Build it.

        Args:
            path: `silero_vad_16k_sequence.onnx` of the package silero-vad.

        Raises:
            BundleError: The file holds other weights, or is none.
        """
        try:
            model = _model(_weights(path))
        except (OSError, DecodeError, KeyError, ValueError) as error:
            raise BundleError(
                f"{path.name} holds no weights of silero's network: {error}", param="artifacts"
            ) from error
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )

    def __call__(
        self, windows: Floats, lengths: Sequence[int], memory: Floats
    ) -> tuple[Floats, Floats]:
        """Hear windows.

        Args:
            windows: [most windows, streams, context and window]; what follows a stream's last
                window is not heard.
            lengths: How many windows each stream has, at least 1.
            memory: What the network kept of each stream, [2, streams, units].

        Returns:
            Probabilities [most windows, streams], and the memory afterwards.
        """
        mirrored = windows[..., -2 : -2 - _MIRROR : -1]
        fed = {
            "windows": np.concatenate((windows, mirrored), axis=-1),
            "lengths": np.array(lengths, np.int32),
            "h": memory[:1],
            "c": memory[1:],
        }
        probabilities, *after = self._session.run(["probabilities", "next_h", "next_c"], fed)
        return probabilities, np.concatenate(after)


def _weights(path: Path) -> dict[str, Floats]:
    graph = load(path).graph
    weights = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
    for node in graph.node:
        if node.op_type == "LSTM":
            names = ("lstm", "lstm_recurrent", "lstm_bias")
            of_lstm = [weights[name] for name in node.input[_LSTM_WEIGHTS]]
            weights |= zip(names, of_lstm, strict=True)
    return weights


def _model(weights: dict[str, Floats]) -> ModelProto:
    constants: dict[str, NDArray[np.generic]] = {
        "stft": weights["stft.forward_basis_buffer"].reshape(-1, 2 * _HOP).T,
        "first": _placed(weights["encoder.0.weight"], _FRAMES, stride=1),
        "first_bias": np.tile(weights["encoder.0.bias"], _FRAMES),
        "second": _placed(weights["encoder.1.weight"], _FRAMES, stride=2),
        "second_bias": np.tile(weights["encoder.1.bias"], _FRAMES // 2),
        "third": _placed(weights["encoder.2.weight"], _FRAMES // 2, stride=2),
        "third_bias": weights["encoder.2.bias"],
        "fourth": _placed(weights["encoder.3.weight"], 1, stride=1),
        "fourth_bias": weights["encoder.3.bias"],
        "lstm": weights["lstm"],
        "lstm_recurrent": weights["lstm_recurrent"],
        "lstm_bias": weights["lstm_bias"],
        "last": weights["output.weight"].reshape(UNITS, 1),
        "last_bias": weights["output.bias"],
        "hops": np.array([0, 0, _FRAMES + 1, _HOP], np.int64),
        "flat": np.array([0, 0, -1], np.int64),
        "by_stream": np.array([0, -1], np.int64),
        "zero": np.array([0], np.int64),
        "one": np.array([1], np.int64),
        "frames": np.array([_FRAMES], np.int64),
        "all": np.array([_FRAMES + 1], np.int64),
        "hop_axis": np.array([2], np.int64),
    }
    state: list[int | str] = [1, "streams", UNITS]
    graph = helper.make_graph(
        _nodes(),
        "voice",
        [
            _value("windows", ["most", "streams", CONTEXT + WINDOW + _MIRROR]),
            helper.make_tensor_value_info("lengths", TensorProto.INT32, ["streams"]),
            _value("h", state),
            _value("c", state),
        ],
        [
            _value("probabilities", ["most", "streams"]),
            _value("next_h", state),
            _value("next_c", state),
        ],
        [numpy_helper.from_array(np.ascontiguousarray(v), name) for name, v in constants.items()],
    )
    opset = [helper.make_opsetid("", _OPSET)]
    return helper.make_model(graph, opset_imports=opset, ir_version=_IR_VERSION)


def _nodes() -> list[NodeProto]:
    nodes = [
        _node("Reshape", ["windows", "hops"], ["blocks"]),
        _node("Slice", ["blocks", "zero", "frames", "hop_axis"], ["left"]),
        _node("Slice", ["blocks", "one", "all", "hop_axis"], ["right"]),
        helper.make_node("Concat", ["left", "right"], ["framed"], axis=3),
        _node("MatMul", ["framed", "stft"], ["spectrum"]),
        _node("Mul", ["spectrum", "spectrum"], ["squares"]),
        helper.make_node("Split", ["squares"], ["real", "imaginary"], axis=3, num_outputs=2),
        _node("Add", ["real", "imaginary"], ["power"]),
        _node("Sqrt", ["power"], ["magnitude"]),
        _node("Reshape", ["magnitude", "flat"], ["heard"]),
    ]
    for name in ("first", "second", "third", "fourth"):
        nodes += [
            _node("MatMul", [nodes[-1].output[0], name], [f"{name}_product"]),
            _node("Add", [f"{name}_product", f"{name}_bias"], [f"{name}_sum"]),
            _node("Relu", [f"{name}_sum"], [f"{name}_heard"]),
        ]
    given = ["fourth_heard", "lstm", "lstm_recurrent", "lstm_bias", "lengths", "h", "c"]
    return [
        *nodes,
        helper.make_node("LSTM", given, ["kept", "next_h", "next_c"], hidden_size=UNITS),
        _node("Relu", ["kept"], ["kept_heard"]),
        _node("MatMul", ["kept_heard", "last"], ["last_product"]),
        _node("Add", ["last_product", "last_bias"], ["logits"]),
        _node("Sigmoid", ["logits"], ["each"]),
        _node("Reshape", ["each", "by_stream"], ["probabilities"]),
    ]


def _node(kind: str, inputs: Sequence[str], outputs: Sequence[str]) -> NodeProto:
    return helper.make_node(kind, inputs, outputs)


def _value(name: str, shape: Sequence[int | str]) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def _placed(kernel: Floats, frames: int, stride: int) -> Floats:
    """Return a convolution of width 3, with a frame of zeros on both sides, as one matrix.

    Args:
        kernel: [outputs, inputs, 3].
        frames: How many frames it is for.
        stride: Of the convolution.

    Returns:
        [frames x inputs, frames / stride, rounded up, x outputs].
    """
    outputs, inputs, width = kernel.shape
    places = -(-frames // stride)
    matrix = np.zeros((frames, inputs, places, outputs), np.float32)
    for place in range(places):
        for tap in range(width):
            frame = place * stride + tap - 1
            if 0 <= frame < frames:
                matrix[frame, :, place] = kernel[:, :, tap].T
    return matrix.reshape(frames * inputs, places * outputs)
