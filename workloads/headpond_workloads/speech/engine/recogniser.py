"""What a model of speech is to the engine: states of utterances, advanced together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from headpond_workloads.speech.items import Listening, Word

Kind = Literal["streaming", "chunked"]
"""`streaming` hears each sample once; `chunked` hears an utterance again as it grows."""

Samples = NDArray[np.float32]

State = TypeVar("State")
State_co = TypeVar("State_co", covariant=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class Portion(Generic[State_co]):
    """More sound of one utterance.

    Attributes:
        state: The utterance's; it goes on.
        samples: At the model's rate, between -1 and 1; any number, also none.
        last: Whether the utterance ends with them.
    """

    state: State_co
    samples: Samples
    last: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Hypothesis:
    """What an utterance seems to say; times count from its own first sample.

    Attributes:
        text: All of it.
        stable: How many of its first characters won't change any more; all once it ended.
        words: When each word was said, if that was asked for and the utterance ended.
        confidence: How sure the model is, from 0 to 1; None while the utterance goes on.
        language: As ISO-639-1 has it.
    """

    text: str = ""
    stable: int = 0
    words: tuple[Word, ...] = ()
    confidence: float | None = None
    language: str | None = None


class Recogniser(Protocol[State]):
    """A loaded model.

    Attributes:
        kind: How it hears.
        rate_hz: The rate of its samples.
        longest_ms: The longest utterance that it can hear at once.
        state_bytes: The most an utterance's state takes.
        weight_bytes: What its weights take.
    """

    @property
    def kind(self) -> Kind: ...  # noqa: D102 - see the class

    @property
    def rate_hz(self) -> int: ...  # noqa: D102

    @property
    def longest_ms(self) -> int: ...  # noqa: D102

    @property
    def state_bytes(self) -> int: ...  # noqa: D102

    @property
    def weight_bytes(self) -> int: ...  # noqa: D102

    def check(self, listening: Listening) -> None:
        """Refuse what the model can't do.

        Raises:
            InvalidRequest: Names the field.
        """
        ...

    def fresh(self, listening: Listening, *, live: bool) -> State:
        """Return the state of an utterance that begins.

        Args:
            listening: What its caller wants.
            live: Whether somebody waits for text while it is spoken.
        """
        ...

    def lacks(self, state: State) -> int | None:
        """Return how many samples an utterance lacks to go on; None where any number will do.

        0 where it can go on without: it is then to be advanced again, with none, and `last`
        as before.
        """
        ...

    def advance(self, portions: Sequence[Portion[State]]) -> Sequence[Hypothesis | None]:
        """Take in more sound of several utterances, and go on with each, in one forward.

        Returns:
            In their order; None where nothing new is to be said. An utterance that ends has
            one as soon as it can't go on any more. What an utterance comes to does not depend
            on which others are there.

        Raises:
            EngineFailed: It can't be computed. So says a `RuntimeError` of torch. No utterance
                has advanced then.
        """
        ...
