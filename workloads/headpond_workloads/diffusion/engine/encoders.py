"""What the text encoders of each kind of pipeline make of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from headpond_workloads.diffusion.engine.conditioning import Conditions, Tokens

_SIZES = "time_ids"


class ClipEncoder:
    """One CLIP text encoder, as Stable Diffusion 1 and 2 have it."""

    def __init__(self, encoders: Sequence[Any], device: torch.device) -> None:
        """Keep the encoder."""
        (self._encoder,) = encoders
        self._device = device

    def __call__(self, texts: Sequence[Tokens], width: int, height: int) -> list[Conditions]:
        """Return the last hidden states of each text."""
        del width, height
        hidden: Tensor = self._encoder(_ids(texts, 0, self._device))[0]
        return [{"encoder_hidden_states": row} for row in hidden.unbind()]

    def absent(self, empty: Conditions) -> Conditions:
        """Return those of an empty text."""
        return empty


class SdxlEncoder:
    """Two CLIP text encoders, as SDXL has them: hidden states, a pooled one, and sizes."""

    def __init__(self, encoders: Sequence[Any], device: torch.device, *, zeros: bool) -> None:
        """Keep the encoders.

        Args:
            encoders: The last one projects.
            device: Where they are computed.
            zeros: Whether an absent negative prompt is zeros.
        """
        self._encoders = encoders
        self._device = device
        self._zeros = zeros

    def __call__(self, texts: Sequence[Tokens], width: int, height: int) -> list[Conditions]:
        """Return the hidden states before the last, side by side, and what goes with them."""
        hidden, pooled = _clip_states(self._encoders, texts, self._device)
        sizes = [height, width, 0, 0, height, width]
        told = torch.tensor(sizes, dtype=hidden.dtype, device=self._device)
        return [
            {"encoder_hidden_states": state, "text_embeds": whole, _SIZES: told}
            for state, whole in zip(hidden.unbind(), pooled[-1].unbind(), strict=True)
        ]

    def absent(self, empty: Conditions) -> Conditions:
        """Return zeros, or those of an empty text."""
        if not self._zeros:
            return empty
        return {
            name: value if name == _SIZES else torch.zeros_like(value)
            for name, value in empty.items()
        }


class Sd3Encoder:
    """Two CLIP text encoders, as SD3 has them where its third one is left out."""

    def __init__(
        self, encoders: Sequence[Any], device: torch.device, *, width: int, tokens: int
    ) -> None:
        """Keep the encoders.

        Args:
            encoders: Both project.
            device: Where they are computed.
            width: Numbers of a token, as the transformer takes them.
            tokens: Of the third encoder; they are zeros.
        """
        self._encoders = encoders
        self._device = device
        self._width = width
        self._tokens = tokens

    def __call__(self, texts: Sequence[Tokens], width: int, height: int) -> list[Conditions]:
        """Return the hidden states before the last, side by side, and both pooled ones."""
        del width, height
        hidden, pooled = _clip_states(self._encoders, texts, self._device)
        states = functional.pad(hidden, (0, self._width - hidden.shape[-1], 0, self._tokens))
        whole = torch.cat(pooled, dim=-1)
        return [
            {"encoder_hidden_states": state, "pooled_projections": each}
            for state, each in zip(states.unbind(), whole.unbind(), strict=True)
        ]

    def absent(self, empty: Conditions) -> Conditions:
        """Return those of an empty text."""
        return empty


class FluxEncoder:
    """A CLIP text encoder and one of T5's, as Flux has them: a pooled vector, and states."""

    def __init__(self, encoders: Sequence[Any], device: torch.device) -> None:
        """Keep the encoders, that of CLIP first."""
        self._clip, self._t5 = encoders
        self._device = device

    def __call__(self, texts: Sequence[Tokens], width: int, height: int) -> list[Conditions]:
        """Return T5's last hidden states, and what CLIP says of the whole text."""
        del width, height
        pooled: Tensor = self._clip(_ids(texts, 0, self._device)).pooler_output
        hidden: Tensor = self._t5(_ids(texts, 1, self._device))[0]
        return [
            {"encoder_hidden_states": states, "pooled_projections": whole}
            for states, whole in zip(hidden.unbind(), pooled.unbind(), strict=True)
        ]

    def absent(self, empty: Conditions) -> Conditions:
        """Return those of an empty text."""
        return empty


def _clip_states(
    encoders: Sequence[Any], texts: Sequence[Tokens], device: torch.device
) -> tuple[Tensor, list[Tensor]]:
    """Return the hidden states of all encoders side by side, and each one's first output."""
    hidden, pooled = [], []
    for at, encoder in enumerate(encoders):
        found = encoder(_ids(texts, at, device), output_hidden_states=True)
        hidden.append(found.hidden_states[-2])
        pooled.append(found[0])
    return torch.cat(hidden, dim=-1), pooled


def _ids(texts: Sequence[Tokens], reader: int, device: torch.device) -> Tensor:
    return torch.tensor([tokens[reader] for tokens in texts], device=device)
