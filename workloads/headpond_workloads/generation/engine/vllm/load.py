"""From a bundle and a deployment's settings to vLLM with the model loaded."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Mapping
from pathlib import Path

from headpond.bundle.store import Bundle
from headpond.engine import EngineSettings
from headpond.errors import BundleError
from headpond_workloads.generation.engine.drafting import Target
from headpond_workloads.generation.engine.folder import model_folder
from headpond_workloads.generation.engine.limits import Limits
from headpond_workloads.generation.engine.options import Options
from headpond_workloads.generation.engine.reading import Reading, read
from headpond_workloads.generation.engine.tokenizer import Tokenizer
from headpond_workloads.generation.engine.vllm.core import VllmCore
from headpond_workloads.generation.engine.vllm.process import VllmProcess

PYTHON_VARIABLE = "HEADPOND_VLLM_PYTHON"
"""Names the interpreter that has vLLM, for bundles that don't."""

_CHILD = Path(__file__).with_name("child.py")
_STEP_TOKENS = {"cpu": 512, "cuda": 2048}
"""The most tokens of a step: so long do prompts hold up those who are answered already."""


def read_for_vllm(bundle: Bundle, options: Options) -> Reading:
    """Say what a bundle's model is, without its weights.

    Raises:
        BundleError: An option is not for vLLM, or the files are not what the bundle says.
    """
    defaults = Options()
    for name in ("kernels", "attention", "quantization", "determinism", "speculation", "adapters"):
        if getattr(options, name) != getattr(defaults, name):
            raise BundleError(
                f"{name} is an option of our own engine, not of vLLM's",
                param=f"execution.options.{name}",
            )
    with model_folder(bundle) as folder:
        return read(folder, bundle, weights=False)


def open_vllm(
    target: Target,
    options: Options,
    settings: EngineSettings,
    limits: Limits,
    tokenizer: Tokenizer,
    eos_ids: Collection[int],
) -> VllmCore:
    """Start vLLM and load the model into it.

    Args:
        target: The model, and how many blocks of keys and values it gets.
        options: Of the bundle.
        settings: Of the deployment.
        limits: What can be asked for.
        tokenizer: Reads prompts.
        eos_ids: The tokens that end a sequence.

    Raises:
        BundleError: It can't be started, or does not take the model.
    """
    kind = settings.device
    if kind not in _STEP_TOKENS:
        raise BundleError(f"vLLM takes the first GPUs that it sees, not {kind}", param="device")
    execution = target.bundle.manifest.execution
    python = options.python or os.environ.get(PYTHON_VARIABLE) or sys.executable
    with model_folder(target.bundle) as folder:
        process = VllmProcess(
            [python, "-I", str(_CHILD)],
            _environment(settings),
            {
                "folder": str(folder),
                "dtype": execution.dtype,
                "context_tokens": limits.context_tokens,
                "block_tokens": target.block_tokens,
                "blocks": target.blocks,
                "block_bytes": target.reading.kv_shape(target.block_tokens).block_bytes
                // settings.tensor_parallel,
                "max_slots": settings.max_slots,
                "step_tokens": max(_STEP_TOKENS[kind], settings.max_slots),
                "tensor_parallel": settings.tensor_parallel,
                "prefix_cache": options.prefix_cache,
                "eager": options.cuda_graphs is False,
            },
        )
    if process.started["blocks"] < target.blocks:
        process.close()
        raise BundleError(
            f"vLLM has {process.started['blocks']} KV blocks, the deployment's state_bytes are "
            f"{target.blocks}"
        )
    return VllmCore(
        process,
        context_tokens=limits.context_tokens,
        eos_ids=[each for each in eos_ids if each < limits.vocab_tokens],
        spelling=tokenizer.spelling,
    )


def _environment(settings: EngineSettings) -> Mapping[str, str]:
    """Return vLLM's: our own paths would show it our libraries."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    threads = str(settings.threads)
    return {
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # to which cores is up to the machine
        "OMP_NUM_THREADS": threads,
        **kept,
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine's core is stepped where it is asked
        "VLLM_COMPUTE_NANS_IN_LOGITS": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
