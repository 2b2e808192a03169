"""Whisper as a recogniser: an utterance is heard again as it grows, and once more at its end.

Text that two hearings in a row agree on, but for its last words, is said to be stable; later
hearings, the last one too, begin with it.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import exp
from typing import Literal

import numpy as np
import torch

from headpond.errors import EngineFailed, InvalidRequest
from headpond_workloads.speech.engine.recogniser import Hypothesis, Portion, Samples
from headpond_workloads.speech.engine.whisper.greedy import Task, Written
from headpond_workloads.speech.engine.whisper.mel import RATE_HZ
from headpond_workloads.speech.engine.whisper.model import Encoded, WhisperModel
from headpond_workloads.speech.engine.whisper.tokens import WhisperTokens
from headpond_workloads.speech.items import Listening, Word

_SAMPLES_PER_MS = RATE_HZ // 1000
_LEAST_SAMPLES = 100 * _SAMPLES_PER_MS
"""Of less sound nothing is written: the model makes words of clicks."""

_SILENCE_AFTER_MS = 2000
"""The longest utterance leaves so much of what the model hears: it knows endings by silence."""

_HELD_BACK_WORDS = 4
_TOKENS_PER_S = 9
_TOKENS_BESIDES = 8
"""Nobody speaks faster than this; a text that is longer says something over and over."""

_MOST_CONTEXT_TOKENS = 200
_MOST_REPEATED = 2.4
"""Texts that shrink more than so many times when compressed repeat themselves."""

_SILENCE = 0.6
_UNLIKELY = -1.0
"""An utterance is silence if the model thinks so, and its text's mean log probability is lower."""


@dataclass(slots=True, eq=False)
class Utterance:
    """One utterance between two hearings.

    Attributes:
        listening: What its caller wants.
        live: Whether somebody waits for text while it is spoken.
        prompt: The tokens before its text.
        pieces: Its sound so far.
        samples: How much that is.
        heard: How much of it was heard last.
        fixed: Tokens that won't change any more.
        text: The tokens that were heard last.
    """

    listening: Listening
    live: bool
    prompt: tuple[int, ...]
    pieces: list[Samples] = field(default_factory=list)
    samples: int = 0
    heard: int = 0
    fixed: tuple[int, ...] = ()
    text: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Hearing:
    """When an utterance is heard again.

    Attributes:
        every_ms: After so much more speech.
        slower: And not before it has grown by this share, since each hearing is of all of it.
        step_ms: Speech that is heard again in one step, at most, while utterances go on;
            those that grew by most come first. An utterance that ended never waits.
    """

    every_ms: int
    slower: float
    step_ms: int


class WhisperRecogniser:
    """Hears several utterances in one forward."""

    kind: Literal["chunked"] = "chunked"
    rate_hz = RATE_HZ

    def __init__(
        self, model: WhisperModel, tokens: WhisperTokens, hearing: Hearing, language: str
    ) -> None:
        """Take a loaded model.

        Args:
            model: The model.
            tokens: Its vocabulary.
            hearing: When utterances are heard again.
            language: What is spoken where the caller does not say.
        """
        self._model = model
        self._tokens = tokens
        self._hearing = hearing
        self._language = language
        self.weight_bytes = model.weight_bytes
        self.longest_ms = model.longest_samples // _SAMPLES_PER_MS - _SILENCE_AFTER_MS
        self.state_bytes = self.longest_ms * _SAMPLES_PER_MS * np.dtype(np.float32).itemsize

    def check(self, listening: Listening) -> None:
        """Refuse a language that the model does not know.

        Raises:
            InvalidRequest: Names the field.
        """
        language = listening.language
        if language is not None and not self._tokens.speaks(language):
            raise InvalidRequest(f"this model does not know the language {language!r}",
                                 param="language")  # fmt: skip

    def fresh(self, listening: Listening, *, live: bool) -> Utterance:
        """Return the state of an utterance that begins."""
        language = listening.language or self._language
        prompt = self._tokens.prompt(language, listening.prompt, _MOST_CONTEXT_TOKENS)
        return Utterance(listening=listening, live=live, prompt=prompt)

    def lacks(self, state: Utterance) -> None:
        """Say that any number of samples will do: it hears an utterance when that is due."""
        del state

    def advance(self, portions: Sequence[Portion[Utterance]]) -> list[Hypothesis | None]:
        """Keep more sound, and hear what is due."""
        for portion in portions:
            portion.state.pieces.append(portion.samples)
            portion.state.samples += len(portion.samples)
        try:
            return self._heard(portions)
        except (EngineFailed, RuntimeError, MemoryError):
            for portion in portions:
                kept = portion.state.samples - len(portion.samples)
                portion.state.pieces = [np.concatenate(portion.state.pieces)[:kept]]
                portion.state.samples = kept
            raise

    def _heard(self, portions: Sequence[Portion[Utterance]]) -> list[Hypothesis | None]:
        found: list[Hypothesis | None] = [Hypothesis() if each.last else None for each in portions]
        due = self._due(portions)
        if due:
            with torch.inference_mode():
                heard = self._hear([portions[each] for each in due])
            for number, hypothesis in zip(due, heard, strict=True):
                found[number] = hypothesis
        return found

    def _due(self, portions: Sequence[Portion[Utterance]]) -> list[int]:
        """Return which utterances are heard now."""
        due, growing = [], []
        for number, portion in enumerate(portions):
            utterance = portion.state
            if utterance.samples < _LEAST_SAMPLES:
                continue
            new_ms = (utterance.samples - utterance.heard) // _SAMPLES_PER_MS
            share = self._hearing.slower * utterance.samples // _SAMPLES_PER_MS
            if portion.last:
                due.append(number)
            elif utterance.live and new_ms >= max(self._hearing.every_ms, share):
                growing.append((new_ms, number))
        room = self._hearing.step_ms * _SAMPLES_PER_MS
        for _, number in sorted(growing, key=lambda each: (-each[0], each[1])):
            room -= portions[number].state.samples
            due.append(number)
            if room <= 0:
                break
        return sorted(due)

    def _hear(self, portions: Sequence[Portion[Utterance]]) -> list[Hypothesis]:
        utterances = [portion.state for portion in portions]
        for utterance in utterances:
            utterance.pieces = [np.concatenate(utterance.pieces)]
        encoded = self._model.encode([utterance.pieces[0] for utterance in utterances])
        tasks = [self._task(portion) for portion in portions]
        written = self._model.write(tasks, encoded)
        self._write_again(portions, tasks, written, encoded)
        return [
            self._ended(portion.state, text, self._model.pick(encoded, [number]))
            if portion.last
            else self._grown(portion.state, text)
            for number, (portion, text) in enumerate(zip(portions, written, strict=True))
        ]

    def _task(self, portion: Portion[Utterance]) -> Task:
        utterance = portion.state
        seconds = utterance.samples / RATE_HZ
        # What was drawn by chance is no draft of the likeliest text.
        warm = portion.last and utterance.listening.temperature > 0.0
        return Task(
            prompt=utterance.prompt,
            asked_at=self._tokens.asked_at(utterance.prompt),
            fixed=utterance.fixed,
            draft=() if warm else utterance.text[len(utterance.fixed) :],
            most_tokens=int(_TOKENS_BESIDES + _TOKENS_PER_S * seconds),
            temperature=utterance.listening.temperature if warm else 0.0,
        )

    def _write_again(
        self,
        portions: Sequence[Portion[Utterance]],
        tasks: Sequence[Task],
        written: list[Written],
        encoded: Encoded,
    ) -> None:
        """Write texts that say something over and over in other words, once they are final."""
        stuck = [
            number
            for number, (portion, text) in enumerate(zip(portions, written, strict=True))
            if portion.last and self._repeats(text)
        ]
        if stuck:
            again = [replace(tasks[number], draft=(), varied=True) for number in stuck]
            texts = self._model.write(again, self._model.pick(encoded, stuck))
            for number, text in zip(stuck, texts, strict=True):
                written[number] = text

    def _repeats(self, text: Written) -> bool:
        content = self._tokens.text(text.token_ids).encode()
        return len(content) > _MOST_REPEATED * len(zlib.compress(content))

    def _grown(self, utterance: Utterance, text: Written) -> Hypothesis:
        """Compare what was heard with what was heard before; keep what won't change."""
        token_ids = tuple(text.token_ids)
        settled = self._settled(utterance.text, token_ids)
        if settled > len(utterance.fixed):
            utterance.fixed = token_ids[:settled]
        utterance.text, utterance.heard = token_ids, utterance.samples
        stable = self._tokens.text(utterance.fixed)
        return Hypothesis(text=self._tokens.text(token_ids), stable=len(stable))

    def _settled(self, before: Sequence[int], now: Sequence[int]) -> int:
        """Return how many first tokens of two texts agree, but for the last words of each."""
        same = 0
        for old, new in zip(before, now, strict=False):
            if old != new:
                break
            same += 1
        starts = [each.begin for each in self._tokens.words(now)]
        held_back = len(starts) - _HELD_BACK_WORDS
        ends = [at for at in starts[: max(held_back, 0) + 1] if at <= same]
        return ends[-1] if ends and held_back > 0 else 0

    def _ended(self, utterance: Utterance, text: Written, encoded: Encoded) -> Hypothesis:
        likelihood = sum(text.log_probs) / max(len(text.log_probs), 1)
        silent = text.silence > _SILENCE and likelihood < _UNLIKELY and not utterance.fixed
        content = "" if silent else self._tokens.text(text.token_ids).rstrip()
        if not content:
            return Hypothesis()
        language = utterance.listening.language or self._language
        return Hypothesis(
            text=content,
            stable=len(content),
            words=self._words(utterance, text, encoded) if utterance.listening.words else (),
            confidence=exp(likelihood),
            language=language,
        )

    def _words(self, utterance: Utterance, text: Written, encoded: Encoded) -> tuple[Word, ...]:
        times = self._model.times(encoded, utterance.prompt, text.token_ids)
        words = []
        for word in self._tokens.words(text.token_ids):
            chances = text.log_probs[word.begin : word.end]
            words.append(
                Word(
                    text=word.text.strip(),
                    start_ms=round(1000 * times[word.begin]),
                    end_ms=round(1000 * times[word.end]),
                    confidence=exp(sum(chances) / len(chances)),
                )
            )
        return tuple(words)
