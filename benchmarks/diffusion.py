"""Diffusion beside diffusers' pipeline: the same weights and requests, in processes of equal threads.

Requests come at the times of one Poisson process to all contenders, with mixed step counts and
some without guidance; `pipeline` serves one at a time, `equals` batches those that wait and agree
in steps and guidance. `flood` is a rate that nobody keeps up with, so that the images a second
are those the contender can do; `staggered` is `LOAD` times what `pipeline` can do. A second
model, random and so large that batching can't pay, asks for a few. Then the cost of a step
against its rows, beside the floor of the machine's products.

    make bench SUBJECT=diffusion
    python benchmarks/diffusion.py --only-curve
"""

from __future__ import annotations

import argparse
import base64
import copy
import io
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from diffusers import UNet2DConditionModel
from PIL import Image
from safetensors.torch import save_file
from torch.utils.flop_counter import FlopCounterMode

from formed import HERE
from harness import machine, median, quantile, versions, write_results
from headpond.bundle.document import render_manifest
from headpond.bundle.locking import lock_files
from headpond.bundle.store import Store, default_cache, open_bundle
from headpond_workloads.diffusion.engine.components import DENOISERS, load_network
from headpond_workloads.diffusion.engine.denoiser import Denoiser, UNetCall
from headpond_workloads.diffusion.engine.options import options_of
from tables import Field, Measure, table_cases

ROOT = HERE.parent
BUNDLE = ROOT / "bundles/tinysd-digits"
CONTENDERS = ("ours", "pipeline", "equals")
STEPS = (8, 10, 12, 16, 20, 24, 30)
LARGE_STEPS = (2, 3, 4)
GUIDANCE = (4.0, 4.0, 4.0, 1.0)
LOAD = 2.2
MEASURES = (
    Measure(key="images_per_s", unit="images/s"),
    Measure(key="p50_s", unit="p50 s"),
    Measure(key="p95_s", unit="p95 s"),
    Measure(key="cpu_s", unit="CPU s an image"),
)
ROWS = (1, 2, 4, 8, 12, 16, 24, 32)


@dataclass(kw_only=True)
class Painter:
    """A process of one contender."""

    name: str
    process: subprocess.Popen[str]

    def paint(self, pictures: Sequence[Mapping[str, Any]]) -> Any:
        if self.process.stdin is None or self.process.stdout is None:
            raise RuntimeError("no pipes")
        self.process.stdin.write(json.dumps({"pictures": pictures}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended")
        return json.loads(line)


@dataclass(kw_only=True)
class Run:
    """Rows by scenario, and the largest difference of pictures by contender."""

    fields: dict[str, Field] = field(default_factory=dict)
    levels: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def note(self, scenario: str, name: str, number: int, row: Mapping[str, float]) -> None:
        shown = {key: round(value, 3) for key, value in row.items()}
        print(f"round {number} {scenario:28} {name:10} {shown}", flush=True)
        if number:
            self.fields.setdefault(scenario, {}).setdefault(name, {})[number] = row


@contextmanager
def painters(bundle: Path, threads: int) -> Iterator[list[Painter]]:
    """Start a process for each contender; they wait while others are measured."""
    script = str(HERE / "peers/diffusion_paint.py")
    up = [
        Painter(
            name=name,
            process=subprocess.Popen(
                [sys.executable, script, name, str(bundle), str(threads)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            ),
        )
        for name in CONTENDERS
    ]
    try:
        for each in up:
            if each.process.stdout is None or not each.process.stdout.readline():
                raise RuntimeError(f"{each.name} did not start")
        yield up
    finally:
        for each in up:
            each.process.terminate()
            each.process.wait()


def requests(count: int, rate: float, steps: Sequence[int], seed: int) -> list[dict[str, Any]]:
    """Requests of a Poisson process; step counts and guidance come in equal shares."""
    rng = random.Random(seed)  # noqa: S311
    colours, digits = ("red", "green", "blue", "yellow"), ("one", "two", "three", "seven", "nine")
    mix = [(steps[at % len(steps)], GUIDANCE[at % len(GUIDANCE)]) for at in range(count)]
    rng.shuffle(mix)
    made, at_s = [], 0.0
    for at, (own, guidance) in enumerate(mix):
        made.append(
            {
                "prompt": f"a {rng.choice(colours)} {rng.choice(digits)}",
                "steps": own,
                "guidance": guidance,
                "seed": seed * 1000 + at,
                "at_s": at_s,
            }
        )
        at_s += rng.expovariate(rate)
    return made


def measure(
    up: Sequence[Painter], scenario: str, wanted: Sequence[dict[str, Any]], number: int, run: Run
) -> None:
    """Let each contender paint the same requests, one contender after another."""
    pictures: dict[str, list[np.ndarray[Any, Any]]] = {}
    for each in up[number % len(up) :] + up[: number % len(up)]:
        answer = each.paint(wanted)
        took = [found["took_s"] for found in answer["pictures"]]
        row = {
            "images_per_s": len(wanted) / answer["wall_s"],
            "p50_s": median(took),
            "p95_s": quantile(took, 0.95),
            "cpu_s": answer["cpu_s"] / len(wanted),
        }
        run.note(scenario, each.name, number, row)
        pictures[each.name] = [shown(found["png"]) for found in answer["pictures"]]
    for name, painted in pictures.items():
        apart = max(
            int(np.abs(one - other).max())
            for one, other in zip(painted, pictures["pipeline"], strict=True)
        )
        run.levels[name] = max(run.levels.get(name, 0), apart)


def shown(png: str) -> np.ndarray[Any, Any]:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(png)))).astype(int)


def large_bundle(folder: Path) -> Path:
    """The demo bundle with a random UNet of 66M parameters."""
    target = folder / "large"
    shutil.copytree(BUNDLE, target)
    config = json.loads((BUNDLE / "unet.json").read_text())
    config |= {
        "block_out_channels": [160, 320, 480],
        "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"],
        "up_block_types": ["CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"],
        "attention_head_dim": 8,
        "norm_num_groups": 16,
    }
    torch.manual_seed(0)
    kept = {key: value for key, value in config.items() if not key.startswith("_")}
    network = UNet2DConditionModel.from_config(kept)
    save_file(network.state_dict(), target / "unet.safetensors")
    (target / "unet.json").write_text(json.dumps(config))
    document = yaml.safe_load((target / "bundle.yaml").read_text())
    document["name"] = "random-large"
    document["output"] |= {"width": 64, "height": 64}
    document["execution"]["options"]["rows"] = 4
    (target / "bundle.yaml").write_text(yaml.safe_dump(document))
    locked = lock_files(target, Store(default_cache()))
    (target / "bundle.yaml").write_text(render_manifest(locked.manifest))
    return target


def curve(run: Run) -> None:
    """Cost of one step against its rows: our forward, diffusers', and the floor."""
    torch.set_num_threads(1)
    bundle = open_bundle(BUNDLE)
    options = options_of(bundle.manifest)
    network = load_network(bundle, options.denoiser, DENOISERS, torch.float32, "")
    plain = copy.deepcopy(network)
    ours = Denoiser(network, UNetCall, torch.device("cpu"), torch.float32)
    with torch.inference_mode():
        x, t, said = torch.randn(32, 4, 8, 8), torch.rand(32) * 999, torch.randn(32, 16, 64)
        with FlopCounterMode(display=False) as counter:
            plain(x[:1], t[:1], encoder_hidden_states=said[:1])
        operations = counter.get_total_flops()
        square = torch.randn(768, 768)
        peak = 2 * 768**3 / cpu_s(lambda: square @ square)
        run.notes.append(
            f"a row of the UNet is {operations / 1e6:.1f} million operations, at "
            f"{peak / 1e9:.0f} thousand million a second of large products "
            f"{1e3 * operations / peak:.2f} ms; one thread, CPU time"
        )
        for rows in ROWS:
            told = [{"encoder_hidden_states": each} for each in said[:rows]]
            own = cpu_s(lambda: ours(x[:rows], t[:rows], told))  # noqa: B023
            other = cpu_s(
                lambda: plain(x[:rows], t[:rows], encoder_hidden_states=said[:rows])  # noqa: B023
            )
            line = (
                f"{rows} rows: ours {1e3 * own / rows:.2f} ms a row, diffusers' UNet "
                f"{1e3 * other / rows:.2f}, floor {1e3 * operations / peak:.2f}"
            )
            print(line, flush=True)
            run.notes.append(line)


def cpu_s(work: Callable[[], object], times: int = 15) -> float:
    for _ in range(3):
        work()
    taken = []
    for _ in range(times):
        begun = time.process_time()
        work()
        taken.append(time.process_time() - begun)
    return median(taken)


def previews(ours: Painter, run: Run) -> None:
    """How soon the first of three previews comes, with eight others under way."""
    wanted = requests(24, 8.0, STEPS, 77)
    for each in wanted:
        each["partials"] = 3
    firsts = [found["first_s"] for found in ours.paint(wanted)["pictures"]]
    run.notes.append(
        f"first of three previews, staggered at 8 a second: p50 {1e3 * median(firsts):.0f} ms, "
        f"p95 {1e3 * quantile(firsts, 0.95):.0f} ms"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--images", type=int, default=56)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--no-large", action="store_true")
    parser.add_argument("--only-curve", action="store_true")
    parser.add_argument("--subject", default="diffusion", help="name of the results file")
    options = parser.parse_args()
    before, run = machine(), Run()
    curve(run)
    if not options.only_curve:
        with painters(BUNDLE, options.threads) as up:
            small(up, options, run)
        if not options.no_large:
            with (
                tempfile.TemporaryDirectory() as folder,
                painters(large_bundle(Path(folder)), options.threads) as up,
            ):
                for number in range(options.rounds + 1):
                    wanted = requests(4, 1000.0, LARGE_STEPS, number)
                    measure(up, "large model, flood", wanted, number, run)
    print(write_results(options.subject, document(run, before, options)))


def small(up: Sequence[Painter], options: argparse.Namespace, run: Run) -> None:
    """Warm up, find the rate that `pipeline` can do, then measure."""
    (alone,) = [each for each in up if each.name == "pipeline"]
    for each in up:
        each.paint(requests(16, 1000.0, STEPS, 1))
    trial = requests(21, 1000.0, STEPS, 2)
    rate = len(trial) / alone.paint(trial)["wall_s"]
    run.notes.append(f"pipeline alone: {rate:.1f} images/s; staggered comes {LOAD} times as fast")
    for number in range(options.rounds + 1):
        wanted = requests(options.images, 1000.0, STEPS, 10 + number)
        measure(up, "flood", wanted, number, run)
        wanted = requests(options.images, LOAD * rate, STEPS, 40 + number)
        measure(up, "staggered", wanted, number, run)
    previews(next(each for each in up if each.name == "ours"), run)


def document(
    run: Run, before: Mapping[str, object], options: argparse.Namespace
) -> dict[str, object]:
    quality = {
        name: f"at most {levels} of 255 levels from `pipeline`"
        for name, levels in run.levels.items()
    }
    return {
        "machine": before,
        "versions": versions("diffusers", "torch", "transformers"),
        "rounds": options.rounds,
        "settings": {"threads": options.threads, "images": options.images, "steps": list(STEPS)},
        "cases": [
            case
            for scenario, found in run.fields.items()
            for case in table_cases(scenario, MEASURES, found, ours=["ours"], quality=quality)
        ],
        "notes": run.notes,
    }


if __name__ == "__main__":
    main()
