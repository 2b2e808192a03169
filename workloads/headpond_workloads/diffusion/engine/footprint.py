"""What networks take of memory, measured on the loaded ones."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

_KEPT = (
    "ResnetBlock2D",
    "Transformer2DModel",
    "Downsample2D",
    "JointTransformerBlock",
    "FluxTransformerBlock",
)
"""Blocks whose outputs stay until the way up, or the end of the block that follows."""


def weight_bytes(network: nn.Module) -> int:
    """Return the bytes of a network's weights and buffers."""
    held = [*network.parameters(), *network.buffers()]
    return sum(each.numel() * each.element_size() for each in held)


def activation_elements(network: nn.Module, forward: Callable[[], object]) -> int:
    """Return about how many numbers one row's forward holds at once, at most.

    That is what the largest layer takes in and gives, twice, and what blocks leave for later.

    Args:
        network: Whose layers are watched.
        forward: Computes it for one row.
    """
    largest = kept = 0

    def watch(module: nn.Module, inputs: tuple[object, ...], output: object) -> None:
        nonlocal largest, kept
        given = sum(_elements(each) for each in inputs)
        gave = _elements(output[0] if isinstance(output, tuple) else output)
        if not any(module.children()):
            largest = max(largest, given + gave)
        if type(module).__name__ in _KEPT:
            kept += gave

    hooks = [module.register_forward_hook(watch) for module in network.modules()]
    try:
        with torch.inference_mode():
            forward()
    finally:
        for hook in hooks:
            hook.remove()
    return 2 * largest + kept


def _elements(value: object) -> int:
    return value.numel() if isinstance(value, Tensor) else 0
