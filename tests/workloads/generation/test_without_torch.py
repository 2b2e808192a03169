"""A replica that computes natively: transformers reads for it elsewhere, and torch stays out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headpond.bundle.store import default_cache
from headpond.errors import BundleError
from headpond_workloads.generation.engine.apart import ReadTask, done_apart
from headpond_workloads.generation.engine.folder import model_folder
from headpond_workloads.generation.engine.native.library import library
from headpond_workloads.native.library import NativeUnavailable, packing
from workloads.generation.conftest import CONFIGS, Tiny, save_tiny

try:
    library()
    packing()
except NativeUnavailable as reason:
    pytest.skip(f"the native forward can't run here: {reason}", allow_module_level=True)

CODE = """
import json, sys
from pathlib import Path

from headpond.bundle.manifest import Manifest
from headpond.bundle.store import Bundle
from headpond.engine import EngineSettings, Quantum
from headpond_workloads.generation.engine.load import load
from headpond_workloads.generation.items import Constraint, GenerationItem, Message, Prompt, Sampling

given = json.load(sys.stdin)
bundle = Bundle(
    manifest=Manifest.model_validate(given["manifest"]),
    root=Path(given["root"]),
    files={name: Path(path) for name, path in given["files"].items()},
)
engine = load(bundle, EngineSettings(state_bytes=2**20))
held = GenerationItem(
    prompt=Prompt(messages=(Message(role="user", content="<|im_end|>"),)),
    max_output_tokens=6,
    sampling=Sampling(temperature=0.9, top_p=0.9, seed=3, frequency_penalty=0.5),
    logprobs=2,
    prompt_logprobs=1,
    constraint=Constraint(kind="regex", source="[a-z]{3}", param="regex"),
)
slot = engine.start(engine.plan(held, "tenant"))
text, finished = "", None
while finished is None:
    (progress,) = engine.step([Quantum(slot=slot, units=max(1, slot.prompt_tokens - slot.computed))])
    assert progress.error is None, progress.error
    text += "".join(delta.text for delta in progress.outputs if not delta.is_prompt)
    finished = progress.finished
engine.release(slot)
heavy = sorted({"torch", "transformers"} & sys.modules.keys())
print(json.dumps({"heavy": heavy, "held": text, "seen": engine.observe(given["input"])}))
"""


@pytest.fixture
def wide(tmp_path: Path) -> Tiny:
    return save_tiny(tmp_path, CONFIGS["wide_llama"]())


@pytest.fixture
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty cache, but for the libraries that are built."""
    folder = tmp_path_factory.mktemp("cache")
    (folder / "native").symlink_to(default_cache() / "native")
    return folder


def test_it_generates_without_torch_and_reads_once(wide: Tiny, cache: Path) -> None:
    manifest = wide.bundle.manifest
    execution = manifest.execution.model_copy(update={"options": {"kernels": "native"}})
    given = {
        "manifest": manifest.model_copy(update={"execution": execution}).model_dump(mode="json"),
        "root": str(wide.bundle.root),
        "files": {name: str(path) for name, path in wide.bundle.files.items()},
        "input": {"token_ids": list(range(5, 30)), "max_tokens": 20},
    }
    environment = os.environ | {
        "HEADPOND_CACHE": str(cache),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }

    def shown() -> dict[str, object]:
        done = subprocess.run(
            [sys.executable, "-c", CODE],
            input=json.dumps(given),
            env=environment,
            check=True,
            capture_output=True,
            text=True,
        )
        found: dict[str, object] = json.loads(done.stdout)
        return found

    first = shown()
    (reading,) = (cache / "readings").iterdir()
    read_at = reading.stat().st_mtime_ns
    assert first["heavy"] == []
    assert str(first["held"]).islower()
    assert len(str(first["held"])) == 3
    assert first["seen"] == wide.engine(kernels="native").observe(given["input"])  # type: ignore[arg-type]
    assert shown() == first
    assert reading.stat().st_mtime_ns == read_at


def test_what_is_refused_elsewhere_is_refused_here(wide: Tiny) -> None:
    with model_folder(wide.bundle) as folder:
        task = ReadTask(folder=folder, architecture="Qwen2ForCausalLM", dtype="float32")
        with pytest.raises(BundleError, match="its files say LlamaForCausalLM") as refusal:
            done_apart(task)
    assert refusal.value.param == "execution.architecture"


def test_files_that_cannot_be_read_are_refused_with_the_reason(tmp_path: Path) -> None:
    task = ReadTask(folder=tmp_path, architecture="LlamaForCausalLM", dtype="float32")
    with pytest.raises(BundleError, match=r"can't read the bundle: .*Error"):
        done_apart(task)
