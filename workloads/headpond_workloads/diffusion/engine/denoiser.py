"""The denoiser: one forward over latents at different steps of different requests."""

from __future__ import annotations

import logging
import math
import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from headpond_workloads.diffusion.engine.conditioning import Conditions
from headpond_workloads.diffusion.engine.steady import filled, make_steady

logger = logging.getLogger(__name__)

_KEPT_TRACES = 8
_TRAINED_STEPS = 1000
PACKED = 2
"""Places of the latents that are side by side in one of Flux's."""

_ADDED = ("text_embeds", "time_ids")

Forward = Callable[..., Tensor]


class UNetCall(nn.Module):
    """A UNet as a function of tensors, in an order of its own."""

    def __init__(self, network: nn.Module, names: Sequence[str]) -> None:
        """Keep the UNet and the names of the conditions."""
        super().__init__()
        self.network = network
        self.names = tuple(names)

    def forward(self, latents: Tensor, timesteps: Tensor, *conditions: Tensor) -> Tensor:
        """Return the prediction for each row."""
        given: dict[str, Any] = dict(zip(self.names, conditions, strict=True))
        added = {name: given.pop(name) for name in _ADDED if name in given}
        predicted: Tensor = self.network(
            latents, timesteps, added_cond_kwargs=added or None, return_dict=False, **given
        )[0]
        return predicted


class TransformerCall(nn.Module):
    """A transformer as SD3 has it, as a function of tensors."""

    def __init__(self, network: nn.Module, names: Sequence[str]) -> None:
        """Keep the transformer and the names of the conditions."""
        super().__init__()
        self.network = network
        self.names = tuple(names)

    def forward(self, latents: Tensor, timesteps: Tensor, *conditions: Tensor) -> Tensor:
        """Return the prediction for each row."""
        given = dict(zip(self.names, conditions, strict=True))
        predicted: Tensor = self.network(
            hidden_states=latents, timestep=timesteps, return_dict=False, **given
        )[0]
        return predicted


class PackedTransformerCall(nn.Module):
    """A transformer as Flux has it, as a function of tensors.

    It takes squares of the latents as one place with all their channels, in one row, and is
    told where each was.
    """

    def __init__(self, network: nn.Module, names: Sequence[str]) -> None:
        """Keep the transformer and the names of the conditions."""
        super().__init__()
        self.network = network
        self.names = tuple(names)

    def forward(self, latents: Tensor, timesteps: Tensor, *conditions: Tensor) -> Tensor:
        """Return the prediction for each row."""
        given = dict(zip(self.names, conditions, strict=True))
        squares = functional.pixel_unshuffle(latents, PACKED)
        rows, columns = latents.shape[-2] // PACKED, latents.shape[-1] // PACKED
        predicted: Tensor = self.network(
            hidden_states=squares.flatten(2).transpose(1, 2),
            timestep=timesteps / _TRAINED_STEPS,
            img_ids=_places(rows, columns).to(latents.device),
            txt_ids=torch.zeros(given["encoder_hidden_states"].shape[1], 3, device=latents.device),
            return_dict=False,
            **given,
        )[0]
        unpacked = predicted.transpose(1, 2).reshape(latents.shape[0], -1, rows, columns)
        return functional.pixel_shuffle(unpacked, PACKED)


def _places(rows: int, columns: int) -> Tensor:
    """Return `[rows * columns, 3]`: 0, the row and the column of each place."""
    down, right = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
    return torch.stack([torch.zeros_like(down), down, right], dim=-1).flatten(0, 1).float()


class Denoiser:
    """Predicts noise, velocity or picture for each row of a batch.

    On a CPU the network is traced once for each shape, without Python between its layers,
    and its rows are steady; on a GPU it is computed as it is, channels last.
    """

    def __init__(
        self,
        network: Any,
        call: Callable[[nn.Module, Sequence[str]], nn.Module],
        device: torch.device,
        dtype: torch.dtype,
        packed: int = 1,
    ) -> None:
        """Take over the network; it is changed for the device.

        Args:
            network: One of diffusers'.
            call: Makes a function of it.
            device: Where it is computed.
            dtype: What it is computed in.
            packed: The side of the squares of latents that it takes as one place.
        """
        self.network = network
        self._packed = packed
        self._call = call
        self.device = device
        self._dtype = dtype
        self._traced: OrderedDict[tuple[object, ...], Forward] = OrderedDict()
        if device.type == "cpu":
            make_steady(network)
        else:
            network.to(device=device, memory_format=torch.channels_last)

    @property
    def channels(self) -> int:
        """Channels of the latents."""
        return int(self.network.config["in_channels"]) // self._packed**2

    @property
    def patch(self) -> int:
        """Places of the latents that a token is wide; 1 where there are none."""
        return int(self.network.config.get("patch_size") or 1) * self._packed

    @property
    def guides(self) -> bool:
        """Whether guidance takes a second row: not where the model is told of it."""
        config = self.network.config
        return config.get("time_cond_proj_dim") is None and not config.get("guidance_embeds")

    def told(self, conditions: Conditions, guidance: float) -> Conditions:
        """Return the conditions of a row with what this network is told besides."""
        if self.network.config.get("guidance_embeds"):
            return {**conditions, "guidance": torch.tensor(guidance)}
        width = self.network.config.get("time_cond_proj_dim")
        if width is None:
            return conditions
        return {**conditions, "timestep_cond": _guidance_embedding(guidance, width)}

    def noise(self, shape: Sequence[int], generator: torch.Generator) -> Tensor:
        """Draw `[1, ...]` latents as diffusers' pipelines do; return them without the 1."""
        drawn = torch.randn(tuple(shape), generator=generator, dtype=self._dtype)
        return drawn[0].to(self.device).float()

    def __call__(
        self, latents: Tensor, timesteps: Tensor, conditions: Sequence[Conditions]
    ) -> Tensor:
        """Compute a batch.

        Args:
            latents: `[rows, channels, height, width]`, scaled as the model expects.
            timesteps: `[rows]`.
            conditions: One for each row, of equal shapes.

        Returns:
            `[rows, channels, height, width]`, float32.
        """
        names, inputs = self._inputs(latents, timesteps, conditions)
        forward = self._forward(names, inputs)
        return forward(*inputs)[: len(latents)].float()

    def plain(self, latents: Tensor, timesteps: Tensor, conditions: Sequence[Conditions]) -> Tensor:
        """Compute a batch layer by layer, so that the layers can be watched."""
        names, inputs = self._inputs(latents, timesteps, conditions)
        predicted: Tensor = self._call(self.network, names)(*inputs)
        return predicted

    def _inputs(
        self, latents: Tensor, timesteps: Tensor, conditions: Sequence[Conditions]
    ) -> tuple[tuple[str, ...], list[Tensor]]:
        names = tuple(conditions[0])
        told = [torch.stack([each[name] for each in conditions]) for name in names]
        inputs = [filled(each.to(self.device)) for each in (latents, timesteps, *told)]
        # Timesteps stay as they are: half precision can't tell them apart.
        cast = [each if at == 1 else each.to(self._dtype) for at, each in enumerate(inputs)]
        return names, cast

    def _forward(self, names: tuple[str, ...], inputs: Sequence[Tensor]) -> Forward:
        key = (names, *(each.shape[1:] for each in inputs))
        forward = self._traced.get(key)
        if forward is None:
            called = self._call(self.network, names).eval()
            forward = traced(called, inputs) if self.device.type == "cpu" else called
            self._traced[key] = forward
        self._traced.move_to_end(key)
        while len(self._traced) > _KEPT_TRACES:
            self._traced.popitem(last=False)
        return forward


def _guidance_embedding(guidance: float, width: int) -> Tensor:
    """Return sines and cosines of the guidance, as diffusers embeds it."""
    half = width // 2
    speeds = torch.exp(torch.arange(half) * -(math.log(10000.0) / (half - 1)))
    angles = torch.tensor(guidance - 1.0) * 1000.0 * speeds
    embedding = torch.cat([angles.sin(), angles.cos()])
    return functional.pad(embedding, (0, width % 2))


def traced(module: nn.Module, inputs: Sequence[Tensor]) -> Forward:
    """Return a module as a trace that any number of rows goes through.

    The trace is compared with the module on more rows than it was made with; where it is
    not the same to the bit, the module itself is returned.
    """
    more = [torch.cat([each, each[:1]]) for each in inputs]
    try:
        with warnings.catch_warnings():
            # Deprecated, but nothing that replaces it does without Python or a compiler.
            warnings.simplefilter("ignore")
            jit: Any = torch.jit
            trace: Forward = jit.trace(module, tuple(inputs), check_trace=False)
        if torch.equal(trace(*more), module(*more)):
            return trace
    except RuntimeError:
        logger.warning("the denoiser cannot be traced", exc_info=True)
    return module
