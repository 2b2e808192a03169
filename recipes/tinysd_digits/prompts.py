"""What the model can be asked for: a colour and a digit, said in six ways."""

from __future__ import annotations

COLOURS = {
    "red": (1.0, 0.15, 0.15),
    "green": (0.1, 0.8, 0.2),
    "blue": (0.2, 0.35, 1.0),
    "yellow": (1.0, 0.9, 0.1),
    "purple": (0.7, 0.2, 0.9),
    "white": (1.0, 1.0, 1.0),
}
"""Red, green and blue of each, 0 to 1."""

NAMES = tuple(COLOURS)
NUMERALS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
PHRASES = (
    "a {colour} {numeral}",
    "a {colour} {digit}",
    "the digit {digit} in {colour}",
    "a handwritten {numeral} in {colour}",
    "{colour} {numeral}",
    "a photo of a {colour} number {digit}",
)


def prompt(digit: int, colour: str, phrase: int = 0) -> str:
    """Say a digit and a colour in one of the ways."""
    return PHRASES[phrase].format(colour=colour, numeral=NUMERALS[digit], digit=digit)


def every_prompt() -> list[str]:
    """Say all that can be said."""
    return [
        prompt(digit, colour, phrase)
        for digit in range(len(NUMERALS))
        for colour in NAMES
        for phrase in range(len(PHRASES))
    ]
