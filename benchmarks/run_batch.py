"""vLLM's `run-batch`: the same records on the same weights, offline, as a peer of our batch."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from contenders import CONTEXT_TOKENS, KV_BYTES
from environments import LLAMA, VLLM, vllm_preload
from weights import Weights, prepare

NAME = "vllm run-batch"
LOG = Path("/tmp/bench-vllm-run-batch.log")  # noqa: S108

_MODEL = "m"
_BAR = re.compile(rb"Running batch: +(\d+)%")
_BLOCK_BYTES = 2**16


def ready() -> Weights:
    """Install vLLM where it is missing, and return the weights that it reads."""
    for environment in (VLLM, LLAMA):  # the weights are made by llama.cpp's tools
        environment.ensure()
    return prepare()


def records_s(
    weights: Weights, path: str, bodies: Sequence[Mapping[str, object]], folder: Path
) -> float:
    """Return the records per second from the first record's begin to the last one's end.

    Its start takes longer than a batch does, and is not counted.

    Args:
        weights: What it serves.
        path: The endpoint.
        bodies: What is asked.
        folder: For its input and output.

    Raises:
        RuntimeError: It failed; its log says why.
    """
    given, answers = folder / "vllm-in.jsonl", folder / "vllm-out.jsonl"
    lines = [
        {"custom_id": f"{n}", "method": "POST", "url": path, "body": {**body, "model": _MODEL}}
        for n, body in enumerate(bodies)
    ]
    given.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    answers.unlink(missing_ok=True)
    took_s = _run(_command(weights, given, answers))
    if not answers.exists() or not _all_answered(answers, len(lines)):
        raise RuntimeError(f"run-batch did not answer all; see {LOG}")
    return len(lines) / took_s


def _command(weights: Weights, given: Path, answers: Path) -> list[str]:
    return [
        *(str(VLLM.folder / "bin/vllm"), "run-batch", "-i", str(given), "-o", str(answers)),
        *("--model", str(weights.folder), "--served-model-name", _MODEL, "--dtype", "bfloat16"),
        *("--max-model-len", str(CONTEXT_TOKENS), "--kv-cache-memory-bytes", str(KV_BYTES)),
    ]


def _run(command: Sequence[str]) -> float:
    """Run it; return the seconds that its progress bar took from nothing to all."""
    own = {"VLLM_CPU_OMP_THREADS_BIND": "0-1", "LD_PRELOAD": vllm_preload()}
    env = {**os.environ, **own, "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
    began_s = ended_s = 0.0
    with (
        LOG.open("wb") as log,
        subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as run,
    ):
        # The bar is drawn over itself: its pieces end with no newline.
        while run.stdout is not None and (block := os.read(run.stdout.fileno(), _BLOCK_BYTES)):
            log.write(block)
            shown = [int(percent) for percent in _BAR.findall(block)]
            if shown and not began_s:
                began_s = time.perf_counter()
            if 100 in shown and not ended_s:
                ended_s = time.perf_counter()
    if run.returncode or not ended_s:
        raise RuntimeError(f"run-batch failed; see {LOG}")
    return ended_s - began_s


def _all_answered(answers: Path, count: int) -> bool:
    found = [json.loads(line) for line in answers.read_text().splitlines()]
    return len(found) == count and all(line["response"]["status_code"] == 200 for line in found)
