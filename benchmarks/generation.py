"""Text generation beside the servers people use: same weights, prompts and client.

Each round sends every scenario's burst to every contender in turn; in each round another
contender begins. Peers that are not measured are stopped (SIGSTOP); ours idle. All greedy,
to the full length. A prompt is used once for each model, so that only the shared prefix can
come from a cache; it is there from a request just before.

Tokens are those of the server's usage field. CPU is of the whole process tree while the
burst lasts, Ray's processes included, the replicas of our other bundles not; PSS likewise.
Quality compares the first round's answers at 8 streams with transformers' `generate`. The
floor is what the matrix products alone would allow (`floor.py`), of oneDNN and of our own.

    make bench SUBJECT=generation
    python benchmarks/generation.py --rounds 2 --tokens 8 --only bf16 --peers ""   # a try
"""

from __future__ import annotations

import argparse
import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bursts import Burst, BurstFailed, measure, prime
from contenders import Contender
from floor import Floors, floors, tokens_per_s
from harness import machine, median, write_results
from lineup import Lineup, alone, lineup
from prompts import Prompts
from references import Tokens, references
from tables import Field, Measure, table_cases

PREFIX_TOKENS = 512
PROMPT_TOKENS = 128
WARM_TOKENS = 16
FLOOR_ROWS = (1, 8, 16, 128)

MEASURES = (
    Measure(key="tokens_s", unit="output tokens/s"),
    Measure(key="decode_s", unit="tokens/s a stream after the first"),
    Measure(key="first_ms", unit="first token ms"),
    Measure(key="gap_p50_ms", unit="gap p50 ms"),
    Measure(key="gap_p99_ms", unit="gap p99 ms"),
    Measure(key="cpu_ms", unit="CPU ms/token"),
    Measure(key="pss_mib", unit="PSS MiB"),
)


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """So many streams at once.

    Attributes:
        streams: How many.
        shared: Whether all prompts begin with the same prefix.
        without: Contenders that are left out, to keep the run short.
    """

    streams: int
    shared: bool = False
    without: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """As it stands in the tables."""
        many = f"{self.streams} stream{'s' if self.streams > 1 else ''}"
        return f"{many}, {PREFIX_TOKENS} shared + {PROMPT_TOKENS} in" if self.shared else many


_ROUTED = frozenset({"bf16, routed"})
_SLOW = frozenset({"transformers bf16", "llama.cpp q4_1"})

SCENARIOS = (
    Scenario(streams=1, without=_ROUTED),
    Scenario(streams=8, without=_ROUTED),
    Scenario(streams=16, without=frozenset({"llama.cpp q4_1"})),
    Scenario(streams=8, shared=True, without=_ROUTED | _SLOW),
    Scenario(streams=16, shared=True, without=_ROUTED | _SLOW),
)
QUALITY_AT = SCENARIOS[1]

_ONE_PIECE = 1.05
"""Up to so many tokens an event, events are tokens (some tokens end within a character)."""


@dataclass(kw_only=True)
class Run:
    """What the rounds share and collect.

    Attributes:
        lineup: Who takes part.
        rows: By scenario, the rows of each contender by round.
        answers: By contender, the texts that are compared with transformers'.
        replica_mib: PSS of the processes of ours that compute, without Ray's.
    """

    lineup: Lineup
    prompts: Prompts
    prefix: str
    tokens: int
    rows: dict[str, Field] = field(default_factory=dict)
    answers: dict[str, list[str]] = field(default_factory=dict)
    replica_mib: dict[str, float] = field(default_factory=dict)

    def draw(self, scenario: Scenario) -> list[str]:
        """Return a burst's prompts; with a shared prefix they begin with it."""
        before = self.prefix if scenario.shared else ""
        return [
            before + self.prompts.take(PROMPT_TOKENS, after=before) for _ in range(scenario.streams)
        ]


async def one_round(run: Run, number: int, compared: Sequence[str]) -> None:
    """Send every scenario's burst to every contender, from another one on in each round."""
    start = number % len(run.lineup.up)
    order = run.lineup.up[start:] + run.lineup.up[:start]
    for scenario in SCENARIOS:
        taking_part = [each for each in order if each.name not in scenario.without]
        draws = [compared if number == 1 and scenario is QUALITY_AT else run.draw(scenario)]
        used: Counter[tuple[str, str]] = Counter()
        for contender in taking_part:
            served = (contender.server.name, contender.model)
            turn = used[served]  # the second door of a model gets other prompts
            used[served] += 1
            if turn == len(draws):
                draws.append(run.draw(scenario))
            found = await attempt(run, number, scenario, contender, draws[turn])
            if found is not None and draws[turn] is compared:
                run.answers[contender.name] = found.texts


async def attempt(
    run: Run, number: int, scenario: Scenario, contender: Contender, prompts: Sequence[str]
) -> Burst | None:
    """Measure once; a failure is kept for the report. Round 0 warms up and does not count."""
    with alone(contender):
        try:
            if scenario.shared:
                await prime(contender, run.prefix)
            tokens = run.tokens if number else min(run.tokens, WARM_TOKENS)
            found = await measure(contender, prompts, tokens=tokens)
        except BurstFailed as failure:
            run.lineup.failed(f"round {number}, {scenario.name}, {contender.name}: {failure}")
            return None
    shown = {key: round(value, 2) for key, value in found.row.items()}
    print(f"round {number}, {scenario.name:32} {contender.name:18} {shown}", flush=True)
    if number:
        rows = run.rows.setdefault(scenario.name, {})
        rows.setdefault(contender.name, {})[number] = found.row
    return found


def equal_outputs(
    answers: Mapping[str, Sequence[str]], expected: Tokens, prompts: Prompts
) -> dict[str, str]:
    """Say for every contender how many answers are transformers', and where others part."""
    said = {}
    for name, texts in answers.items():
        parts = []
        for dtype, rows in expected.items():
            reached = [prompts.reached(row, text) for row, text in zip(rows, texts, strict=True)]
            different = sorted(at for at, row in zip(reached, rows, strict=True) if at < len(row))
            parted = f", others part at token {different}" if different else ""
            parts.append(f"{len(rows) - len(different)}/{len(rows)} as in {dtype}{parted}")
        said[name] = "; ".join(parts)
    return said


def run_all(
    lineup: Lineup, prompts: Prompts, *, rounds: int, tokens: int
) -> tuple[Run, dict[str, str]]:
    """Compute the references, start everything and run the rounds."""
    prefix = prompts.take(PREFIX_TOKENS)
    compared = [prompts.take(PROMPT_TOKENS) for _ in range(QUALITY_AT.streams)]
    expected = references(lineup.weights.folder, compared, tokens)
    lineup.start()
    run = Run(lineup=lineup, prompts=prompts, prefix=prefix, tokens=tokens)
    for number in range(rounds + 1):
        asyncio.run(one_round(run, number, compared))
    run.replica_mib = {
        each.name: each.server.titled_pss_bytes(each.title) / 2**20
        for each in lineup.up
        if each.title
    }
    return run, equal_outputs(run.answers, expected, prompts)


def cases_of(run: Run, found: Floors, quality: Mapping[str, str]) -> list[dict[str, object]]:
    """Return the results file's cases, floors and quality among them."""
    mine = run.lineup.ours
    cases: list[dict[str, object]] = []
    for scenario in SCENARIOS:
        limits = {
            name: {
                kind: tokens_per_s(
                    milliseconds,
                    streams=scenario.streams,
                    computed=PROMPT_TOKENS,
                    tokens=run.tokens,
                )
                for kind, milliseconds in found[name.partition(",")[0]].items()
            }
            for name in mine
        }
        cases += table_cases(
            scenario.name,
            MEASURES,
            run.rows.get(scenario.name, {}),
            ours=mine,
            floors=limits,
            quality=quality if scenario is QUALITY_AT else {},
        )
    return cases


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--only", default="", help="our variants, by comma; all by default")
    parser.add_argument("--peers", default="vllm,llama,llama-q4,transformers")
    parser.add_argument("--subject", default="generation", help="name of the results file")
    options = parser.parse_args()
    before = machine()
    with lineup(options.only, options.peers, routed=True) as chosen:
        found = floors(chosen.weights.folder, FLOOR_ROWS)
        print("floor, ms a step:", dict(found), flush=True)
        prompts = Prompts(chosen.weights.tokenizer)
        run, quality = run_all(chosen, prompts, rounds=options.rounds, tokens=options.tokens)
    path = write_results(
        options.subject,
        {
            "machine": before,
            "versions": chosen.versions(),
            "rounds": options.rounds,
            "text": f"CPython's language reference, sha256 {prompts.digest}",
            "settings": chosen.settings(),
            "floor_ms": found,
            "failures": chosen.failures,
            "cases": cases_of(run, found, quality),
            "notes": notes(run),
        },
    )
    print(path)


def notes(run: Run) -> list[str]:
    """Return the lines below the tables."""
    failed = [f"failed: {each}" for each in run.lineup.failures] or ["no burst failed"]
    pieces: dict[str, list[float]] = {}
    for rows in run.rows.values():
        for name, measured in rows.items():
            pieces.setdefault(name, []).extend(row["tokens_per_piece"] for row in measured.values())
    several = [
        f"{name}: {median(counts):.2f} tokens an event, so gaps are not per token"
        for name, counts in pieces.items()
        if median(counts) > _ONE_PIECE
    ]
    replicas = ", ".join(f"{name} {mib:.0f}" for name, mib in run.replica_mib.items())
    return [
        f"{PROMPT_TOKENS} tokens in (after the shared prefix, which is cached), {run.tokens} out",
        f"answers were compared in round 1 at {QUALITY_AT.name}",
        "CPU and PSS of ours include Ray's processes and the router's",
        f"PSS of our replicas alone, MiB: {replicas}",
        *several,
        *failed,
    ]


if __name__ == "__main__":
    main()
