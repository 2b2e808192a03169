"""The rows of a step's logits: whose they are, and what is read off them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from headpond_workloads.generation.engine.forward import Span
from headpond_workloads.generation.engine.logits import Logits
from headpond_workloads.generation.engine.sampler import Draw, Drawn, sample
from headpond_workloads.generation.engine.scoring import score
from headpond_workloads.generation.engine.sequence import Portion


def span(portion: Portion) -> Span:
    """Return what the forward has to compute for a portion."""
    slot = portion.slot
    token_ids = slot.token_ids[portion.start : portion.end]
    return Span(
        token_ids=[*token_ids, *portion.drafts] if portion.drafts else token_ids,
        start=portion.start,
        blocks=slot.table.blocks,
        logits=portion.scored_rows + portion.drawn_rows,
        adapter=slot.prepared.adapter,
    )


def draw(portions: Sequence[Portion], logits: Logits) -> list[Sequence[Drawn]]:
    """Return the tokens drawn for each portion: one for each of its drawn rows.

    Args:
        portions: The step.
        logits: Of its drawn rows; overwritten.
    """
    draws: list[Draw] = []
    for portion in portions:
        slot = portion.slot
        position, logprobs = slot.output_tokens, slot.prepared.item.logprobs
        draws += [
            Draw(state=slot.sampler, position=position + at, logprobs=logprobs)
            for at in range(portion.drawn_rows)
        ]
    drawn = iter(sample(logits, draws))
    return [list(islice(drawn, portion.drawn_rows)) for portion in portions]


def split(portions: Sequence[Portion], logits: Logits) -> tuple[Logits, list[list[Drawn]]]:
    """Take the scored rows out of a step's logits.

    Returns:
        The logits of the drawn rows, and how likely each portion's prompt tokens were.
    """
    if not any(portion.scored_rows for portion in portions):
        return logits, [[]] * len(portions)
    drawn_rows: list[int] = []
    scores: list[list[Drawn]] = []
    row = 0
    for portion in portions:
        scored, drawn = portion.scored_rows, portion.drawn_rows
        scores.append(_scores(portion, logits.take(range(row, row + scored))))
        drawn_rows += range(row + scored, row + scored + drawn)
        row += scored + drawn
    return logits.take(drawn_rows), scores


def _scores(portion: Portion, logits: Logits) -> list[Drawn]:
    prepared = portion.slot.prepared
    if not portion.scored_rows or prepared.item.prompt_logprobs is None:
        return []
    end = portion.returnable
    token_ids = prepared.token_ids[end - portion.scored_rows : end]
    return score(logits, token_ids, prepared.item.prompt_logprobs)
