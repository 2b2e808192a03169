"""The results of a soak as cases of tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields

from soak_account import Account, Kill, Row
from soak_batches import Batches
from soak_traffic import Sent
from soak_watch import MIB, Holding, Trend


def _case(scenario: str, variant: str, unit: str, value: float) -> dict[str, object]:
    return {
        "case": f"{scenario}, {variant}, {unit}",
        "scenario": scenario,
        "variant": variant,
        "unit": unit,
        "ours": value,
        "peers": {},
        "ratio": {},
        "spread": {},
        "floor": None,
        "quality": None,
        "peer_quality": {},
    }


def requests(found: Account) -> Iterator[dict[str, object]]:
    rows = dict(sorted(found.rows.items()))
    total = {
        each.name: sum(asdict(row)[each.name] for row in rows.values()) for each in fields(Row)
    }
    for workload, row in [*rows.items(), ("all", Row(**total))]:
        for unit, count in asdict(row).items():
            yield _case("requests", workload, unit.replace("_", " "), count)


def memory(trends: Sequence[Trend]) -> Iterator[dict[str, object]]:
    for kind in dict.fromkeys([*(each.kind for each in trends), "all"]):
        own = [each for each in trends if kind in (each.kind, "all")]
        for unit, value in (
            ("processes", len(own)),
            ("watched, s", round(min(each.lived_s for each in own))),
            ("first, MiB", round(sum(each.first_bytes for each in own) / MIB, 1)),
            ("last, MiB", round(sum(each.last_bytes for each in own) / MIB, 1)),
            ("slope, MiB/h", round(sum(each.slope_bytes_h for each in own) / MIB, 1)),
        ):
            yield _case("memory that no file backs", kind, unit, value)


def what_is_left(
    left: Mapping[str, float], before: Holding, after: Holding
) -> Iterator[dict[str, object]]:
    for name, value in left.items():
        yield _case("what is left", name, "before", 0)
        yield _case("what is left", name, "after", int(value))
    for name, old, new in (
        ("processes", sum(before.processes.values()), sum(after.processes.values())),
        ("open files", sum(before.files.values()), sum(after.files.values())),
        ("threads", sum(before.threads.values()), sum(after.threads.values())),
        ("temporary files", len(before.temporary), len(after.temporary)),
        ("objects in Ray's store", before.objects, after.objects),
    ):
        yield _case("what is left", name, "before", old)
        yield _case("what is left", name, "after", new)


def killed(sent: Sequence[Sent], kills: Sequence[Kill]) -> Iterator[dict[str, object]]:
    for kill in kills:
        under_way = sum(kill.touched(each) for each in sent)
        name = f"{kill.application} after {kill.at_s - sent[0].began_s:.0f} s"
        yield _case("replicas killed", name, "s until its successor served", round(kill.whole_s, 1))
        yield _case("replicas killed", name, "requests to it meanwhile", under_way)


def notes(sent: Sequence[Sent], batches: Batches, found: Account, seconds: float) -> list[str]:
    sessions = sum(each.session for each in sent)
    outcomes = Counter(each.outcome for each in sent)
    got = ", ".join(f"{count} {word}" for word, count in outcomes.most_common())
    others = f"{batches.done} with a result, {batches.failed} with an error"
    return [
        f"{seconds / 60:g} minutes, with {sessions} sessions in real time: their calls are counted",
        f"what callers got: {got}",
        f"{batches.made} batches, {batches.cancelled} cancelled; of {batches.records} records {others}",
        *(found.wrong[:20] or ["nothing is left, has grown, or does not add up"]),
    ]
