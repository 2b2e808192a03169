"""A transformers model as the native decoder wants it."""

from __future__ import annotations

from collections.abc import Mapping
from ctypes import POINTER, cast

import torch
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel

from headpond_workloads.generation.engine.native.structures import Layer, Model
from headpond_workloads.native.library import NativeUnavailable
from headpond_workloads.native.packing import Format, pack
from headpond_workloads.native.structures import Matrix

ARCHITECTURES = frozenset(
    {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"}
)
_WIDTHS = range(32, 257, 32)


class NativeWeights:
    """A model's weights, packed; the transformers model is not needed any more."""

    def __init__(
        self, model: PreTrainedModel, layers: Format, head: Format, positions: int
    ) -> None:
        """Pack `model`.

        Args:
            model: On the CPU, in float32 or bfloat16.
            layers: The format of the products in layers.
            head: The format of the product that gives the logits.
            positions: How many positions there can be.

        Raises:
            NativeUnavailable: The model is none that the decoder computes.
        """
        check_supported(model)
        self._kept: list[Tensor] = []
        config = model.config.get_text_config()
        weights = model.state_dict()
        table, head_weight = weights["model.embed_tokens.weight"], weights["lm_head.weight"]
        embedding = self._embedding(table, head_weight, head)
        rotary = model.get_submodule("model.rotary_emb")
        cosines, sines = self._rotations(rotary, positions)
        windows = _windows(model)
        structures = (Layer * config.num_hidden_layers)(
            *(
                self._layer(_below(weights, f"model.layers.{at}."), layers, windows[at])
                for at in _layers(model)
            )
        )
        self._layers = structures
        width = head_width(config)
        self.structure = Model(
            layers=config.num_hidden_layers,
            hidden=config.hidden_size,
            heads=config.num_attention_heads,
            kv_heads=config.num_key_value_heads,
            width=width,
            intermediate=config.intermediate_size,
            vocabulary=config.vocab_size,
            epsilon=config.rms_norm_eps,
            scaling=width**-0.5,
            layer=cast(structures, POINTER(Layer)),
            embedding=None if embedding is None else embedding.data_ptr(),
            embedding_bf16=int(model.dtype is torch.bfloat16),
            final_norm=self._norm(weights, "model.norm"),
            head=self._pack(head, weights, "lm_head"),
            cosines=cosines.data_ptr(),
            sines=sines.data_ptr(),
        )

    def _embedding(self, table: Tensor, head: Tensor, kind: Format) -> Tensor | None:
        """Return the embedding's own table, or None where the head's weights are the same."""
        exact = kind in {Format.FLOAT32, Format.BFLOAT16}
        return None if exact and table.data_ptr() == head.data_ptr() else self._keep(table.clone())

    def _layer(self, layer: Mapping[str, Tensor], kind: Format, window: int | None) -> Layer:
        return Layer(
            attention_norm=self._norm(layer, "input_layernorm"),
            mlp_norm=self._norm(layer, "post_attention_layernorm"),
            query_norm=self._norm(layer, "self_attn.q_norm"),
            key_norm=self._norm(layer, "self_attn.k_norm"),
            qkv=self._pack(kind, layer, *(f"self_attn.{name}_proj" for name in "qkv")),
            output=self._pack(kind, layer, "self_attn.o_proj"),
            gate_up=self._pack(kind, layer, "mlp.gate_proj", "mlp.up_proj"),
            down=self._pack(kind, layer, "mlp.down_proj"),
            window=window or 0,
        )

    def _pack(self, kind: Format, weights: Mapping[str, Tensor], *linears: str) -> Matrix:
        packed = pack(
            [weights[f"{name}.weight"] for name in linears],
            kind,
            [weights.get(f"{name}.bias") for name in linears],
        )
        self._kept += packed.tensors
        return packed.matrix

    def _norm(self, weights: Mapping[str, Tensor], name: str) -> int | None:
        weight = weights.get(f"{name}.weight")
        return None if weight is None else self._keep(weight.float().clone()).data_ptr()

    def _keep(self, tensor: Tensor) -> Tensor:
        self._kept.append(tensor)
        return tensor

    def _rotations(self, rotary: nn.Module, positions: int) -> tuple[Tensor, Tensor]:
        """Return cosines and sines by position, of shape [positions, width / 2] each.

        The model's own module makes them, so that every scaling it knows is applied.
        """
        at = torch.arange(positions).unsqueeze(0)
        cosines, sines = (
            self._keep(table[0, :, : table.shape[-1] // 2].float().contiguous())
            for table in rotary(torch.zeros(1, dtype=torch.float32), at)
        )
        return cosines, sines


def _windows(model: PreTrainedModel) -> list[int | None]:
    """Return each layer's sliding window: Mistral has one for all, others one in some layers."""
    config = model.config.get_text_config()
    common = getattr(config, "sliding_window", None)
    attentions = [model.get_submodule(f"model.layers.{at}.self_attn") for at in _layers(model)]
    return [getattr(attention, "sliding_window", common) for attention in attentions]


def _layers(model: PreTrainedModel) -> range:
    return range(model.config.get_text_config().num_hidden_layers)


def _below(weights: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): each for name, each in weights.items() if name.startswith(prefix)
    }


def head_width(config: PretrainedConfig) -> int:
    """Return the width of an attention head."""
    width: int = getattr(config, "head_dim", 0) or config.hidden_size // config.num_attention_heads
    return width


def check_supported(model: PreTrainedModel) -> None:
    """Refuse what the decoder does not compute.

    Raises:
        NativeUnavailable: Says what.
    """
    config = model.config.get_text_config()
    name = type(model).__name__
    if name not in ARCHITECTURES:
        raise NativeUnavailable(f"{name} is none of {', '.join(sorted(ARCHITECTURES))}")
    if config.hidden_act != "silu":
        raise NativeUnavailable(f"its activation is {config.hidden_act}, not silu")
    if head_width(config) not in _WIDTHS:
        raise NativeUnavailable(f"its heads are {head_width(config)} wide")
    if config.hidden_size % 32 or config.intermediate_size % 32:
        raise NativeUnavailable("its widths are no multiples of 32")
    if model.dtype not in {torch.float32, torch.bfloat16}:
        raise NativeUnavailable(f"its dtype is {model.dtype}")
