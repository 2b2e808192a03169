"""From a bundle's files to the networks of diffusers and transformers."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from diffusers import (
    AutoencoderKL,
    AutoencoderTiny,
    FluxTransformer2DModel,
    SD3Transformer2DModel,
    UNet2DConditionModel,
)
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import (
    CLIPTextConfig,
    CLIPTextModel,
    CLIPTextModelWithProjection,
    T5Config,
    T5EncoderModel,
)

from headpond.bundle.store import Bundle
from headpond.errors import BundleError
from headpond_workloads.diffusion.engine.options import Network

Config = Mapping[str, Any]

DENOISERS: Mapping[str, Any] = {
    "UNet2DConditionModel": UNet2DConditionModel,
    "SD3Transformer2DModel": SD3Transformer2DModel,
    "FluxTransformer2DModel": FluxTransformer2DModel,
}
AUTOENCODERS: Mapping[str, Any] = {
    "AutoencoderKL": AutoencoderKL,
    "AutoencoderTiny": AutoencoderTiny,
}
_ENCODERS: Mapping[str, tuple[Any, Any]] = {
    "CLIPTextModel": (CLIPTextModel, CLIPTextConfig),
    "CLIPTextModelWithProjection": (CLIPTextModelWithProjection, CLIPTextConfig),
    "T5EncoderModel": (T5EncoderModel, T5Config),
}

TextEncoder = CLIPTextModel | CLIPTextModelWithProjection | T5EncoderModel


def read_config(path: Path) -> Config:
    """Read a configuration.

    Raises:
        BundleError: The file holds no JSON object.
    """
    document: object = json.loads(path.read_bytes())
    if not isinstance(document, dict):
        raise BundleError(f"{path.name} is no configuration")
    return document


def load_network(
    bundle: Bundle, network: Network, kinds: Mapping[str, Any], dtype: torch.dtype, param: str
) -> Any:
    """Build one of diffusers' networks and load its weights.

    Args:
        bundle: Holds the files.
        network: Their names.
        kinds: The classes that may be built, by the name in the configuration.
        dtype: Of the weights in memory.
        param: The section's path, for messages.

    Raises:
        BundleError: The files don't make a network of these kinds.
    """
    config = read_config(bundle.artifact(network.config, f"{param}.config"))
    kind = kinds.get(str(config.get("_class_name")))
    if kind is None:
        raise BundleError(
            f"there is no network {config.get('_class_name')!r}; there are {', '.join(kinds)}",
            param=f"{param}.config",
        )
    own = inspect.signature(kind.__init__).parameters
    known = {key: value for key, value in config.items() if key in own}
    weights = bundle.artifact(network.weights, f"{param}.weights")
    return _loaded(lambda: kind.from_config(known), weights, dtype, param)


def load_encoder(
    bundle: Bundle, weights: str, config: str, dtype: torch.dtype, param: str
) -> TextEncoder:
    """Build a text encoder and load its weights.

    Raises:
        BundleError: The files don't make one.
    """
    given = read_config(bundle.artifact(config, f"{param}.config"))
    names = given.get("architectures") or [None]
    found = _ENCODERS.get(str(names[0]))
    if found is None:
        raise BundleError(
            f"there is no text encoder {names[0]!r}; there are {', '.join(_ENCODERS)}",
            param=f"{param}.config",
        )
    path = bundle.artifact(weights, f"{param}.encoder")
    kind, configuration = found
    encoder: TextEncoder = _loaded(lambda: kind(configuration(**given)), path, dtype, param)
    return encoder


def _loaded(build: Callable[[], nn.Module], weights: Path, dtype: torch.dtype, param: str) -> Any:
    """Load weights into a network that is built without memory of its own."""
    try:
        network = build()
        tensors = load_file(weights)
        # Saved by older versions, as buffers that newer ones compute.
        missing, unexpected = network.load_state_dict(tensors, strict=False)
    except (ValueError, TypeError, KeyError, RuntimeError, SafetensorError) as error:
        raise BundleError(
            f"the weights do not fit the configuration: {error}", param=param
        ) from None
    unexpected = [name for name in unexpected if not name.endswith("position_ids")]
    missing = _without_tied(network, missing, tensors)
    if missing or unexpected:
        raise BundleError(
            f"{len(missing)} tensors lack and {len(unexpected)} have no place, such as "
            f"{(missing + unexpected)[0]!r}",
            param=param,
        )
    # As a plain module: diffusers' own `to` warns of casts.
    return nn.Module.to(network, dtype).eval().requires_grad_(False)


def _without_tied(
    network: nn.Module, missing: Sequence[str], loaded: Mapping[str, Tensor]
) -> list[str]:
    """Return the missing names, but for those that are another name of a loaded tensor."""
    own = network.state_dict()
    held = {own[name].data_ptr() for name in loaded if name in own}
    return [name for name in missing if own[name].data_ptr() not in held]
