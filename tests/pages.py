"""The pages of the documentation, their code blocks, and the commands in those."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import dropwhile
from pathlib import Path

ROOT = Path(__file__).parents[1]
URL = "http://127.0.0.1:8000"
"""Where the pages ask; tests put their own platform in its place."""
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))

_FENCED = re.compile(r"^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<text>.*?)^ *```$", re.M | re.S)
_NEEDS = re.compile(r"\A# needs (?P<needed>[^\n]+)\n")
_INNER = re.compile(r"\$\(([^()]*)\)")
_HEREDOC = re.compile(r"<<'?(\w+)'?")
_BETWEEN = frozenset("|&;()<>")


@dataclass(frozen=True, kw_only=True)
class Block:
    """One fenced block.

    Attributes:
        page: Its page.
        line: The first line of its text, from 1.
        language: What it is written in; empty where nobody says.
        title: The file that it is, where it says.
        text: What is in it.
    """

    page: Path
    line: int
    language: str
    title: str | None
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @cached_property
    def needed(self) -> str | None:
        """What it takes to run it that a test has not; its first line tells the reader."""
        found = _NEEDS.match(self.text)
        return found["needed"] if found else None

    @cached_property
    def commands(self) -> tuple[str, ...]:
        """The commands of a console block, without what they print."""
        return tuple(_commands(self.text))


def blocks(page: Path) -> list[Block]:
    """Return the code blocks of a page."""
    return list(_blocks(page))


def _blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for found in _FENCED.finditer(text):
        language, _, rest = found["info"].strip().partition(" ")
        title = re.search(r'title="([^"]+)"', rest)
        yield Block(
            page=page,
            line=text.count("\n", 0, found.start()) + 2,
            language=language,
            title=title[1] if title else None,
            text=re.sub(f"(?m)^{found['indent']}", "", found["text"]),
        )


def _commands(text: str) -> Iterator[str]:
    """Yield each command: from its prompt on, as far as a shell would read."""
    lines = iter(text.splitlines())
    for line in lines:
        if not line.startswith("$ "):
            continue
        command = line[2:]
        while not _whole(command):
            command += "\n" + next(lines)
        yield command


def _whole(command: str) -> bool:
    if command.endswith("\\"):
        return False
    heredoc = _HEREDOC.search(command)
    if heredoc:
        return command.endswith(f"\n{heredoc[1]}")
    try:
        shlex.split(command, comments=True)
    except ValueError:
        return False
    return True


def simple_commands(command: str) -> Iterator[list[str]]:
    """Yield the words of each program that a command line starts."""
    line = _HEREDOC.split(command)[0] if "<<" in command else command
    for inner in _INNER.findall(line):
        yield from simple_commands(inner)
    flat = _INNER.sub("what-it-printed", line).replace("\\\n", " ")
    words = shlex.shlex(flat, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    found: list[str] = []
    redirected = False
    for word in [*words, ";"]:
        if not set(word) <= _BETWEEN:
            found += [] if redirected else [word]
            redirected = False
        elif ">" in word or "<" in word:
            redirected = True
        else:
            yield from [program] if (program := _program(found)) else []
            found = []


def _program(words: list[str]) -> list[str]:
    """Leave out variables that a command sets."""
    return list(dropwhile(lambda word: re.match(r"\w+=", word), words))
