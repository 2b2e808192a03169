"""LoRA adapters packed for the native decoder."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import POINTER, Array, cast

import numpy as np

from headpond_workloads.generation.engine.adapters import AdapterWeights, Addition
from headpond_workloads.generation.engine.native.structures import Adapter, LowRank, Model
from headpond_workloads.native.memory import Arena
from headpond_workloads.native.packing import GROUP, Format, Weights, pack
from headpond_workloads.native.structures import Matrix

_PRODUCTS = (
    ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    ("self_attn.o_proj",),
    ("mlp.gate_proj", "mlp.up_proj"),
    ("mlp.down_proj",),
)
"""Linear layers that are one product of the decoder, in its order."""


class NativeAdapters:
    """All adapters of a model, by number."""

    def __init__(self, model: Model, adapters: Sequence[AdapterWeights]) -> None:
        """Pack `adapters` for `model`.

        Raises:
            ValueError: An adapter has layers or shapes that the model has not.
        """
        self._kept: list[Weights] = []
        self._arena = Arena()
        self._layers: list[Array[LowRank]] = []
        self.structures = (Adapter * len(adapters))(
            *(self._adapter(model, adapter) for adapter in adapters)
        )

    def _adapter(self, model: Model, adapter: AdapterWeights) -> Adapter:
        shapes = _shapes(model)
        for (layer, module), addition in adapter.additions.items():
            found = (addition.down.shape[1], addition.up.shape[0])
            if layer >= model.layers or shapes.get(module) != found:
                raise ValueError(f"the model has no {module} of shape {found} in layer {layer}")
        pairs = [
            self._low_rank([adapter.additions.get((layer, module)) for module in modules], outputs)
            for layer in range(model.layers)
            for modules, outputs in (
                (modules, [shapes[module][1] for module in modules]) for modules in _PRODUCTS
            )
        ]
        layers = (LowRank * len(pairs))(*pairs)
        self._layers.append(layers)
        rank = max((pair.down.columns for pair in pairs), default=0)
        return Adapter(layer=cast(layers, POINTER(LowRank)), rank=rank)

    def _low_rank(self, additions: Sequence[Addition | None], outputs: Sequence[int]) -> LowRank:
        """Stack the additions to the parts of one product: ranks add up, and so do outputs."""
        present = [each for each in additions if each is not None]
        if not present:
            return LowRank()
        rank = sum(each.down.shape[0] for each in present)
        down = np.zeros((-(-rank // GROUP) * GROUP, present[0].down.shape[1]), dtype=np.float32)
        up = np.zeros((sum(outputs), len(down)), dtype=np.float32)
        row = column = 0
        for addition, count in zip(additions, outputs, strict=True):
            if addition is not None:
                more = addition.down.shape[0]
                down[row : row + more] = addition.down
                up[column : column + count, row : row + more] = addition.up
                row += more
            column += count
        return LowRank(down=self._pack(down), up=self._pack(up))

    def _pack(self, weights: Weights) -> Matrix:
        packed = pack([weights], Format.FLOAT32, arena=self._arena)
        self._kept += packed.arrays
        return packed.matrix


def _shapes(model: Model) -> dict[str, tuple[int, int]]:
    """Return inputs and outputs of each linear layer by module."""
    attended, kept = model.heads * model.width, model.kv_heads * model.width
    return {
        "self_attn.q_proj": (model.hidden, attended),
        "self_attn.k_proj": (model.hidden, kept),
        "self_attn.v_proj": (model.hidden, kept),
        "self_attn.o_proj": (attended, model.hidden),
        "mlp.gate_proj": (model.hidden, model.intermediate),
        "mlp.up_proj": (model.hidden, model.intermediate),
        "mlp.down_proj": (model.intermediate, model.hidden),
    }
