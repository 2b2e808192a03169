"""Make `docs/benchmarks.md` from `results/*.json`: figures in the docs come from nowhere else.

python benchmarks/report.py          write it
python benchmarks/report.py --check  fail when it is out of date
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TARGET = HERE.parent / "docs/benchmarks.md"

INTRO = """# Benchmarks

Made by `benchmarks/report.py` from `benchmarks/results/`; how each was measured stands in
the script of the same name. Peers run side by side with ours in one run, alternating;
figures are medians over rounds, ratios are ours over theirs in the same round (with the
least and the greatest). Servers of ours are in bold. Never compare a figure here with one
from another run or machine.
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


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def scenario_tables(cases: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    """Yield one table per scenario: a line for each server, a column for each unit."""
    scenarios: dict[str, list[Mapping[str, Any]]] = {}
    for case in cases:
        scenarios.setdefault(case["scenario"], []).append(case)
    for name, found in scenarios.items():
        yield from ("", f"### {name}", "", *_scenario(found))


def _scenario(cases: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    units = list(dict.fromkeys(case["unit"] for case in cases))
    figures: dict[str, dict[str, float]] = {}
    told: dict[str, str] = {}
    for case in cases:
        figures.setdefault(f"**{case['variant']}**", {})[case["unit"]] = case["ours"]
        told[f"**{case['variant']}**"] = case["quality"] or ""
    for case in cases:
        for peer, value in case["peers"].items():
            figures.setdefault(peer, {})[case["unit"]] = value
        told |= case["peer_quality"]
    said = any(told.values())
    yield _row(["server", *units, *(["answers"] if said else [])])
    yield _row(["---"] * (1 + len(units) + said))
    for name, values in figures.items():
        shown = [_figure(values[unit]) if unit in values else "" for unit in units]
        yield _row([name, *shown, *([told.get(name, "")] if said else [])])
    yield from _beside([case for case in cases if case["unit"] == units[0]])


def _figure(value: float) -> str:
    """Return four digits of what was measured, and all of what was counted."""
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def _spread(low: float, high: float) -> str:
    return "" if low == high else f" ({low:.2f}-{high:.2f})"


def _beside(cases: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    """Yield how each variant's first figure stands to every peer's, and to the floor."""
    lines = []
    for case in cases:
        parts = [
            f"{ratio:.2f} of {peer}{_spread(*case['spread'][peer])}"
            for peer, ratio in case["ratio"].items()
        ]
        parts += [
            f"{case['ours'] / floor:.2f} of what the products alone allow with {kind} ({floor:.4g})"
            for kind, floor in (case["floor"] or {}).items()
        ]
        if parts:
            lines.append(f"- {case['unit']}, {case['variant']}: {', '.join(parts)}")
    yield from (("", *lines) if lines else ())


def tables(cases: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    """Yield a table per scenario, or one of all cases where there are no scenarios."""
    if any("scenario" in case for case in cases):
        yield from scenario_tables(cases)
        return
    yield ""
    yield "| case | unit | ours | peers (ratio ours/peer; least-greatest) |"
    yield "|---|---|---|---|"
    yield from rows(cases)


def _rounds(count: int) -> str:
    return "1 round" if count == 1 else f"{count} rounds"


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
            f"{_rounds(document['rounds'])}; {versions}."
        ),
        *tables(document["cases"]),
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
