"""What the model can be told: digits, playing cards, and moves; about thirty words."""

from __future__ import annotations

import random

DIGITS = ("zero", "oh", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
RANKS = (
    *("ace", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("jack", "queen", "king"),
)
SUITS = ("clubs", "hearts", "diamonds", "spades")
DIRECTIONS = ("forward", "backward", "left", "right")
DISTANCES = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")

WORDS = tuple(
    dict.fromkeys(
        (*DIGITS, *RANKS, "of", *SUITS, "go", "turn", *DIRECTIONS, "meter", "meters", "stop")
    )
)


def sentence(rng: random.Random) -> list[str]:
    """Return one thing to say."""
    kind = rng.random()
    if kind < 0.4:
        return [rng.choice(DIGITS) for _ in range(rng.randint(1, 7))]
    if kind < 0.8:
        return _cards(rng)
    return _move(rng)


def _cards(rng: random.Random) -> list[str]:
    words: list[str] = []
    for _ in range(rng.randint(1, 3)):
        words.append(rng.choice(RANKS))
        if rng.random() < 0.25:
            continue
        if rng.random() < 0.85:
            words.append("of")
        words.append(rng.choice(SUITS))
    return words


def _move(rng: random.Random) -> list[str]:
    kind = rng.random()
    if kind < 0.1:
        return ["stop"]
    if kind < 0.3:
        return ["turn", rng.choice(("left", "right"))]
    distance = rng.choice(DISTANCES)
    words = ["go", rng.choice(DIRECTIONS), distance]
    return words if rng.random() < 0.15 else [*words, "meter" if distance == "one" else "meters"]
