"""The reranking engine: plans pairs, computes batches, gives scores."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from headpond.engine import Immediate, Json, Outcome, Plan
from headpond.errors import EngineFailed
from headpond.units import Work
from headpond_workloads.encoders.encoder import Encoder
from headpond_workloads.reranking.engine.fixtures import item_of_fixture
from headpond_workloads.reranking.engine.scorer import Pair, Scorer, Verdict
from headpond_workloads.reranking.items import DescribeItem, Description, PairItem, Score

_SHOWN_DIGITS = 6
_ANSWERED = Pair(sequences=())
"""In the plan of an item that planning has answered: it is never run."""


class RerankingEngine:
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
        self._encoder = encoder
        self._scorer = scorer
        self._description = description
        self._symbols = symbols

    @property
    def symbols(self) -> Mapping[str, int]:
        """What the loaded model is, in the record's symbols."""
        return self._symbols

    @property
    def lanes(self) -> int:
        """How many batches can be computed at once."""
        return self._encoder.lanes

    @property
    def budget(self) -> int:
        """Tokens in a batch."""
        return self._description.max_batch_tokens

    def tallies(self) -> Mapping[str, int]:
        """Return what was counted since the start; only ever grows."""
        return {"padded_tokens": self._encoder.padded_tokens}

    def plan(self, item: PairItem | DescribeItem, namespace: str) -> Plan[Pair]:
        """Tokenize a pair and cut its document.

        Raises:
            InvalidRequest: The pair is none the model can score.
            ContextLengthExceeded: It is too long, and not to be cut.
        """
        del namespace  # nothing is kept of one item for another
        if isinstance(item, DescribeItem):
            answer = Immediate(outputs=(self._description,))
            return Plan(shape={}, prepared=_ANSWERED, answer=answer)
        pair = self._scorer.pair(item)
        key = self._encoder.key(pair.longest)
        return Plan(shape={"tokens": pair.tokens}, prepared=pair, key=key)

    def run(self, batch: Sequence[Plan[Pair]]) -> list[Outcome[Score]]:
        """Compute a batch.

        Raises:
            EngineFailed: There was not enough memory for it.
        """
        pairs = [plan.prepared for plan in batch]
        verdicts = self._scorer.score(pairs)
        return [_outcome(*each) for each in zip(pairs, verdicts, strict=True)]

    def observe(self, given: Mapping[str, Json]) -> Mapping[str, Json]:
        """Score a fixture's `query` and `document`.

        Raises:
            BundleError: The fixture is not these.
            InvalidRequest: The model can't do it.
            EngineFailed: The model computed NaN.
        """
        plan = self.plan(item_of_fixture(given), "")
        (outcome,) = self.run([plan])
        if outcome.error is not None:
            raise outcome.error
        (score,) = outcome.outputs
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
