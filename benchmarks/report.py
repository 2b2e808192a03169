"""Make `docs/benchmarks.md` from `results/*.json`: figures in the docs come from nowhere else.

python benchmarks/report.py          write it
python benchmarks/report.py --check  fail when it is out of date
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TARGET = HERE.parent / "docs/benchmarks.md"

INTRO = """# Benchmarks

Made by `benchmarks/report.py` from `benchmarks/results/`; how each was measured stands in
the script of the same name. Peers run side by side with ours in one run, alternating;
figures are medians over rounds, ratios are ours over theirs in the same round (with the
least and the greatest). Never compare a figure here with one from another run or machine.
"""


def rows(cases: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    """Yield a table row per case."""
    for case in cases:
        peers = []
        for name, value in case["peers"].items():
            ratio, (low, high) = case["ratio"].get(name), case["spread"].get(name, (0, 0))
            beside = f" (x{ratio:.2f}; {low:.2f}-{high:.2f})" if ratio is not None else ""
            peers.append(f"{name} {value:.4g}{beside}")
        yield f"| {case['case']} | {case['unit']} | {case['ours']:.4g} | {'<br>'.join(peers)} |"


def section(document: Mapping[str, Any]) -> str:
    """Return one subject's section."""
    machine = document["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in document["versions"].items())
    lines = [
        f"## {document['subject']}",
        "",
        (
            f"{document['date']}, {machine['cores']} cores of {machine['cpu']}, "
            f"{machine['memory_bytes'] / 2**30:.0f} GiB, load before {machine['load_before']:.2f}; "
            f"{document['rounds']} rounds; {versions}."
        ),
        "",
        "| case | unit | ours | peers (ratio ours/peer; least-greatest) |",
        "|---|---|---|---|",
        *rows(document["cases"]),
    ]
    if notes := document.get("notes"):
        lines += ["", *(f"- {note}" for note in notes)]
    return "\n".join(lines) + "\n"


def main() -> int:
    documents = [json.loads(path.read_text()) for path in sorted((HERE / "results").glob("*.json"))]
    text = "\n".join([INTRO, *(section(document) for document in documents)])
    if "--check" in sys.argv:
        return int(TARGET.read_text() != text)
    TARGET.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
