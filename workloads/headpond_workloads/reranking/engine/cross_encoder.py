"""Cross-encoders: a query and a document in one sequence, a head on its first token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from headpond_workloads.encoders.encoder import Encoder
from headpond_workloads.encoders.head import Head
from headpond_workloads.encoders.tokenizer import Tokenizer
from headpond_workloads.reranking.engine.cutting import check_query, cut
from headpond_workloads.reranking.engine.scorer import Pair, Verdict
from headpond_workloads.reranking.items import PairItem


@dataclass(frozen=True, kw_only=True)
class CrossEncoder:
    """Scores pairs, or single texts.

    Attributes:
        encoder: Computes token vectors.
        tokenizer: Makes token IDs.
        head: From a first token's vector to the labels.
        labels: Their names.
        multi_label: Whether several labels may hold at once.
        context_tokens: The longest pair that the model takes.
        max_tokens: The same within the bundle's limits.
    """

    encoder: Encoder
    tokenizer: Tokenizer
    head: Head
    labels: tuple[str, ...]
    multi_label: bool
    context_tokens: int
    max_tokens: int

    def pair(self, item: PairItem) -> Pair:
        """Tokenize a pair; its query is kept, its document cut. See `Scorer`."""
        tokenizer = self.tokenizer
        if item.document is None:
            text = tokenizer.encode(item.query, item.param)
            frame = tokenizer.single
            kept = cut(text, item, taken=frame.tokens, most=self.max_tokens)
            return Pair(sequences=(frame.around(kept),))
        query = tokenizer.encode(item.query, "query")
        document = tokenizer.encode(item.document, item.param)
        frame = tokenizer.pair
        taken = frame.tokens + len(query)
        check_query(taken, self.max_tokens - 1)
        kept = cut(document, item, taken=taken, most=self.max_tokens)
        return Pair(sequences=(frame.around(query, kept),))

    def score(self, batch: Sequence[Pair]) -> list[Verdict]:
        """Compute a batch; see `Scorer`."""
        firsts = self.encoder.encode([pair.sequences[0] for pair in batch], first_only=True)
        with torch.inference_mode():
            return [self._verdict(torch.from_numpy(first)) for first in firsts]

    def _verdict(self, first: torch.Tensor) -> Verdict:
        logits = self.head.logits(first)
        independent = self.multi_label or len(self.labels) == 1
        scores = torch.sigmoid(logits) if independent else torch.softmax(logits, dim=0)
        return Verdict(logits=tuple(logits.tolist()), scores=tuple(scores.tolist()))
