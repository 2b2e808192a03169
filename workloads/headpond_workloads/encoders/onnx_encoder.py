"""The forward as an ONNX graph that gives `last_hidden_state`, by ONNX Runtime."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from threading import Lock

import numpy as np
import onnxruntime  # type: ignore[import-untyped]
import torch
from onnxruntime.capi.onnxruntime_pybind11_state import (  # type: ignore[import-untyped]
    Fail,
    InvalidGraph,
    InvalidProtobuf,
    NotImplemented,  # noqa: A004
)

from headpond.errors import BundleError
from headpond_workloads.encoders.tokens import Floats, Tokens

_PARAM = "artifacts.graph"
_OUTPUT = "last_hidden_state"
_INPUTS = frozenset({"input_ids", "attention_mask", "token_type_ids"})
_BUCKETS = (8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
_BATCH_TOKENS = 512


class OnnxEncoder:
    """Computes batches of about equally long sequences, filled up to the longest.

    A sequence's result may depend on its batch: where activations are quantized, all of a
    batch share one scale.
    """

    def __init__(self, path: Path, *, device: torch.device, lanes: int, hidden: int) -> None:
        """Load a graph.

        Raises:
            BundleError: It has other inputs or outputs than a BERT encoder's.
        """
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # each lane brings a thread of its own
        options.inter_op_num_threads = 1
        kind = "CUDAExecutionProvider" if device.type == "cuda" else "CPUExecutionProvider"
        try:
            self._session = onnxruntime.InferenceSession(
                str(path), sess_options=options, providers=[kind]
            )
        except (Fail, InvalidGraph, InvalidProtobuf, NotImplemented) as error:
            raise BundleError(f"the graph can't be loaded: {error}", param=_PARAM) from error
        self._inputs = {each.name for each in self._session.get_inputs()}
        outputs = {each.name: each.shape for each in self._session.get_outputs()}
        if not {"input_ids"} <= self._inputs <= _INPUTS or _OUTPUT not in outputs:
            raise BundleError(
                f"the graph takes {sorted(self._inputs)} and gives {sorted(outputs)}; it must take "
                f"input_ids, besides only {sorted(_INPUTS - {'input_ids'})}, and give {_OUTPUT}",
                param=_PARAM,
            )
        values = outputs[_OUTPUT][-1]
        if values != hidden:
            raise BundleError(
                f"the graph's vectors have {values} values, not {hidden}", param=_PARAM
            )
        self.lanes, self.express_lanes = lanes, lanes if device.type == "cpu" else 0
        self.weight_bytes = path.stat().st_size
        self.batch_tokens = _BATCH_TOKENS
        self._lock = Lock()
        self._padded_tokens = 0

    @property
    def padded_tokens(self) -> int:
        """How many tokens of padding were computed."""
        return self._padded_tokens

    def key(self, tokens: int) -> tuple[int, ...]:
        """Return the class of lengths, by the longest sequence in it."""
        at = bisect_left(_BUCKETS, tokens)
        return (_BUCKETS[at] if at < len(_BUCKETS) else tokens,)

    def encode(self, sequences: Sequence[Tokens], *, first_only: bool = False) -> Floats:
        """Compute a batch; see `Encoder`."""
        lengths = [len(each) for each in sequences]
        shape = (len(sequences), max(lengths))
        padded = {name: np.zeros(shape, dtype=np.int64) for name in _INPUTS}
        for row, (each, length) in enumerate(zip(sequences, lengths, strict=True)):
            padded["input_ids"][row, :length] = each.token_ids
            padded["token_type_ids"][row, :length] = each.type_ids
            padded["attention_mask"][row, :length] = 1
        with self._lock:
            self._padded_tokens += shape[0] * shape[1] - sum(lengths)
        (found,) = self._session.run([_OUTPUT], {name: padded[name] for name in self._inputs})
        vectors = np.asarray(found, dtype=np.float32)
        if first_only:
            return vectors[:, 0]
        return np.concatenate(
            [rows[:length] for rows, length in zip(vectors, lengths, strict=True)]
        )
