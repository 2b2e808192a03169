"""From drawn tokens to what the caller sees of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice, takewhile

from headpond_workloads.generation.engine.reader import Parts, Reader
from headpond_workloads.generation.engine.sampler import Drawn
from headpond_workloads.generation.engine.sequence import Portion, Slot, Status
from headpond_workloads.generation.engine.vocabulary import Vocabulary
from headpond_workloads.generation.items import (
    ChosenToken,
    FinishReason,
    GenerationItem,
    TextDelta,
    TokenLogprob,
    TokenUsage,
)

MAX_ADDED_TOKENS = 4
"""More control tokens than any tokenizer puts before a text."""


class OutputWriter:
    """Appends tokens to sequences and says what that adds for their callers."""

    def __init__(self, vocabulary: Vocabulary, eos_ids: frozenset[int]) -> None:
        """Spell with `vocabulary`; end a sequence at any of `eos_ids`."""
        self._vocabulary = vocabulary
        self._eos_ids = eos_ids

    def generated(self, slot: Slot, drawn: Sequence[Drawn]) -> TextDelta:
        """Append tokens, up to the one that ends the sequence, which then is finished."""
        reason: FinishReason | None = None if slot.prepared.max_output_tokens else "length"
        token_ids: list[int] = []
        parts = Parts()
        for each in drawn:
            if reason is not None or each.token_id is None:
                break
            token_ids.append(each.token_id)
            reason = self._append(slot, each.token_id, parts)
        if reason is not None:
            slot.status = Status.FINISHED
        item = slot.prepared.item
        chosen = self._chosen(drawn[: len(token_ids)]) if item.logprobs is not None else ()
        return TextDelta(
            text=parts.text,
            reasoning=parts.reasoning,
            tool_calls=parts.calls,
            token_ids=tuple(token_ids),
            logprobs=self._spelled(chosen, 0) if item.show_control else chosen,
            finish_reason=reason,
            usage=_usage(slot) if reason is not None else None,
        )

    def prompt(self, portion: Portion, scores: Sequence[Drawn]) -> Sequence[TextDelta]:
        """Return the part of a prompt to give back after a step, if any."""
        slot = portion.slot
        item = slot.prepared.item
        start = slot.returned
        end = portion.returnable if item.prompt_logprobs is not None else slot.prompt_tokens
        if end <= start:
            return ()
        slot.returned = end
        token_ids = slot.prepared.token_ids
        entries = self._chosen(scores)
        if item.prompt_logprobs is not None and not start:
            entries = (ChosenToken(self._entry(token_ids[0], None), ()), *entries)
        if entries:
            entries = self._spelled(entries, max(self._added_tokens(slot) - start, 0))
        text = self._prompt_text(slot) if item.echo and not start else ""
        given = token_ids[start:end]
        return (TextDelta(text=text, token_ids=given, logprobs=entries, is_prompt=True),)

    def _append(self, slot: Slot, token_id: int, parts: Parts) -> FinishReason | None:
        """Append one token, add what it comes to, and say whether the sequence ends with it.

        One by one, so that a sequence is the same whether or not tokens came as drafts.
        """
        reader, item = slot.reader, slot.prepared.item
        slot.token_ids.append(token_id)
        slot.reasoning_tokens += reader is not None and reader.reasons
        slot.sampler.remember(token_id)
        ends = self._ends(item, token_id)
        text = ""
        if item.include_stop or not ends:
            may_stop = slot.output_tokens > item.rules.min_tokens
            text = slot.text.push(self._raw(slot, token_id), may_stop=may_stop)
        reason = "stop" if ends else self._finish_reason(slot)
        if reason is not None:
            text += slot.text.finish()
        if reader is None:
            parts.text += text
            return reason
        _add(parts, reader.push(text))
        if reason is not None:
            _add(parts, reader.finish())
        return _reason_to_call(reader, reason)

    def _raw(self, slot: Slot, token_id: int) -> bytes:
        """Return a token's bytes; a control token that somebody looks for is spelled out."""
        raw = self._vocabulary.raw(token_id)
        if raw:
            return raw
        spelled = self._vocabulary.text(token_id)
        read = slot.reader is not None and spelled in slot.reader.marks
        return spelled.encode() if read or slot.prepared.item.show_control else raw

    def _ends(self, item: GenerationItem, token_id: int) -> bool:
        """Return whether a token ends an output, whatever text it has."""
        return (token_id in self._eos_ids and not item.ignore_eos) or token_id in item.stop_ids

    def _finish_reason(self, slot: Slot) -> FinishReason | None:
        if slot.text.stopped or slot.sampler.complete:
            return "stop"
        return "length" if slot.output_tokens >= slot.prepared.max_output_tokens else None

    def _prompt_text(self, slot: Slot) -> str:
        """Return the prompt as it was given, or as its tokens spell it."""
        text = slot.prepared.item.prompt.text
        if text is not None:
            return text
        return self._vocabulary.spelled(slot.prepared.token_ids)

    def _added_tokens(self, slot: Slot) -> int:
        """Return how many control tokens the tokenizer put before the text of the prompt."""
        text = slot.prepared.item.prompt.text
        if text is None:
            return 0
        vocabulary = self._vocabulary
        control = takewhile(lambda each: not vocabulary.raw(each), slot.prepared.token_ids)
        leading = [vocabulary.text(each) for each in islice(control, MAX_ADDED_TOKENS)]
        counts = range(len(leading) + 1)
        return next(count for count in counts if text.startswith("".join(leading[count:])))

    def _spelled(self, entries: Sequence[ChosenToken], added: int) -> tuple[ChosenToken, ...]:
        """Spell control tokens as the text does: all but the first, added ones."""
        return tuple(
            each
            if at < added or each.chosen.raw
            else replace(each, chosen=replace(each.chosen, raw=each.chosen.token.encode()))
            for at, each in enumerate(entries)
        )

    def _chosen(self, drawn: Sequence[Drawn]) -> tuple[ChosenToken, ...]:
        return tuple(
            ChosenToken(
                chosen=self._entry(each.token_id, each.logprob),
                top=tuple(self._entry(*pair) for pair in each.top),
            )
            for each in drawn
            if each.token_id is not None
        )

    def _entry(self, token_id: int, logprob: float | None) -> TokenLogprob:
        vocabulary = self._vocabulary
        return TokenLogprob(vocabulary.text(token_id), token_id, logprob, vocabulary.raw(token_id))


def _usage(slot: Slot) -> TokenUsage:
    return TokenUsage(
        prompt_tokens=slot.prompt_tokens,
        completion_tokens=slot.output_tokens,
        cached_tokens=slot.cached_tokens,
        reasoning_tokens=slot.reasoning_tokens,
    )


def _reason_to_call(reader: Reader, reason: FinishReason | None) -> FinishReason | None:
    """Return why a sequence ends that may call tools; one that may call once ends then."""
    if reader.full or (reader.calls and reason == "stop"):
        return "tool_calls"
    return reason


def _add(parts: Parts, more: Parts) -> None:
    parts.text += more.text
    parts.reasoning += more.reasoning
    for call in more.calls:
        last = parts.calls[-1] if parts.calls else None
        if last is not None and call.name is None:
            joined = replace(last, arguments=last.arguments + call.arguments)
            parts.calls = (*parts.calls[:-1], joined)
        else:
            parts.calls = (*parts.calls, call)
