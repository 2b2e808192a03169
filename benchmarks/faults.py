"""What callers see when something dies or stands still, and for how long.

    make bench SUBJECT=faults
    python benchmarks/faults.py --only "replica killed"
    python benchmarks/faults.py --table      the table of docs/reliability.md, of the results

One platform serves an echo model with two replicas and an embedding model with one. Callers
ask it all the time while faults strike one after another; four long streams are under way.
The table says what callers got, how long the slowest waited, when after the fault the last
call was sent that was not answered within a second, and when every process was there again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path

from fault_list import FAULTS, Fault
from fault_platform import EMBEDDING, TWINS, WORDS, Bench, open_bench
from fault_probe import Caller, Watch
from harness import RESULTS, machine, versions, write_results

SAID = {"model": TWINS, "text": "the quick brown fox " * 5, "chunks": 20}
ROUTED = (
    Caller(name="routed", path="/v1/stumble", body=SAID),
    Caller(name="routed stream", path="/v1/stumble", body={**SAID, "stream": True}),
)
DIRECT = (Caller(name="direct", path=f"/models/{TWINS}/v1/stumble", body=SAID),)
FORMED = (
    Caller(name="formed", path="/v1/embeddings", body={"model": EMBEDDING, "input": "a quick fox"}),
)
STREAM = Caller(
    name="long stream",
    path="/v1/stumble",
    body={"model": TWINS, "text": "word " * 1000, "chunks": 2400, "stream": True},
)
BEFORE_S = 2.0
Case = Mapping[str, object]


class Recovery:
    """How long it took until all processes were there again, or, where it ends, all gone."""

    def __init__(self, bench: Bench, *, ends: bool) -> None:
        self.whole_s = 0.0
        self._bench = bench
        self._ends = ends
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def start(self) -> None:
        """Start looking, just after the fault."""
        self._thread.start()

    def stop(self) -> float:
        """Stop looking; return how long it took."""
        self._over.set()
        self._thread.join()
        return self.whole_s

    def _look(self) -> None:
        struck_s = time.monotonic()
        while not self._over.wait(0.3):
            if self._bench.left if self._ends else not self._bench.is_whole():
                self.whole_s = time.monotonic() - struck_s


async def observe(bench: Bench, fault: Fault) -> Case:
    """Let one fault strike and return what callers got."""
    callers = FORMED if fault.formed else (*ROUTED, *DIRECT)
    watch = Watch(
        base_url=bench.base_url,
        callers=callers,
        long=STREAM,
        socket_model=WORDS if fault.socket else None,
    )
    recovery = Recovery(bench, ends=fault.ends)

    def strike() -> None:
        fault.strike(bench)
        recovery.start()

    await watch.around(strike, before_s=BEFORE_S, after_s=fault.after_s)
    if fault.ends:
        await asyncio.to_thread(bench.until_gone)
    whole_s = recovery.stop()
    names = [caller.name for caller in callers]
    case = {
        "fault": fault.name,
        "under_way": dict(watch.outcomes([*names], under_way=True)),
        "new": dict(watch.outcomes(names, under_way=False)),
        "long_streams": dict(watch.outcomes([STREAM.name], under_way=True)),
        "sockets": dict(watch.outcomes(["socket"], under_way=True)),
        "slowest_s": round(watch.slowest_s(names), 1),
        "unwell_s": round(watch.unwell_s(names), 1),
        "whole_s": round(whole_s, 1),
        "by_caller": {
            caller.name: {
                "unwell_s": round(watch.unwell_s([caller.name]), 1),
                "slowest_s": round(watch.slowest_s([caller.name]), 1),
                "outcomes": dict(watch.outcomes([caller.name], under_way=False)),
            }
            for caller in callers
        },
    }
    print(json.dumps(case), flush=True)
    return case


def run(chosen: Sequence[Fault]) -> Iterator[Case]:
    """Let faults strike; those that end a platform get one of their own."""
    shared = [fault for fault in chosen if not fault.alone]
    groups = [shared, *([fault] for fault in chosen if fault.alone)]
    for group in filter(None, groups):
        with tempfile.TemporaryDirectory() as name, open_bench(Path(name), group) as bench:
            for fault in group:
                bench.until_whole()
                yield asyncio.run(observe(bench, fault))


def table(cases: Sequence[Case]) -> str:
    """Return the cases as the table of the docs."""
    lines = [
        "| fault | under way | long streams | sent after | slowest, s | last not well, s | whole, s |",
        "|---|---|---|---|---|---|---|",
    ]
    for case in cases:
        cells = [str(case["fault"])]
        cells += [_counts(case[key]) for key in ("under_way", "long_streams", "new")]
        cells[2] += f"; socket {_counts(case['sockets'])}" if case["sockets"] else ""
        cells += [f"{case[key]}" for key in ("slowest_s", "unwell_s", "whole_s")]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def rows(cases: Sequence[Case]) -> Iterator[Case]:
    """Yield two figures of each fault, as every benchmark has them."""
    units = {"unwell_s": "s to the last call not well", "whole_s": "s to the last process"}
    for case, (key, unit) in product(cases, units.items()):
        alone = {"peers": {}, "ratio": {}, "spread": {}}
        yield {"case": case["fault"], "unit": unit, "ours": case[key], **alone}


def _counts(found: object) -> str:
    if not isinstance(found, Mapping):
        raise TypeError(found)
    return ", ".join(f"{count} {outcome}" for outcome, count in sorted(found.items()))


def main() -> None:
    """Run the faults, write the results and print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    new: list[Case] = []
    try:
        if not given.table:
            chosen = [fault for fault in FAULTS if not given.only or fault.name in given.only]
            new += run(chosen)
    finally:
        print(table(kept_with(new)))


def kept_with(new: Sequence[Case]) -> list[Case]:
    """Return the kept results with new ones in their places, and keep these."""
    path = RESULTS / "faults.json"
    kept: list[Case] = json.loads(path.read_text())["faults"] if path.exists() else []
    found = {str(case["fault"]): case for case in (*kept, *new)}
    cases = [found[fault.name] for fault in FAULTS if fault.name in found]
    if new:
        described = {"machine": machine(), "versions": versions("ray"), "rounds": 1}
        write_results("faults", {**described, "cases": list(rows(cases)), "faults": cases})
    return cases


if __name__ == "__main__":
    main()
