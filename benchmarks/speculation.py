"""What speculation does for one stream: the same tokens, sooner.

Each bundle's engine answers the same chats greedily in this process, one after another;
rounds alternate who begins. Tokens a second are those after the first, over all chats of a
set: `open` asks for new text, `copy` for text that is in the prompt. Quality says whether all
tokens equal those without drafts, and how many drafts were accepted.

    make bench SUBJECT=speculation
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness import machine, versions, write_results
from headpond.bundle.loading import start_engine
from headpond.bundle.store import Bundle, open_bundle
from headpond.engine import EngineSettings, Json, Quantum
from headpond_workloads.generation.engine.engine import GenerationEngine
from headpond_workloads.generation.engine.sequence import Status
from headpond_workloads.generation.items import GenerationItem, Message, Prompt, Sampling
from headpond_workloads.generation.record import record
from tables import Field, Measure, table_cases

BUNDLES = Path(__file__).parents[1] / "bundles"
PLAIN = "without drafts"
MEASURES = (
    Measure(key="tokens_s", unit="tokens/s after the first"),
    Measure(key="accepted", unit="drafts accepted, share"),
    Measure(key="step_tokens", unit="tokens a step"),
)
CODE = """def total(orders, rates):
    result = 0
    for order in orders:
        rate = rates[order.currency]
        amount = order.amount * rate
        if order.discount:
            amount = amount - order.discount
        result = result + amount
    return result
"""
NEWS = (
    "The river rose by two metres on Monday night. On Tuesday the mayor of Millbrook closed the "
    "lower bridge, and the school on Canal Street sent its pupils home. Rescue workers from three "
    "towns carried sandbags to the mill. By Thursday the water had fallen, and the mayor thanked "
    "everybody who had helped."
)
CHATS: Mapping[str, Sequence[str]] = {
    "open": (
        "Tell me a short story about a fox and a lake.",
        "Explain how photosynthesis works.",
        "Write a Python function that checks if a number is prime, and explain it.",
        "What should I see in Rome in two days?",
    ),
    "copy": (
        f"Repeat this code exactly, with a docstring added:\n\n{CODE}",
        f"Copy the following text word by word:\n\n{NEWS}",
        f"Add a comment to this code and give back all of it:\n\n{CODE}",
        f"Correct the spelling of this text and give it back:\n\n{NEWS}",
    ),
}


@dataclass(kw_only=True)
class Timing:
    """Sums over the chats of a set in one round."""

    tokens: int = 0
    steps: int = 0
    spent_s: float = 0.0
    answers: list[list[int]] = field(default_factory=list)


def opened(name: str, **options: Json) -> Bundle:
    """Return a bundle with further options."""
    bundle = open_bundle(BUNDLES / name)
    execution = bundle.manifest.execution
    changed = execution.model_copy(update={"options": {**execution.options, **options}})
    return replace(bundle, manifest=bundle.manifest.model_copy(update={"execution": changed}))


def engines(threads: int) -> dict[str, GenerationEngine]:
    """Load what is compared."""
    lookup: Mapping[str, Json] = {"method": "prompt_lookup"}
    found = {
        PLAIN: opened("smollm2-135m-instruct"),
        "prompt lookup, 4 tokens": opened("smollm2-135m-instruct", speculation={**lookup}),
        "prompt lookup, 8 tokens": opened(
            "smollm2-135m-instruct", speculation={**lookup, "tokens": 8, "max_rows": 16}
        ),
        "int4 draft, 4 tokens": opened("smollm2-135m-instruct-drafted"),
    }
    settings = EngineSettings(state_bytes=96 * 2**20, max_slots=1, threads=threads)
    loaded = {}
    for name, bundle in found.items():
        engine = start_engine(record, bundle, settings)
        if not isinstance(engine, GenerationEngine):
            raise TypeError(f"{name} has another engine")
        loaded[name] = engine
    return loaded


def answer(engine: GenerationEngine, content: str, tokens: int, timing: Timing) -> None:
    """Answer one chat, and add what it took."""
    item = GenerationItem(
        prompt=Prompt(messages=(Message(role="user", content=content),)),
        max_output_tokens=tokens,
        sampling=Sampling(temperature=0.0),
    )
    slot = engine.start(engine.plan(item, ""))
    while slot.status is Status.PREFILL:
        engine.step([Quantum(slot=slot, units=slot.prompt_tokens - slot.computed)])
    first, begun_s = slot.output_tokens, time.perf_counter()
    while slot.status is not Status.FINISHED:
        engine.step([Quantum(slot=slot, units=1)])
        timing.steps += 1
    timing.spent_s += time.perf_counter() - begun_s
    timing.tokens += slot.output_tokens - first
    timing.answers.append(slot.token_ids[slot.prompt_tokens :])
    engine.release(slot)


def measure(
    engine: GenerationEngine, chats: Sequence[str], tokens: int
) -> tuple[dict[str, float], list[list[int]]]:
    """Answer the chats of a set; return the figures and the answers."""
    before, timing = engine.tallies(), Timing()
    for content in chats:
        answer(engine, content, tokens, timing)
    after = engine.tallies()
    row = {
        "tokens_s": timing.tokens / timing.spent_s,
        "step_tokens": timing.tokens / timing.steps,
    }
    drafts = after["draft_tokens"] - before["draft_tokens"]
    if drafts:
        accepted = after["accepted_draft_tokens"] - before["accepted_draft_tokens"]
        row["accepted"] = accepted / drafts
    return row, timing.answers


def main() -> None:
    """Measure all, and write the results file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=64, help="of an answer, at the most")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--subject", default="speculation", help="name of the results file")
    asked = parser.parse_args()
    before, loaded = machine(), engines(asked.threads)
    fields: dict[str, Field] = {name: {each: {} for each in loaded} for name in CHATS}
    parted: set[str] = set()
    for number in range(asked.rounds):
        for name, chats in CHATS.items():
            rows, answers = measured(loaded, number, chats, asked.tokens)
            parted |= {each for each in loaded if answers[each] != answers[PLAIN]}
            for each in loaded:
                fields[name][each][number] = rows[each]
    ours = [each for each in loaded if each != PLAIN]
    quality = {each: "OTHER TOKENS" if each in parted else "the same tokens" for each in ours}
    document = {
        "machine": before,
        "versions": versions("torch", "transformers"),
        "rounds": asked.rounds,
        "cases": [
            case
            for name in CHATS
            for case in table_cases(name, MEASURES, fields[name], ours=ours, quality=quality)
        ],
        "notes": [
            f"one stream, at most {asked.tokens} tokens an answer",
            "the int4 draft is made of the same 4-bit file as its target, and nearly equals it",
        ],
    }
    print(write_results(asked.subject, document))


def measured(
    loaded: Mapping[str, GenerationEngine], number: int, chats: Sequence[str], tokens: int
) -> tuple[dict[str, dict[str, float]], dict[str, list[list[int]]]]:
    """Return each engine's row and answers in one round, in which another one begins."""
    names, rows, answers = [*loaded], {}, {}
    begins = number % len(names)
    for name in names[begins:] + names[:begins]:
        rows[name], answers[name] = measure(loaded[name], chats, tokens)
    return rows, answers


if __name__ == "__main__":
    main()
