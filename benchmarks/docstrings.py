"""A search set that every machine has: docstrings, each with its first sentence as the query.

The document is what follows the summary, without any line that repeats it. The relevance is
given by the authors of the libraries: one document answers each query. The set is the same
wherever the same versions are installed.
"""

from __future__ import annotations

import ast
import math
import random
import re
import sysconfig
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from inspect import cleandoc
from pathlib import Path

LIBRARIES = ("networkx", "skimage", "sympy")
"""Beside the standard library; torch and our own tests bring them."""

_SUMMARY_WORDS, _BODY_WORDS = range(6, 31), range(25, 121)
_SKIPPED = frozenset({"test", "tests", "idlelib", "lib2to3", "site-packages", "turtledemo"})


@dataclass(frozen=True, kw_only=True)
class SearchSet:
    """Documents, and queries of which each is answered by one of them.

    Attributes:
        documents: Bodies of docstrings.
        queries: The summaries of some, each with the index of its document.
        digest: Of all texts, in their order.
    """

    documents: tuple[str, ...]
    queries: tuple[tuple[str, int], ...]
    digest: str


def search_set(documents: int, queries: int) -> SearchSet:
    """Draw a set; the same numbers give the same set on the same libraries."""
    pairs = sorted(set(_pairs()))
    drawn = random.Random(11).sample(pairs, documents)  # noqa: S311 - no secret
    asked = tuple((drawn[at][0], at) for at in range(queries))
    digest = sha256("\0".join(f"{a}\0{b}" for a, b in drawn).encode()).hexdigest()
    return SearchSet(documents=tuple(body for _, body in drawn), queries=asked, digest=digest)


def bm25(texts: SearchSet, first: int) -> list[list[int]]:
    """Return for each query the first documents by Okapi BM25 (k1 1.2, b 0.75)."""
    counts = [Counter(_words(text)) for text in texts.documents]
    lengths = [each.total() for each in counts]
    mean = sum(lengths) / len(lengths)
    holding = Counter(word for each in counts for word in each)

    def score(query: list[str], at: int) -> float:
        norm = 1.2 * (0.25 + 0.75 * lengths[at] / mean)
        total = 0.0
        for word in query:
            if count := counts[at][word]:
                rarity = (len(counts) - holding[word] + 0.5) / (holding[word] + 0.5)
                total += math.log1p(rarity) * count * 2.2 / (count + norm)
        return total

    orders = []
    for query, _ in texts.queries:
        words = _words(query)
        scores = [score(words, at) for at in range(len(counts))]
        orders.append(sorted(range(len(counts)), key=lambda at: -scores[at])[:first])
    return orders


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())


def _pairs() -> Iterator[tuple[str, str]]:
    paths = {name: Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib")}
    roots = [paths["stdlib"], *(paths["purelib"] / name for name in LIBRARIES)]
    seen: set[str] = set()
    for root in roots:
        for path in sorted(root.rglob("*.py")):
            if _SKIPPED.isdisjoint(path.relative_to(root).parts):
                for summary, body in _of_file(path):
                    if not {summary, body} & seen:
                        seen |= {summary, body}
                        yield summary, body


def _of_file(path: Path) -> Iterator[tuple[str, str]]:
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            text = ast.get_docstring(node, clean=False)
            pair = _pair(cleandoc(text)) if text else None
            if pair is not None:
                yield pair


def _pair(text: str) -> tuple[str, str] | None:
    head, _, rest = text.partition("\n\n")
    summary = " ".join(head.split())
    kept = [line for line in rest.splitlines() if not line.lstrip().startswith((">>>", "..."))]
    words = " ".join(kept).split()[: _BODY_WORDS.stop - 1]
    body = " ".join(words)
    if len(summary.split()) not in _SUMMARY_WORDS or len(words) not in _BODY_WORDS:
        return None
    return None if summary.lower() in body.lower() else (summary, body)
