"""LoRA adapters of a bundle, as PEFT saves them: low-rank additions to linear layers."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError

from headpond.bundle.store import Bundle
from headpond.errors import BundleError
from headpond_workloads.generation.engine.checkpoint import load_tensors
from headpond_workloads.native.packing import Weights, float32

_KEY = re.compile(
    r"base_model\.model\.model\.layers\.(\d+)\.((?:self_attn|mlp)\.\w+)\.lora_([AB])\.weight"
)


class _Config(BaseModel):
    """What PEFT's `adapter_config.json` says of a LoRA adapter, and is not ignored."""

    model_config = ConfigDict(frozen=True)

    peft_type: Literal["LORA"]
    r: Annotated[int, Field(ge=1, le=512)]
    lora_alpha: float
    use_rslora: bool = False
    use_dora: bool = False
    bias: Literal["none"] = "none"
    modules_to_save: list[str] | None = None
    rank_pattern: dict[str, int] = Field(default_factory=dict)
    alpha_pattern: dict[str, float] = Field(default_factory=dict)

    def scaling(self, module: str, rank: int) -> float:
        """Return the factor of a module's addition. Source: peft's LoraLayer.update_layer."""
        alpha = next(
            (alpha for name, alpha in self.alpha_pattern.items() if module.endswith(name)),
            self.lora_alpha,
        )
        return alpha / (math.sqrt(rank) if self.use_rslora else rank)


@dataclass(frozen=True, kw_only=True)
class Addition:
    """What is added to one linear layer: `x @ down.T @ up.T`.

    Attributes:
        down: Of shape [rank, inputs].
        up: Of shape [outputs, rank], scaled.
    """

    down: NDArray[np.float32]
    up: NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class AdapterWeights:
    """One adapter: its additions by layer and module, e.g. `(3, "self_attn.q_proj")`."""

    name: str
    additions: Mapping[tuple[int, str], Addition]


def load_adapters(bundle: Bundle, artifacts: Mapping[str, str]) -> tuple[AdapterWeights, ...]:
    """Read adapters from a bundle's files.

    Args:
        bundle: Has the artifacts, and beside each its `<artifact>_config`.
        artifacts: Artifact by adapter name.

    Raises:
        BundleError: A file is missing, or is no LoRA adapter of a kind that is served.
    """
    return tuple(
        AdapterWeights(name=name, additions=_additions(bundle, name, artifact))
        for name, artifact in artifacts.items()
    )


def _additions(bundle: Bundle, name: str, artifact: str) -> Mapping[tuple[int, str], Addition]:
    for needed in (artifact, f"{artifact}_config"):
        if needed not in bundle.files:
            raise _refusal(name, f"the bundle has no artifact {needed}")
    config = _config(bundle, name, f"{artifact}_config")
    halves: dict[tuple[int, str], dict[str, NDArray[np.float32]]] = {}
    for key, tensor in _tensors(bundle, name, artifact).items():
        found = _KEY.fullmatch(key)
        if found is None:
            raise _refusal(name, f"{key} is no part of a layer that can be adapted")
        halves.setdefault((int(found[1]), found[2]), {})[found[3]] = float32(tensor)
    return {place: _addition(name, config, place[1], pair) for place, pair in halves.items()}


def _config(bundle: Bundle, name: str, artifact: str) -> _Config:
    try:
        config = _Config.model_validate_json(bundle.files[artifact].read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(map(str, first["loc"])) or "the file"
        raise _refusal(name, f"{path} of its configuration: {first['msg']}") from None
    if config.use_dora or config.modules_to_save:
        raise _refusal(name, "DoRA and modules_to_save are not served")
    return config


def _tensors(bundle: Bundle, name: str, artifact: str) -> Mapping[str, Weights]:
    try:
        return load_tensors(bundle.files[artifact])
    except SafetensorError as error:
        raise _refusal(name, "its weights are no safetensors file") from error


def _addition(
    name: str, config: _Config, module: str, pair: Mapping[str, NDArray[np.float32]]
) -> Addition:
    if pair.keys() != {"A", "B"} or pair["A"].shape[0] != pair["B"].shape[1]:
        raise _refusal(name, f"lora_A and lora_B of {module} don't fit together")
    scaling = config.scaling(module, pair["A"].shape[0])
    return Addition(down=pair["A"], up=pair["B"] * np.float32(scaling))


def _refusal(name: str, reason: str) -> BundleError:
    return BundleError(f"adapter {name}: {reason}", param=f"execution.options.adapters.{name}")
