"""EfficientNet-Lite: mobile inverted bottlenecks without squeeze-and-excitation, with ReLU6.

Parameters are named as in timm's `tf_efficientnet_lite0` to `4`, and padding is TensorFlow's
"same", so that their weights load as they are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch.nn.functional as F  # noqa: N812  everybody's name for it
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

_NORM_EPSILON = 1e-3
_STEM_CHANNELS, _HEAD_CHANNELS = 32, 1280


class Stage(NamedTuple):
    """Blocks of one kind; the first has the stride, the others have none."""

    kernel: int
    stride: int
    expansion: int
    channels: int
    blocks: int


_STAGES = (
    Stage(kernel=3, stride=1, expansion=1, channels=16, blocks=1),
    Stage(kernel=3, stride=2, expansion=6, channels=24, blocks=2),
    Stage(kernel=5, stride=2, expansion=6, channels=40, blocks=2),
    Stage(kernel=3, stride=2, expansion=6, channels=80, blocks=3),
    Stage(kernel=5, stride=1, expansion=6, channels=112, blocks=3),
    Stage(kernel=5, stride=2, expansion=6, channels=192, blocks=4),
    Stage(kernel=3, stride=1, expansion=6, channels=320, blocks=1),
)

VARIANTS: Mapping[str, tuple[float, float]] = {
    "EfficientNetLite0": (1.0, 1.0),
    "EfficientNetLite1": (1.0, 1.1),
    "EfficientNetLite2": (1.1, 1.2),
    "EfficientNetLite3": (1.2, 1.4),
    "EfficientNetLite4": (1.4, 1.8),
}
"""How many times the channels, and the blocks, of the smallest."""


class SameConv2d(nn.Conv2d):
    """A convolution with TensorFlow's padding: what is odd goes to the right and below."""

    def __init__(
        self, given: int, channels: int, kernel: int = 1, stride: int = 1, groups: int = 1
    ):
        """Pad by the convolution itself where that is symmetric, which it is without stride."""
        padding = kernel // 2 if stride == 1 else 0
        super().__init__(given, channels, kernel, stride, padding, groups=groups, bias=False)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  the name of the overridden one
        """Compute `(images, channels, height, width)`."""
        (kernel, _), (stride, _) = self.kernel_size, self.stride
        if stride > 1:
            down, across = (_spare(size, kernel, stride) for size in input.shape[-2:])
            edges = (across // 2, across - across // 2, down // 2, down - down // 2)
            input = F.pad(input, edges)  # noqa: A001
        return super().forward(input)


def _spare(size: int, kernel: int, stride: int) -> int:
    return max((math.ceil(size / stride) - 1) * stride + kernel - size, 0)


Pairs = tuple[tuple[str, str], ...]
"""Names of a convolution and of its normalisation, in the order they are computed."""


def _convolved(module: nn.Module, pair: tuple[str, str], x: Tensor) -> Tensor:
    convolution, norm = pair
    y: Tensor = module.get_submodule(norm)(module.get_submodule(convolution)(x))
    return y


def _fold(module: nn.Module, pairs: Pairs) -> None:
    """Put each normalisation into its convolution, for inference."""
    for name, norm_name in pairs:
        convolution, norm = module.get_submodule(name), module.get_submodule(norm_name)
        if isinstance(convolution, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
            setattr(module, name, fuse_conv_bn_eval(convolution, norm))
            setattr(module, norm_name, nn.Identity())


class Bottleneck(nn.Module):
    """Expand, convolve each channel by itself, project; added to its input where that fits."""

    def __init__(self, given: int, channels: int, stage: Stage, stride: int) -> None:
        """Build a block of `stage` that makes `channels` of `given`."""
        super().__init__()
        wide = given * stage.expansion
        depthwise = SameConv2d(wide, wide, stage.kernel, stride, groups=wide)
        project = SameConv2d(wide, channels)
        if stage.expansion == 1:
            convolutions = {"conv_dw": depthwise, "conv_pw": project}
        else:
            expand = SameConv2d(given, wide)
            convolutions = {"conv_pw": expand, "conv_dw": depthwise, "conv_pwl": project}
        for number, (name, convolution) in enumerate(convolutions.items(), 1):
            self.add_module(name, convolution)
            self.add_module(f"bn{number}", _norm(convolution.out_channels))
        self.pairs: Pairs = tuple((name, f"bn{at}") for at, name in enumerate(convolutions, 1))
        self._residual = stride == 1 and given == channels

    def forward(self, x: Tensor) -> Tensor:
        """Compute `(images, channels, height, width)`."""
        y = x
        for pair in self.pairs[:-1]:
            y = F.relu6(_convolved(self, pair, y), inplace=True)
        y = _convolved(self, self.pairs[-1], y)
        return x + y if self._residual else y


class EfficientNetLite(nn.Module):
    """The whole network: normalised images in, logits out."""

    _STEM, _HEAD = ("conv_stem", "bn1"), ("conv_head", "bn2")

    def __init__(self, variant: str, labels: int) -> None:
        """Build one of `VARIANTS`, with random weights."""
        super().__init__()
        width, depth = VARIANTS[variant]
        self.conv_stem = SameConv2d(3, _STEM_CHANNELS, 3, 2)
        self.bn1 = _norm(_STEM_CHANNELS)
        self.blocks = nn.Sequential(*_stages(width, depth))
        self.conv_head = SameConv2d(_channels(_STAGES[-1].channels, width), _HEAD_CHANNELS)
        self.bn2 = _norm(_HEAD_CHANNELS)
        self.classifier = nn.Linear(_HEAD_CHANNELS, labels)

    def forward(self, images: Tensor) -> Tensor:
        """Compute logits `(images, labels)` of `(images, 3, height, width)`."""
        x = self.blocks(F.relu6(_convolved(self, self._STEM, images), inplace=True))
        x = F.relu6(_convolved(self, self._HEAD, x), inplace=True)
        logits: Tensor = self.classifier(x.mean((2, 3)))
        return logits

    def fold(self) -> None:
        """Put every normalisation into its convolution; the network must be in `eval`."""
        _fold(self, (self._STEM, self._HEAD))
        for module in self.modules():
            if isinstance(module, Bottleneck):
                _fold(module, module.pairs)


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=_NORM_EPSILON)


def _stages(width: float, depth: float) -> Sequence[nn.Module]:
    channels = [_STEM_CHANNELS, *(_channels(stage.channels, width) for stage in _STAGES)]
    stages = []
    for number, (stage, (given, made)) in enumerate(zip(_STAGES, pairwise(channels), strict=True)):
        # The first and the last stage are as deep in every variant.
        edge = number in (0, len(_STAGES) - 1)
        count = stage.blocks if edge else math.ceil(stage.blocks * depth)
        blocks = [Bottleneck(given, made, stage, stage.stride)]
        blocks += [Bottleneck(made, made, stage, 1) for _ in range(count - 1)]
        stages.append(nn.Sequential(*blocks))
    return stages


def _channels(channels: int, width: float) -> int:
    """Round scaled channels to a multiple of 8, but never by more than a tenth down."""
    scaled = channels * width
    rounded = max(8, int(scaled + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * scaled else rounded
