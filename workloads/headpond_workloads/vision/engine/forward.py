"""What every runtime does: a batch of images in, logits out."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

Floats = NDArray[np.float32]


class Forward(Protocol):
    """A network on its runtime. Called from several threads at once."""

    @property
    def takes_pixels(self) -> bool:
        """Whether it normalises by itself: it takes 0 to 255, else normalised values."""
        ...

    @property
    def max_batch(self) -> int | None:
        """The most images it takes at once, if that is fixed."""
        ...

    def __call__(self, images: Floats, *, alone: bool = False) -> Floats:
        """Compute logits `(images, labels)` of `(images, height, width, 3)`.

        Args:
            images: The batch.
            alone: Whether nothing else goes on, so that more threads than one would help.
        """
        ...


class Classifier(nn.Module):
    """A network with its normalisation: pixels `(images, height, width, 3)` to logits."""

    def __init__(self, network: nn.Module, mean: Floats, std: Floats) -> None:
        """Put what pixels of 0 to 255 go through before `network`."""
        super().__init__()
        self.network = network
        self.mean = nn.Buffer(torch.from_numpy(mean).reshape(3, 1, 1))
        self.scale = nn.Buffer(1 / torch.from_numpy(std).reshape(3, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        """Normalise in float32, compute in the network's dtype."""
        # The order of the axes is one of strides only: no value moves.
        normalised = (images.permute(0, 3, 1, 2) - self.mean) * self.scale
        logits: Tensor = self.network(normalised.to(self._dtype))
        return logits.float()

    @property
    def _dtype(self) -> torch.dtype:
        return next(self.network.parameters()).dtype


class TorchForward:
    """A classifier computed by torch's own modules."""

    takes_pixels = True
    max_batch = None

    def __init__(self, classifier: Classifier, device: torch.device, dtype: torch.dtype) -> None:
        """Move a classifier to its device; its network computes in `dtype`."""
        classifier.network.to(dtype)
        self._classifier = classifier.to(device).to(memory_format=torch.channels_last).eval()
        self._device = device

    def __call__(self, images: Floats, *, alone: bool = False) -> Floats:
        """Compute logits `(images, labels)` of pixels `(images, height, width, 3)`."""
        del alone  # torch has one thread for each call, or a GPU
        with torch.inference_mode():
            logits: Tensor = self._classifier(torch.from_numpy(images).to(self._device))
            return np.asarray(logits.cpu().numpy())
