"""Attention over the paged KV cache, under the name by which transformers finds it.

A step's tokens of all sequences lie one after the other in a single row of the model's
input, so that every linear layer runs once. Only attention tells them apart: an `Attention`
cuts the step into parts, each of which is one call of its kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, Unpack, cast

import torch
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.utils.generic import TransformersKwargs

from headpond.errors import BundleError
from headpond_workloads.generation.engine.forward import Span
from headpond_workloads.generation.engine.kv_cache import KvCache

NAME = "headpond_paged"

Window = int | None
"""Attend to this many of the latest tokens only; None attends to all."""


class Part(Protocol):
    """Rows of a step that attend in one call."""

    def attend(self, layer: int, query: Tensor, scaling: float | None, window: Window) -> Tensor:
        """Return the outputs of the part's rows, of shape [rows, heads, head_dim].

        Args:
            layer: Which layer of the cache holds keys and values, the step's own among them.
            query: Of the whole step, of shape [heads, rows of the step, head_dim].
            scaling: Factor of the scores.
            window: See `Window`.
        """
        ...


class Attention(Protocol):
    """A way to attend over one cache."""

    def cut(self, packed: Sequence[Span]) -> Iterator[Part]:
        """Cut a step: first the spans that decode, the shorter before the longer; then chunks."""
        ...

    def decode(self, tables: Tensor, positions: Tensor) -> Part:
        """Return the part of a step of nothing but single tokens.

        Nothing here waits for the device or looks at what the tensors hold, so that what is
        recorded of it can be repeated with other contents.

        Args:
            tables: Block tables, of shape [sequences, blocks of each].
            positions: Of each sequence's token, of shape [sequences].
        """
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class PagedStep:
    """What attention has to know of one step.

    Attributes:
        cache: Where keys and values are kept.
        written: Where the step's own go: flat token positions, of shape [rows].
        parts: Every row of the step, in order.
    """

    cache: KvCache
    written: Tensor
    parts: tuple[Part, ...]


def paged_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    paged: PagedStep,
    scaling: float | None = None,
    sliding_window: Window = None,
    **kwargs: Unpack[TransformersKwargs],
) -> tuple[Tensor, None]:
    """Store the step's keys and values, and attend part by part.

    Args:
        module: The attention layer; its `layer_idx` names the layer.
        query: Of shape [1, heads, rows, head_dim].
        key: Of shape [1, kv_heads, rows, head_dim].
        value: The same.
        attention_mask: Always None; the parts know who sees what.
        paged: The step, passed through the model's keyword arguments.
        scaling: Factor of the scores.
        sliding_window: See `Window`.
        kwargs: What else the model passes on.

    Returns:
        The outputs, of shape [1, rows, heads, head_dim], and no weights.

    Raises:
        BundleError: The model asks for something that is not done here.
    """
    for name in ("softcap", "s_aux", "position_bias"):
        if kwargs.get(name) is not None:
            raise BundleError(f"attention with {name} is not supported", param="execution")
    layer = cast("int", module.layer_idx)
    paged.cache.write(layer, paged.written, key[0].transpose(0, 1), value[0].transpose(0, 1))
    outputs = [part.attend(layer, query[0], scaling, sliding_window) for part in paged.parts]
    return torch.cat(outputs).unsqueeze(0), None


AttentionInterface.register(NAME, paged_attention)
