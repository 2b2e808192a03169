"""A model's weights as the native decoder wants them."""

from __future__ import annotations

from collections.abc import Mapping
from ctypes import POINTER, cast

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from headpond_workloads.generation.engine.native.structures import Layer, Model
from headpond_workloads.generation.engine.reading import DecoderReading, Reading
from headpond_workloads.native.library import NativeUnavailable
from headpond_workloads.native.memory import Arena
from headpond_workloads.native.packing import Format, Weights, float32, pack
from headpond_workloads.native.structures import Matrix

ARCHITECTURES = frozenset(
    {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"}
)
_WIDTHS = range(32, 257, 32)
_DTYPES = {"float32": np.dtype(np.float32), "bfloat16": np.dtype(ml_dtypes.bfloat16)}


class NativeWeights:
    """A model's weights, packed; what they came from is not needed any more."""

    def __init__(
        self, reading: Reading, weights: Mapping[str, Weights], layers: Format, head: Format
    ) -> None:
        """Pack a model.

        Args:
            reading: What the model is.
            weights: By the names of transformers; read one after the other.
            layers: The format of the products in layers.
            head: The format of the product that gives the logits.

        Raises:
            NativeUnavailable: The model is none that the decoder computes.
        """
        decoder = check_supported(reading)
        self._kept: list[Weights] = []
        self._arena = Arena()
        self._dtype = _DTYPES[reading.dtype]
        self._weights = weights
        # Where the head's weights are the embedding's, and exact, they serve as both.
        shared = decoder.tied and head in {Format.FLOAT32, Format.BFLOAT16}
        structures = (Layer * reading.layers)(
            *(
                self._layer(f"model.layers.{at}.", layers, decoder.windows[at] or 0)
                for at in range(reading.layers)
            )
        )
        self._layers = structures
        cosines, sines = self._rotations(decoder, reading.context_tokens)
        head_name = "model.embed_tokens" if decoder.tied else "lm_head"
        self.structure = Model(
            layers=reading.layers,
            hidden=decoder.hidden,
            heads=decoder.heads,
            kv_heads=reading.kv_heads,
            width=reading.head_dim,
            intermediate=decoder.intermediate,
            vocabulary=reading.vocab_tokens,
            epsilon=decoder.epsilon,
            scaling=reading.head_dim**-0.5,
            layer=cast(structures, POINTER(Layer)),
            embedding=None if shared else self._keep(self._read("model.embed_tokens.weight")),
            embedding_bf16=int(reading.dtype == "bfloat16"),
            final_norm=self._norm("model.norm"),
            head=self._pack(head, head_name),
            cosines=self._keep(cosines),
            sines=self._keep(sines),
        )

    def _layer(self, at: str, kind: Format, window: int) -> Layer:
        return Layer(
            attention_norm=self._norm(f"{at}input_layernorm"),
            mlp_norm=self._norm(f"{at}post_attention_layernorm"),
            query_norm=self._norm(f"{at}self_attn.q_norm"),
            key_norm=self._norm(f"{at}self_attn.k_norm"),
            qkv=self._pack(kind, *(f"{at}self_attn.{name}_proj" for name in "qkv")),
            output=self._pack(kind, f"{at}self_attn.o_proj"),
            gate_up=self._pack(kind, f"{at}mlp.gate_proj", f"{at}mlp.up_proj"),
            down=self._pack(kind, f"{at}mlp.down_proj"),
            window=window,
        )

    def _pack(self, kind: Format, *linears: str) -> Matrix:
        packed = pack(
            [self._read(f"{name}.weight") for name in linears],
            kind,
            [self._read_any(f"{name}.bias") for name in linears],
            arena=self._arena,
        )
        self._kept += packed.arrays
        return packed.matrix

    def _norm(self, name: str) -> int | None:
        weight = self._read_any(f"{name}.weight")
        return None if weight is None else self._keep(float32(weight))

    def _read(self, name: str) -> Weights:
        found = self._read_any(name)
        if found is None:
            raise NativeUnavailable(f"its files have no {name}")
        return found

    def _read_any(self, name: str) -> Weights | None:
        found = self._weights.get(name)
        if found is None or found.dtype == self._dtype:
            return found
        return float32(found).astype(self._dtype)

    def _keep(self, array: Weights) -> int:
        """Keep an array and return where it lies."""
        kept = np.ascontiguousarray(array)
        self._kept.append(kept)
        return kept.ctypes.data

    def _rotations(
        self, decoder: DecoderReading, positions: int
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return cosines and sines by position, of shape [positions, width / 2] each."""
        frequencies = np.array(decoder.frequencies, dtype=np.float32)
        # As by transformers: the angles are of float32.
        angles = np.arange(positions, dtype=np.float32)[:, None] * frequencies
        wide = angles.astype(np.float64)
        scale = decoder.rotation_scale
        return (np.cos(wide) * scale).astype(np.float32), (np.sin(wide) * scale).astype(np.float32)


def check_supported(reading: Reading) -> DecoderReading:
    """Return the decoder, or refuse what is not computed.

    Raises:
        NativeUnavailable: Says what.
    """
    check_declared(reading.architecture, reading.dtype)
    decoder = reading.decoder
    if decoder is None:
        raise NativeUnavailable(f"{reading.architecture} was not read as a decoder")
    if decoder.activation != "silu":
        raise NativeUnavailable(f"its activation is {decoder.activation}, not silu")
    if reading.head_dim not in _WIDTHS:
        raise NativeUnavailable(f"its heads are {reading.head_dim} wide")
    if 2 * len(decoder.frequencies) != reading.head_dim:
        raise NativeUnavailable("it rotates a part of its heads only")
    if decoder.hidden % 32 or decoder.intermediate % 32:
        raise NativeUnavailable("its widths are no multiples of 32")
    return decoder


def check_declared(architecture: str, dtype: str) -> None:
    """Refuse what a bundle's own words show not to be computed.

    Raises:
        NativeUnavailable: Says what.
    """
    if architecture not in ARCHITECTURES:
        raise NativeUnavailable(f"{architecture} is none of {', '.join(sorted(ARCHITECTURES))}")
    if dtype not in _DTYPES:
        raise NativeUnavailable(f"its dtype is {dtype}")
