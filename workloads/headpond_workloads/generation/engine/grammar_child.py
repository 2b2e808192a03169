"""The process in which grammars are tried: where one may take memory, time or a crash.

Reads one JSON value a line: first what the tokenizer is, then grammars. Answers each with a
line; a grammar that is too much gets none, for the process ends.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from random import Random

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

CPU_S = 1
"""Compute time for one grammar; an ordinary one takes milliseconds."""

_MEMORY_BYTES = 384 * 2**20
_STACK_BYTES = 2**20  # an eighth of what a thread of the server has
_STEPS = 24
_NICER = 5

_UNKNOWN_NAME = "unknown special token"
_PLACE_CHARS = 16
_REGEX_ERROR_LINES = 4
"""Of an expression on one line: a heading, it with 4 blanks before, the pointer, the reason."""

LIMITS = LLParserLimits(
    max_grammar_size=100_000,
    initial_lexer_fuel=500_000,
    step_lexer_fuel=50_000,
    step_max_items=4_000,
    max_lexer_states=50_000,
    verbose_errors=False,
)
"""What a grammar may take where it is used. Its steps stop those of all others: the worst
takes some tens of milliseconds before it is given up, a usual one 0.1."""


def refusal(matcher: LLMatcher) -> str | None:
    """Return why a grammar can't be followed (any further), or None when it can."""
    if not matcher.is_error():
        return None
    lines = matcher.get_error().splitlines() or [""]
    # Where it is in the grammar is left out: callers sent something else.
    place, separator, rest = lines[0].partition("): ")
    reason = rest if separator and place.startswith("at ") else lines[0]
    if reason.startswith(_UNKNOWN_NAME):
        # It goes on with a list of all tokens, by names that no text has.
        return "there is no token of this name; a grammar names tokens by number, as in <[2]>"
    if reason.startswith("NoExtension"):
        return "it allows no output at all"
    return (_regex_refusal(lines) or reason)[:300]


def _regex_refusal(lines: Sequence[str]) -> str | None:
    """Return what is wrong with a regular expression and where; None if it is another error.

    The error has the expression, a line that points into it, and the reason.
    """
    if not lines[0].endswith("regex parse error:"):
        return None
    at = next((at for at, line in enumerate(lines) if line.startswith("error: ")), None)
    if at is None:
        return None
    reason = lines[at].removeprefix("error: ")
    if at != _REGEX_ERROR_LINES - 1:
        return f"in a regular expression: {reason}"
    end = len(lines[2].rstrip())
    # A number would count the escapes that a slash or a line's end got on the way.
    place = lines[1][4:][max(end - 4 - _PLACE_CHARS, 0) : end - 4].replace(r"\/", "/")
    return f'in a regular expression, at the end of "{place}": {reason}'


def _try(tokenizer: LLTokenizer, grammar: str) -> dict[str, str | int | None]:
    """Compile a grammar and write something by it."""
    before = _resident_bytes()
    matcher = LLMatcher(tokenizer, grammar, log_level=0, limits=LIMITS)
    random = Random(0)  # noqa: S311 - any choice does
    for step in range(_STEPS):
        if matcher.is_stopped():
            break
        mask = int.from_bytes(matcher.compute_bitmask(), "little")
        if matcher.is_error():
            # What only gets too much on the way may still be written in other ways.
            reason = refusal(matcher) if not step else None
            return {"refusal": reason, "bytes": _resident_bytes() - before}
        matcher.consume_token(_chosen(mask, random))
    return {"refusal": refusal(matcher), "bytes": _resident_bytes() - before}


def _chosen(mask: int, random: Random) -> int:
    """Return one of the tokens whose bits are set."""
    start = random.randrange(mask.bit_length())
    later = mask >> start
    found = later if later else mask
    return (found & -found).bit_length() - 1 + (start if later else 0)


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def _bound() -> None:
    """Bound memory from here on."""
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    bytes_ = size + _MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (bytes_, bytes_))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _serve() -> None:
    setup = json.loads(sys.stdin.readline())
    tokenizer = LLTokenizer(
        setup["tokenizer"], n_vocab=setup["vocab_tokens"], eos_token=setup["eos_ids"]
    )
    _bound()
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    for line in sys.stdin:
        used = resource.getrusage(resource.RUSAGE_SELF)
        seconds = int(used.ru_utime + used.ru_stime) + 1 + CPU_S
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, hard))
        answer = _try(tokenizer, json.loads(line))
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    os.nice(_NICER)
    threading.stack_size(_STACK_BYTES)
    thread = threading.Thread(target=_serve, daemon=True)
    thread.start()
    thread.join()
