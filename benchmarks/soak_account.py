"""Every request accounted for: by its caller, the router, and the replica that it went to.

Requests have identifiers of their own, and whatever ends otherwise than well is a line of the
router's log, every call one of its replica's. So each is looked up, and not only counted.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fault_probe import CUT, OK, SILENT, UNREACHED
from headpond.errors import DeadlineExceeded, Overloaded
from headpond.telemetry.outcomes import CANCELLED
from headpond.telemetry.scrape import Scrape
from soak_logs import Line, by_request
from soak_traffic import LEFT, Sent

BATCH = "batch_req_"
"""How identifiers of batches' calls begin."""

SHED = f"{Overloaded.status} {Overloaded.code}"
"""How requests end that a router has refused unread."""

OF_KILLS = ("worker_lost", "model_not_ready")
"""What callers are told while a replica is missing."""


@dataclass(frozen=True, kw_only=True)
class Kill:
    """A replica that was killed.

    Attributes:
        application: Whose.
        model: What it served; nothing of what serves none.
        pid: Its process.
        at_s: When, on the monotonic clock.
        whole_s: How long it took until its successor served.
        seen: What its metrics said just before, of its application: ends by outcome.
    """

    application: str
    model: str
    pid: int
    at_s: float
    whole_s: float
    seen: Mapping[str, int]

    def touched(self, each: Sent) -> bool:
        """Say whether a request was under way, or was sent, while there was no replica."""
        until_s = self.at_s + self.whole_s + 1.0
        return each.model == self.model and each.began_s < until_s and each.ended_s > self.at_s - 1


@dataclass(kw_only=True)
class Row:
    """The account of one workload.

    Attributes:
        sent: Requests, and calls of sessions.
        never_came: Those whose callers left before the router had them.
        shed: Those that the router refused unread at its edge; no log has them.
        received: What the router counted.
        ok: Of these, those that went well.
        refused: Those that were refused.
        failed: Those that failed.
        cancelled: Those whose callers left.
        at_replicas: Those that are in a replica's log.
        at_router: Those that ended before any replica had them.
        lost: Those that a replica which was killed took with it.
        of_batches: Calls for batches in replicas' logs, besides.
        unexplained: Those that fit none of this, or end otherwise for one than for another.
    """

    sent: int = 0
    never_came: int = 0
    shed: int = 0
    received: int = 0
    ok: int = 0
    refused: int = 0
    failed: int = 0
    cancelled: int = 0
    at_replicas: int = 0
    at_router: int = 0
    lost: int = 0
    of_batches: int = 0
    unexplained: int = 0


@dataclass(kw_only=True)
class Account:
    """All requests of a soak, and what does not add up.

    Attributes:
        rows: By workload.
        wrong: What does not, in words.
    """

    rows: dict[str, Row] = field(default_factory=lambda: defaultdict(Row))
    wrong: list[str] = field(default_factory=list)

    def check(self, said: str, ours: object, theirs: object) -> None:
        """Note what is not the same."""
        if ours != theirs:
            self.wrong.append(f"{said}: {ours} against {theirs}")


def account(
    sent: Sequence[Sent],
    lines: tuple[Sequence[Line], Sequence[Line]],
    scrape: Scrape,
    kills: Sequence[Kill],
    alive: Mapping[str, int],
) -> Account:
    """Look up every request.

    Args:
        sent: What callers know.
        lines: Of the router, and of replicas.
        scrape: The router's `/metrics` when all was over.
        kills: Replicas that were killed.
        alive: The process of each application's replica at the end, by its model.
    """
    found = Account()
    doors, calls = by_request(lines[0]), by_request(lines[1])
    for each in sent:
        row = found.rows[each.workload]
        if each.session:
            _session(row, each, doors, calls)
        else:
            _request(row, each, doors.get(each.identifier, []), calls.get(each.identifier, []))
        if (fault := _fault(each, doors, calls, kills)) is not None:
            row.unexplained += 1
            found.wrong.append(f"{each.identifier}, {each.outcome}: {fault}")
    known = {each.identifier for each in sent}
    for line in lines[1]:
        if line.identifier.startswith(BATCH):
            found.rows[line.workload].of_batches += 1
        elif line.identifier.partition("/")[0] not in known:
            found.wrong.append(f"a call of nobody: {line}")
    shed = sum(row.shed for row in found.rows.values())
    if shed > (counted := int(scrape.total("headpond_http_shed_total"))):
        found.wrong.append(f"{shed} were refused unread, and {counted} counted")
    _compare_router(found, scrape, lines[0])
    _compare_replicas(found, scrape, lines[1], kills, alive)
    return found


def _request(row: Row, each: Sent, doors: Sequence[Line], calls: Sequence[Line]) -> None:
    row.sent += 1
    if calls:
        row.at_replicas += 1
    elif not doors and each.outcome in (LEFT, UNREACHED):
        row.never_came += 1
    elif doors and doors[0].outcome == "worker_lost":
        row.lost += 1
    elif _is_shed(each, doors):
        row.shed += 1
    else:
        row.at_router += 1


def _is_shed(each: Sent, doors: Sequence[Line]) -> bool:
    return not doors and not each.session and each.outcome == SHED


def _session(
    row: Row, each: Sent, doors: Mapping[str, list[Line]], calls: Mapping[str, list[Line]]
) -> None:
    """Count the calls of a session: as many as either log has."""
    for identifier in _calls_of(each, doors, calls):
        _request(row, each, doors.get(identifier, []), calls.get(identifier, []))


def _calls_of(
    each: Sent, doors: Mapping[str, list[Line]], calls: Mapping[str, list[Line]]
) -> Iterator[str]:
    number, identifier = 1, each.identifier
    while identifier in doors or identifier in calls:
        yield identifier
        number += 1
        identifier = f"{each.identifier}/{number}"


def _fault(
    each: Sent,
    doors: Mapping[str, list[Line]],
    calls: Mapping[str, list[Line]],
    kills: Sequence[Kill],
) -> str | None:
    """Return what is wrong with a request's ends; None where they are the same for all."""
    if each.outcome in (CUT, SILENT, UNREACHED) or each.outcome.startswith("closed"):
        return "it was not answered"
    own = [*_calls_of(each, doors, calls)] if each.session else [each.identifier]
    at_door = {line.outcome for name in own for line in doors.get(name, [])}
    at_replica = {line.outcome for name in own for line in calls.get(name, [])}
    code = each.outcome.rpartition(" ")[2]
    killed = any(kill.touched(each) for kill in kills)
    if any(each_end in OF_KILLS for each_end in (code, *at_door)) and not killed:
        return "no replica was missing then"
    well = {OK, CANCELLED} if each.session else {OK}
    if each.outcome == OK:
        agree = bool(at_replica) and at_replica <= well
    else:
        # What the router has refused by itself no replica has seen; and a deadline may pass
        # after the replica was done, or be the router's to notice.
        theirs = not at_replica or code in at_replica or killed
        late = code == DeadlineExceeded.code and at_replica <= {OK, CANCELLED}
        agree = code in {*at_door, "None"} and (theirs or late)
    if each.outcome == LEFT or agree or _is_shed(each, doors.get(each.identifier, [])):
        return None
    return f"the router says {at_door or OK}, replicas {at_replica or 'nothing'}"


def _compare_router(found: Account, scrape: Scrape, doors: Sequence[Line]) -> None:
    """Hold the router's counters against callers and lines."""
    prefix = "headpond_http"
    for workload, row in found.rows.items():
        own = [line for line in doors if line.workload == workload]
        row.received = int(scrape.total(f"{prefix}_received_total", workload=workload))
        row.ok = int(scrape.total(f"{prefix}_finished_total", workload=workload, outcome=OK))
        row.refused = int(scrape.total(f"{prefix}_refused_total", workload=workload))
        row.cancelled = int(
            scrape.total(f"{prefix}_finished_total", workload=workload, outcome=CANCELLED)
        )
        finished = int(scrape.total(f"{prefix}_finished_total", workload=workload))
        row.failed = finished - row.ok - row.cancelled
        came = row.sent - row.never_came - row.shed
        found.check(f"{workload}, came and received", came, row.received)
        found.check(f"{workload}, received and over", row.received, finished + row.refused)
        found.check(
            f"{workload}, came to the router and went on",
            row.received,
            row.at_replicas + row.at_router + row.lost,
        )
        for refused, name in ((True, "refused_total"), (False, "finished_total")):
            label = "code" if refused else "outcome"
            said = Counter(line.outcome for line in own if line.refused is refused)
            counted = {
                word: int(scrape.total(f"{prefix}_{name}", workload=workload, **{label: word}))
                for word in scrape.values(f"{prefix}_{name}", label, workload=workload)
                if word != OK
            }
            found.check(f"{workload}, lines and {name}", dict(said), counted)


def _compare_replicas(
    found: Account,
    scrape: Scrape,
    calls: Sequence[Line],
    kills: Sequence[Kill],
    alive: Mapping[str, int],
) -> None:
    """Hold the counters of each replica against its own lines."""
    for model, pid in alive.items():
        said = Counter(line.outcome for line in calls if line.pid == pid)
        found.check(f"{model}, lines and counted", dict(said), ends(scrape, model))
    for kill in kills:
        said = Counter(line.outcome for line in calls if line.pid == kill.pid)
        missing = {word: count for word, count in kill.seen.items() if said[word] < count}
        found.check(f"{kill.model}, killed: lines that its counters had", missing, {})


def ends(scrape: Scrape, model: str) -> dict[str, int]:
    """Return how calls of a model's replicas ended, by what their metrics say."""
    counts: Counter[str] = Counter()
    for name, label in (
        ("headpond_finished_total", "outcome"),
        ("headpond_refused_total", "code"),
    ):
        for word in scrape.values(name, label, model=model):
            counts[word] += int(scrape.total(name, model=model, **{label: word}))
    return {word: count for word, count in counts.items() if count}
