"""The embedding engine: plans texts, computes batches, pools and cuts vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from headpond.engine import Json, Outcome, Plan
from headpond.errors import EngineFailed, InvalidRequest
from headpond.units import Work
from headpond_workloads.embedding.engine.fixtures import item_of_fixture
from headpond_workloads.embedding.engine.pooling import Pooling, normalized, pool
from headpond_workloads.embedding.engine.texts import Texts
from headpond_workloads.embedding.items import Description, Embedding, EmbedItem
from headpond_workloads.encoders.encoder import Encoder
from headpond_workloads.encoders.engine import EncoderEngine
from headpond_workloads.encoders.tokens import Floats, Tokens, starts

_SHOWN_DIGITS = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepared:
    """What is left of an item when it is planned.

    Attributes:
        tokens: What is computed.
        dimensions: Leading dimensions to keep.
        normalize: Whether vectors get length 1.
        each_token: Whether they stay unpooled.
    """

    tokens: Tokens
    dimensions: int
    normalize: bool
    each_token: bool


_NO_TOKENS = Tokens(token_ids=np.zeros(0, np.int32), type_ids=np.zeros(0, np.int32))
_ANSWERED = Prepared(tokens=_NO_TOKENS, dimensions=0, normalize=False, each_token=False)
"""In the plan of an item that planning has answered: it is never run."""


class EmbeddingEngine(EncoderEngine[EmbedItem, Prepared, Embedding]):
    """Embeds texts over one encoder."""

    def __init__(
        self,
        *,
        encoder: Encoder,
        texts: Texts,
        description: Description,
        symbols: Mapping[str, int],
    ) -> None:
        """Put the parts together; `load` makes them.

        Args:
            encoder: Computes token vectors.
            texts: Makes token IDs.
            description: What the model is.
            symbols: The same, in the record's symbols.
        """
        super().__init__(
            encoder=encoder, description=description, symbols=symbols, nothing=_ANSWERED
        )
        self._texts = texts
        self._dimensions = description.dimensions
        self._pooling = Pooling(description.pooling)

    def _planned(self, item: EmbedItem) -> Plan[Prepared]:
        full = self._dimensions
        dimensions = full if item.dimensions is None else item.dimensions
        if not 1 <= dimensions <= full:
            raise InvalidRequest(
                f"{dimensions} dimensions can't be; this model has 1 to {full}", param="dimensions"
            )
        tokens = self._texts.tokens(item)
        prepared = Prepared(
            tokens=tokens,
            dimensions=dimensions,
            normalize=self._normalize(item),
            each_token=item.each_token,
        )
        key = self._encoder.key(len(tokens))
        vectors = len(tokens) if item.each_token else 1
        shape = {"tokens": len(tokens), "values": vectors * dimensions}
        return Plan(shape=shape, prepared=prepared, key=key)

    def run(self, batch: Sequence[Plan[Prepared]]) -> list[Outcome[Embedding]]:
        """Compute a batch; see `EncoderEngine`."""
        items = [plan.prepared for plan in batch]
        sequences = [item.tokens for item in items]
        pooling = self._pooling
        if pooling is Pooling.CLS and not any(item.each_token for item in items):
            firsts = self._encoder.encode(sequences, first_only=True)
            return [_outcome(item, first) for item, first in zip(items, firsts, strict=True)]
        rows = self._encoder.encode(sequences)
        places = pairwise(starts(sequences))
        return [
            _outcome(item, rows[a:b] if item.each_token else pool(rows[a:b], pooling))
            for item, (a, b) in zip(items, places, strict=True)
        ]

    def observe(self, given: Mapping[str, Json]) -> Mapping[str, Json]:
        """Embed a fixture's `text` or `token_ids`; see `EncoderEngine`."""
        plan, embedding = self._observed(item_of_fixture(given))
        vector = np.frombuffer(embedding.vectors, dtype="<f4")
        return {
            "input_ids": [*map(int, plan.prepared.tokens.token_ids)],
            "vector": [round(float(value), _SHOWN_DIGITS) for value in vector],
        }

    def _normalize(self, item: EmbedItem) -> bool:
        if item.normalize is None:
            return self._texts.sentences.normalize and not item.each_token
        return item.normalize


def _outcome(item: Prepared, vectors: Floats) -> Outcome[Embedding]:
    """Cut the vector of a text, or the vectors of its tokens, of shape [..., hidden]."""
    kept = vectors[..., : item.dimensions]
    kept = normalized(kept) if item.normalize else kept
    if not np.isfinite(kept).all():
        return Outcome(error=EngineFailed("the text's vector is not finite"))
    count = len(item.tokens)
    embedding = Embedding(
        vectors=kept.astype("<f4").tobytes(), dimensions=item.dimensions, tokens=count
    )
    return Outcome(outputs=(embedding,), work=Work(input_tokens=count))
