"""ONNX networks on onnxruntime, and what they say of themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnxruntime  # type: ignore[import-untyped]
from numpy.typing import NDArray
from onnxruntime.capi import onnxruntime_pybind11_state as states  # type: ignore[import-untyped]

from headpond.errors import BundleError, EngineFailed

Array = NDArray[np.generic]

_UNUSABLE = (states.Fail, states.InvalidGraph, states.InvalidProtobuf, states.NotImplemented)
_FAILED = (states.EPFail, states.Fail, states.InvalidArgument, states.RuntimeException)
_DTYPES = {"tensor(float)": np.float32, "tensor(int64)": np.int64}


class OnnxSession:
    """One network.

    Attributes:
        name: The artifact it came from.
        inputs: Names of its inputs, in order.
        outputs: Names of its outputs, in order.
        bytes: The size of its file.
    """

    def __init__(self, path: Path, name: str, threads: int) -> None:
        """Load a network.

        Raises:
            BundleError: The file is none.
        """
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        # Between two products of a small network, threads would spin longer than they compute.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            self._session = onnxruntime.InferenceSession(
                path, options, providers=["CPUExecutionProvider"]
            )
        except _UNUSABLE as error:
            raise BundleError(f"{name} is no network: {error}", param=f"artifacts.{name}") from None
        self.name = name
        self.inputs = tuple(each.name for each in self._session.get_inputs())
        self.outputs = tuple(each.name for each in self._session.get_outputs())
        self.bytes = path.stat().st_size
        self._about: Mapping[str, str] = self._session.get_modelmeta().custom_metadata_map

    def run(self, fed: Sequence[Array]) -> list[Array]:
        """Compute; inputs and outputs in their order.

        Raises:
            EngineFailed: It can't be computed.
        """
        try:
            results: list[Array] = self._session.run(
                self.outputs, dict(zip(self.inputs, fed, strict=True))
            )
        except _FAILED as error:
            raise EngineFailed(f"{self.name} could not be computed") from error
        return results

    def number(self, name: str) -> int:
        """Return a number of its metadata.

        Raises:
            BundleError: It is not there, or no number.
        """
        try:
            return int(self._about[name])
        except (KeyError, ValueError):
            raise BundleError(
                f"the metadata of {self.name} says no number {name!r}",
                param=f"artifacts.{self.name}",
            ) from None

    def empty(self, at: int) -> tuple[Array, int]:
        """Return zeros for an input of one stream, and which dimension counts streams.

        Raises:
            BundleError: Not exactly one dimension is open.
        """
        given = self._session.get_inputs()[at]
        opened = [axis for axis, size in enumerate(given.shape) if not isinstance(size, int)]
        if len(opened) != 1 or given.type not in _DTYPES:
            raise BundleError(
                f"input {given.name} of {self.name} should be open in one dimension, for streams",
                param=f"artifacts.{self.name}",
            )
        shape = [1 if axis == opened[0] else size for axis, size in enumerate(given.shape)]
        return np.zeros(shape, _DTYPES[given.type]), opened[0]
