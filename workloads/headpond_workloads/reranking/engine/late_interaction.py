"""Late interaction: each of a query's tokens looks for its best match in the document.

Queries and documents are encoded apart. A pair's score is the mean, over the query's tokens, of
the greatest cosine to any of the document's (MaxSim).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn.functional import normalize

from headpond.errors import InvalidRequest
from headpond_workloads.encoders.encoder import Encoder
from headpond_workloads.encoders.tokenizer import Tokenizer
from headpond_workloads.encoders.tokens import Tokens, starts
from headpond_workloads.reranking.engine.cutting import check_query, cut
from headpond_workloads.reranking.engine.scorer import Pair, Verdict
from headpond_workloads.reranking.items import PairItem


@dataclass(frozen=True, kw_only=True)
class LateInteraction:
    """Scores pairs by the vectors of their tokens.

    Attributes:
        encoder: Computes token vectors.
        tokenizer: Makes token IDs.
        labels: The name of the one thing it gives.
        context_tokens: The longest query and the longest document that the model takes, together.
        max_tokens: The same within the bundle's limits; half of it is for each.
    """

    encoder: Encoder
    tokenizer: Tokenizer
    labels: tuple[str, ...]
    context_tokens: int
    max_tokens: int

    def pair(self, item: PairItem) -> Pair:
        """Tokenize a query and a document, each on its own; see `Scorer`."""
        if item.document is None:
            raise InvalidRequest(
                "this model compares a query with a document, and there is none", param=item.param
            )
        frame, most = self.tokenizer.single, self.max_tokens // 2
        query = self.tokenizer.encode(item.query, "query")
        document = self.tokenizer.encode(item.document, item.param)
        check_query(frame.tokens + len(query), most)
        kept = cut(document, item, taken=frame.tokens, most=most)
        return Pair(sequences=(frame.around(query), frame.around(kept)))

    def score(self, batch: Sequence[Pair]) -> list[Verdict]:
        """Compute a batch, equal queries once; see `Scorer`."""
        places: dict[bytes, int] = {}
        sequences: list[Tokens] = []
        for pair in batch:
            name = pair.sequences[0].token_ids.tobytes()
            if name not in places:
                places[name] = len(sequences)
                sequences.append(pair.sequences[0])
        queries = [places[pair.sequences[0].token_ids.tobytes()] for pair in batch]
        documents = range(len(sequences), len(sequences) + len(batch))
        sequences += [pair.sequences[1] for pair in batch]
        with torch.inference_mode():
            rows = normalize(torch.from_numpy(self.encoder.encode(sequences)), dim=1)
            parts = [rows[a:b] for a, b in pairwise(starts(sequences).tolist())]
            return [_verdict(parts[a], parts[b]) for a, b in zip(queries, documents, strict=True)]


def _verdict(query: Tensor, document: Tensor) -> Verdict:
    best = (query @ document.T).amax(dim=1)
    return Verdict(logits=(float(best.sum()),), scores=(float(best.mean()),))
