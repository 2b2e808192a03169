"""A network computed by ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime  # type: ignore[import-untyped]
from onnxruntime.capi import onnxruntime_pybind11_state as states  # type: ignore[import-untyped]

from headpond.errors import BundleError
from headpond_workloads.vision.engine.forward import Floats

_PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
_PARAM = "artifacts.model"
_UNUSABLE = (
    states.EPFail,
    states.Fail,
    states.InvalidArgument,
    states.InvalidGraph,
    states.InvalidProtobuf,
    states.NotImplemented,
    states.RuntimeException,
    RuntimeError,
    ValueError,
)
"""What ONNX Runtime raises for a file that it can't use; its own classes share no base."""


class OnnxForward:
    """A network computed by ONNX Runtime: in the caller's own thread, or on all threads.

    Results are the same to the bit.
    """

    def __init__(self, path: Path, *, device: str, threads: int, takes_pixels: bool) -> None:
        """Open a file.

        Args:
            path: The file.
            device: `cpu`, `cuda` or `cuda:<index>`.
            threads: Of a call that is alone.
            takes_pixels: Whether the network normalises by itself.

        Raises:
            BundleError: It is no network of one image tensor to one tensor of logits, or
                ONNX Runtime can't run it here.
        """
        self.takes_pixels = takes_pixels
        self._session = self._alone = _session(path, device, threads=1)
        if threads > 1 and device == "cpu":
            self._alone = _session(path, device, threads=threads)
        inputs, outputs = self._session.get_inputs(), self._session.get_outputs()
        if len(inputs) != 1 or not outputs or inputs[0].type != "tensor(float)":
            raise BundleError("the ONNX file must have one input, of float32", param=_PARAM)
        self._input: str = inputs[0].name
        self._output: str = outputs[0].name
        shape: list[object] = inputs[0].shape
        if len(shape) != 4 or 3 not in (shape[1], shape[3]):
            raise BundleError(f"the ONNX file's input {shape} is no image's", param=_PARAM)
        self._channels_first = shape[1] == 3
        if isinstance(shape[0], int) and shape[0] != 1:
            raise BundleError("the ONNX file must take one image, or any number", param=_PARAM)
        self.max_batch = 1 if shape[0] == 1 else None

    def __call__(self, images: Floats, *, alone: bool = False) -> Floats:
        """Compute logits `(images, labels)` of `(images, height, width, 3)`."""
        given = (
            np.ascontiguousarray(images.transpose(0, 3, 1, 2)) if self._channels_first else images
        )
        session = self._alone if alone else self._session
        (logits,) = session.run([self._output], {self._input: given})
        return np.asarray(logits, np.float32)


def _session(path: Path, device: str, *, threads: int) -> onnxruntime.InferenceSession:
    kind, _, index = device.partition(":")
    provider = _PROVIDERS[kind]
    if provider not in onnxruntime.get_available_providers():
        raise BundleError(f"this ONNX Runtime can't compute on {kind}", param="execution")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    # Its threads spin for the next operator, but not from one call to the next.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    settings = {"device_id": index} if index else {}
    try:
        return onnxruntime.InferenceSession(path, options, providers=[(provider, settings)])
    except _UNUSABLE as error:
        raise BundleError(f"ONNX Runtime can't open it: {error}", param=_PARAM) from error
