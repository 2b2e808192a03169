"""The likeliest text of several utterances, together, token by token.

What an utterance seemed to say a moment ago is a draft of what it says now: the draft's
tokens are computed at once, and those are kept that would have been chosen one by one. So a
text that only grew costs little more than its new words, and comes out as without a draft.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isnan

import torch
from torch import Tensor

from headpond.errors import EngineFailed
from headpond_workloads.speech.engine.whisper.decoder import Attended, Decoder


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """One utterance to be written down.

    Attributes:
        prompt: The tokens before the text.
        asked_at: Which of them the model answers with whether anybody speaks.
        fixed: The first tokens of the text, as they were given out.
        draft: What may follow these.
        most_tokens: The longest text.
        temperature: 0 for the likeliest token.
        varied: Whether three tokens may not follow each other twice.
    """

    prompt: tuple[int, ...]
    asked_at: int
    fixed: tuple[int, ...] = ()
    draft: tuple[int, ...] = ()
    most_tokens: int
    temperature: float = 0.0
    varied: bool = False


@dataclass(slots=True)
class Written:
    """A text as it grows.

    Attributes:
        token_ids: Without the one that ended it.
        log_probs: Of each token, and of the one that ended it.
        silence: How likely it is that nobody speaks.
        ended: Whether the model ended it.
    """

    token_ids: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    silence: float = 0.0
    ended: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Controls:
    """Tokens that mean something to the loop.

    Attributes:
        end: Ends a text.
        silence: Says that nobody speaks; None where the model has no such token.
        never: Never part of a text.
        not_first: Not at the beginning of one.
    """

    end: int
    silence: int | None
    never: tuple[int, ...]
    not_first: tuple[int, ...]


class Greedy:
    """Writes down utterances."""

    def __init__(self, decoder: Decoder, controls: Controls, vocab_tokens: int) -> None:
        """Keep the model, and what it may write."""
        self._decoder = decoder
        self._end = controls.end
        self._silence = controls.silence
        self._never = _barred(controls.never, vocab_tokens)
        self._never_first = _barred((*controls.never, *controls.not_first), vocab_tokens)

    def write(self, tasks: Sequence[Task], sound: Tensor, lengths: Sequence[int]) -> list[Written]:
        """Write down utterances.

        Args:
            tasks: What each is about.
            sound: The encoder's rows, one utterance after the other.
            lengths: How many each has.

        Raises:
            EngineFailed: The model computed NaN.
        """
        most = max(len(task.prompt) + task.most_tokens for task in tasks)
        places = min(most + 1, self._decoder.places)
        attended = self._decoder.attend(sound, lengths, places)
        written = [Written() for _ in tasks]
        self._begin(tasks, written, attended)
        going = [number for number, each in enumerate(written) if not each.ended]
        kept = list(range(len(tasks)))
        while going:
            if 2 * len(going) <= len(kept):
                attended.keep([kept.index(each) for each in going])
                kept = going
            self._go_on(tasks, written, attended, kept, going)
            going = [number for number in going if not written[number].ended]
        return written

    def _begin(self, tasks: Sequence[Task], written: Sequence[Written], attended: Attended) -> None:
        """Compute prompts, fixed tokens and drafts, and keep what is right of the drafts."""
        given = [(*task.prompt, *task.fixed, *task.draft) for task in tasks]
        longest = max(map(len, given))
        filled = [[*each, *[self._end] * (longest - len(each))] for each in given]
        begin = torch.zeros(len(tasks), dtype=torch.long)
        rows = self._decoder.forward(torch.tensor(filled), begin, attended)
        asked = [rows[number, task.asked_at, None] for number, task in enumerate(tasks)]
        texts = [
            rows[number, len(task.prompt) - 1 : len(each)]
            for number, (task, each) in enumerate(zip(tasks, given, strict=True))
        ]
        logits = self._decoder.logits(torch.cat([*asked, *texts]))
        counts = [len(text) for text in texts]
        silences, *parts = torch.split(logits, [len(tasks), *counts])
        for task, text, silence, part in zip(tasks, written, silences, parts, strict=True):
            if self._silence is not None:
                text.silence = float(silence.softmax(-1)[self._silence])
            self._check(task, text, part)

    def _check(self, task: Task, text: Written, logits: Tensor) -> None:
        expected = (*task.fixed, *task.draft)
        logits[1:] += self._never
        logits[0] += self._never_first
        best = logits.argmax(-1).tolist()
        chances = logits.log_softmax(-1)
        for place in range(len(logits)):
            token_id = expected[place] if place < len(task.fixed) else best[place]
            if place >= len(task.fixed):
                token_id = self._chosen(task, text, logits[place], token_id)
            self._add(task, text, token_id, float(chances[place, token_id]))
            if text.ended or place >= len(expected) or token_id != expected[place]:
                return

    def _go_on(
        self,
        tasks: Sequence[Task],
        written: Sequence[Written],
        attended: Attended,
        kept: Sequence[int],
        going: Sequence[int],
    ) -> None:
        """Write one more token of each text that is not over."""
        # A text that is over is computed with the others for as long as few are.
        last = [written[each].token_ids[-1:] or [self._end] for each in kept]
        begin = [len(tasks[each].prompt) + len(written[each].token_ids) - 1 for each in kept]
        rows = self._decoder.forward(torch.tensor(last), torch.tensor(begin), attended)
        which = [kept.index(each) for each in going]
        logits = self._decoder.logits(rows[which, 0]) + self._never
        best = logits.argmax(-1).tolist()
        chances = logits.log_softmax(-1)
        for row, number in enumerate(going):
            task, text = tasks[number], written[number]
            token_id = self._chosen(task, text, logits[row], best[row])
            self._add(task, text, token_id, float(chances[row, token_id]))

    def _chosen(self, task: Task, text: Written, logits: Tensor, best: int) -> int:
        """Return the next token where it is not simply the likeliest one."""
        if task.varied:
            logits[_followers(text.token_ids)] = -torch.inf
            best = int(logits.argmax())
        if task.temperature > 0.0:
            noise = torch.empty_like(logits).exponential_().log().neg()
            best = int((logits / task.temperature + noise).argmax())
        return best

    def _add(self, task: Task, text: Written, token_id: int, log_prob: float) -> None:
        if isnan(log_prob):
            raise EngineFailed("the model's logits hold NaN")
        text.log_probs.append(log_prob)
        if token_id == self._end:
            text.ended = True
            return
        text.token_ids.append(token_id)
        room = self._decoder.places - len(task.prompt)
        if len(text.token_ids) >= min(task.most_tokens, room):
            text.ended = True


def _barred(token_ids: Sequence[int], vocab_tokens: int) -> Tensor:
    bars = torch.zeros(vocab_tokens)
    bars[list(token_ids)] = -torch.inf
    return bars


def _followers(token_ids: Sequence[int]) -> list[int]:
    """Return what followed the last two tokens wherever they stood before."""
    pair = tuple(token_ids[-2:])
    starts = range(len(token_ids) - 2)
    return [token_ids[at + 2] for at in starts if tuple(token_ids[at : at + 2]) == pair]
