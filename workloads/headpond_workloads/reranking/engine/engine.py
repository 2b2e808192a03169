"""The reranking engine: plans pairs, computes batches, gives scores."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from headpond.engine import Json, Outcome, Plan
from headpond.errors import EngineFailed
from headpond.units import Work
from headpond_workloads.encoders.encoder import Encoder
from headpond_workloads.encoders.engine import EncoderEngine
from headpond_workloads.reranking.engine.fixtures import item_of_fixture
from headpond_workloads.reranking.engine.scorer import Pair, Scorer, Verdict
from headpond_workloads.reranking.items import Description, PairItem, Score

_SHOWN_DIGITS = 6


class RerankingEngine(EncoderEngine[PairItem, Pair, Score]):
    """Scores pairs over one encoder."""

    def __init__(
        self,
        *,
        encoder: Encoder,
        scorer: Scorer,
        description: Description,
        symbols: Mapping[str, int],
    ) -> None:
        """Put the parts together; `load` makes them.

        Args:
            encoder: Computes token vectors.
            scorer: Makes scores of them.
            description: What the model is.
            symbols: The same, in the record's symbols.
        """
        super().__init__(
            encoder=encoder,
            description=description,
            symbols=symbols,
            nothing=Pair(sequences=()),
        )
        self._scorer = scorer

    def _planned(self, item: PairItem) -> Plan[Pair]:
        pair = self._scorer.pair(item)
        key = self._encoder.key(pair.longest)
        return Plan(shape={"tokens": pair.tokens}, prepared=pair, key=key)

    def run(self, batch: Sequence[Plan[Pair]]) -> list[Outcome[Score]]:
        """Compute a batch; see `EncoderEngine`."""
        pairs = [plan.prepared for plan in batch]
        verdicts = self._scorer.score(pairs)
        return [_outcome(*each) for each in zip(pairs, verdicts, strict=True)]

    def observe(self, given: Mapping[str, Json]) -> Mapping[str, Json]:
        """Score a fixture's `query` and `document`; see `EncoderEngine`."""
        plan, score = self._observed(item_of_fixture(given))
        sequences = plan.prepared.sequences
        return {
            "input_ids": [int(each) for tokens in sequences for each in tokens.token_ids],
            "scores": [round(each, _SHOWN_DIGITS) for each in score.scores],
        }


def _outcome(pair: Pair, verdict: Verdict) -> Outcome[Score]:
    if not all(map(math.isfinite, verdict.logits)):
        return Outcome(error=EngineFailed("the pair's score is not finite"))
    score = Score(logits=verdict.logits, scores=verdict.scores, tokens=pair.tokens)
    return Outcome(outputs=(score,), work=Work(input_tokens=pair.tokens))
