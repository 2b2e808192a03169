"""Whisper's decoder: rows of several utterances in one forward, each at its own place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import gelu, linear, scaled_dot_product_attention

from headpond_workloads.speech.engine.whisper.encoder import attention, normed, product
from headpond_workloads.speech.engine.whisper.weights import Affine, Layer, WhisperWeights

_CANDIDATES = 8


@dataclass(slots=True)
class Attended:
    """What the texts of several utterances attend to.

    Attributes:
        keys: Of the sound and the silence after it, by layer, [utterances, heads, rows, head
            width].
        values: Likewise.
        text_keys: Of the text so far, by layer, [utterances, heads, places, head width].
        text_values: Likewise.
    """

    keys: list[Tensor]
    values: list[Tensor]
    text_keys: list[Tensor]
    text_values: list[Tensor]

    def keep(self, which: Sequence[int]) -> None:
        """Go on with some of the utterances only."""
        index = torch.tensor(which)
        self.keys = [each[index] for each in self.keys]
        self.values = [each[index] for each in self.values]
        self.text_keys = [each[index] for each in self.text_keys]
        self.text_values = [each[index] for each in self.text_values]


class Decoder:
    """Computes rows of text, and the logits of what follows them."""

    def __init__(self, weights: WhisperWeights, heads: int, silence: Tensor) -> None:
        """Keep the weights, which are on the device and in the dtype to compute in.

        Args:
            weights: The model's.
            heads: Of attention.
            silence: What the encoder makes of nothing, [rows, width].
        """
        self._stack = weights.decoder
        self._tokens = weights.tokens
        self._heads = heads
        self.places = len(weights.decoder.positions)
        both = [
            product(silence[None], _there(layer.cross_key_value)) for layer in self._stack.layers
        ]
        self._silence = [[each[0] for each in self._by_head(rows, 2)] for rows in both]

    def attend(self, sound: Tensor, lengths: Sequence[int], places: int) -> Attended:
        """Prepare what texts attend to.

        Args:
            sound: The encoder's rows, one utterance after the other.
            lengths: How many each has.
            places: Room for text, at most `places` of the model.
        """
        keys, values = [], []
        for layer, (silent_key, silent_value) in zip(
            self._stack.layers, self._silence, strict=True
        ):
            both = product(sound, _there(layer.cross_key_value))[None]
            key, value = (each[0] for each in self._by_head(both, 2))
            keys.append(_filled(key, silent_key, lengths))
            values.append(_filled(value, silent_value, lengths))
        shape = (len(lengths), self._heads, places, sound.shape[1] // self._heads)
        return Attended(
            keys=keys,
            values=values,
            text_keys=[torch.zeros(shape, dtype=keys[0].dtype) for _ in self._stack.layers],
            text_values=[torch.zeros(shape, dtype=keys[0].dtype) for _ in self._stack.layers],
        )

    def forward(self, token_ids: Tensor, begin: Tensor, attended: Attended) -> Tensor:
        """Compute the rows of tokens that follow what is there.

        Args:
            token_ids: [utterances, rows]; short ones are filled up with anything.
            begin: The place of the first row of each, [utterances].
            attended: The keys and values of these rows are added to it. What was added for
                filled up rows is not seen until their places are computed again.

        Returns:
            [utterances, rows, width].
        """
        return self._rows(token_ids, begin, attended, None)

    def cross_weights(
        self,
        token_ids: Tensor,
        attended: Attended,
        heads: Sequence[tuple[int, int]],
    ) -> Tensor:
        """Return how texts attend to the sound, in some heads.

        Args:
            token_ids: The whole texts, [utterances, rows].
            attended: With nothing in it yet.
            heads: Layer and head of each.

        Returns:
            The scores before they are made to sum to one, [utterances, heads, rows, rows of
            the sound], in float32.
        """
        scores: dict[tuple[int, int], Tensor] = dict.fromkeys(heads, token_ids)
        self._rows(token_ids, torch.zeros(len(token_ids), dtype=torch.long), attended, scores)
        return torch.stack([scores[each] for each in heads], dim=1)

    def logits(self, rows: Tensor) -> Tensor:
        """Return the logits of what follows each row, [rows, vocabulary], in float32.

        Products in bfloat16 come out in steps that are larger than the distance between good
        candidates. So the best ones are computed again in float32.
        """
        found = linear(rows.to(self._tokens.dtype), self._tokens).float()
        if self._tokens.dtype is not torch.float32:
            best = found.topk(_CANDIDATES, dim=-1).indices
            exact = self._tokens[best].float() @ rows[:, :, None]
            found.scatter_(1, best, exact[:, :, 0])
        return found

    def _rows(
        self,
        token_ids: Tensor,
        begin: Tensor,
        attended: Attended,
        scores: dict[tuple[int, int], Tensor] | None,
    ) -> Tensor:
        count = token_ids.shape[1]
        at = begin[:, None] + torch.arange(count)
        at = at.clamp(max=self.places - 1)
        longest = int(at.max()) + 1
        seen = (torch.arange(longest) <= at[:, :, None])[:, None]
        rows = self._tokens[token_ids].float() + self._stack.positions[at]
        for number, layer in enumerate(self._stack.layers):
            query, key, value = self._by_head(product(normed(rows, layer.norm), layer.qkv), 3)
            keys, values = attended.text_keys[number], attended.text_values[number]
            _put(keys, at, key)
            _put(values, at, value)
            own = scaled_dot_product_attention(
                query, keys[:, :, :longest], values[:, :, :longest], attn_mask=seen
            )
            rows = rows + product(_joined(own), layer.output)
            rows = rows + self._heard(rows, layer, number, attended, scores)
            inner = gelu(product(normed(rows, layer.inner_norm), layer.up))
            rows = rows + product(inner, layer.down)
        return normed(rows, self._stack.norm)

    def _heard(
        self,
        rows: Tensor,
        layer: Layer,
        number: int,
        attended: Attended,
        scores: dict[tuple[int, int], Tensor] | None,
    ) -> Tensor:
        asked = product(normed(rows, _there(layer.cross_norm)), _there(layer.cross_query))
        (query,) = self._by_head(asked, 1)
        keys = attended.keys[number]
        for at, head in scores or ():
            if scores is not None and at == number:
                scale = query.shape[-1] ** -0.5
                found = query[:, head].float() @ keys[:, head].float().transpose(1, 2)
                scores[at, head] = found * scale
        heard = attention(query, keys, attended.values[number])
        return product(_joined(heard), _there(layer.cross_output))

    def _by_head(self, rows: Tensor, parts: int) -> Sequence[Tensor]:
        """Split [utterances, rows, parts * width] into parts by head."""
        split = rows.view(*rows.shape[:2], parts, self._heads, -1)
        return split.permute(2, 0, 3, 1, 4).unbind()


def _filled(rows: Tensor, silent: Tensor, lengths: Sequence[int]) -> Tensor:
    """Put silence after each utterance: [heads, all rows, width] to [utterances, heads, ...]."""
    parts = torch.split(rows, list(lengths), dim=1)
    whole = [torch.cat((part, silent[:, part.shape[1] :]), 1) for part in parts]
    return torch.stack(whole)


def _put(kept: Tensor, at: Tensor, new: Tensor) -> None:
    """Write rows [utterances, heads, rows, width] to their places [utterances, rows]."""
    utterances = torch.arange(len(at))[:, None]
    kept[utterances, :, at] = new.transpose(1, 2)


def _joined(heads: Tensor) -> Tensor:
    return heads.transpose(1, 2).flatten(2)


def _there(affine: Affine | None) -> Affine:
    if affine is None:
        raise TypeError("this layer attends to no sound")
    return affine
