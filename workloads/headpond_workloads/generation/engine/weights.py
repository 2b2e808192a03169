"""A bundle's files as a model and a tokenizer.

transformers loads folders with fixed file names. The artifacts of a safetensors bundle are
linked into such a folder; a GGUF artifact is unpacked into one, once per machine, since
that takes many times longer than loading the result.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import torch
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GgufConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from headpond.bundle.store import Bundle, default_cache
from headpond.errors import BundleError
from headpond_workloads.generation.engine.attention import NAME as ATTENTION

_FILE_NAMES: Mapping[str, str] = {
    "config": "config.json",
    "generation_config": "generation_config.json",
    "tokenizer": "tokenizer.json",
    "tokenizer_config": "tokenizer_config.json",
    "special_tokens_map": "special_tokens_map.json",
    "chat_template": "chat_template.jinja",
    "weights": "model.safetensors",
}
"""File names by artifact name; any other artifact goes by its name, e.g. a shard."""


@contextmanager
def model_folder(bundle: Bundle, cache: Path | None = None) -> Iterator[Path]:
    """Give a folder as transformers reads it, for as long as loading takes.

    Args:
        bundle: A bundle with one GGUF artifact, or with the files of a safetensors folder.
        cache: Where unpacked GGUF files are kept; `default_cache()` when None.
    """
    gguf = [name for name, path in bundle.files.items() if path.suffix == ".gguf"]
    if gguf:
        yield _unpacked(bundle, gguf[0], cache if cache is not None else default_cache())
        return
    with tempfile.TemporaryDirectory(prefix="headpond-") as folder:
        for name, path in bundle.files.items():
            (Path(folder) / _FILE_NAMES.get(name, name)).symlink_to(path.resolve())
        yield Path(folder)


def load_model(folder: Path, bundle: Bundle, device: torch.device) -> PreTrainedModel:
    """Load the model in the bundle's dtype, with the paged attention.

    Raises:
        BundleError: It is not the architecture the bundle names, or none that is served.
    """
    execution = bundle.manifest.execution
    config = AutoConfig.from_pretrained(folder)
    found = (getattr(config, "architectures", None) or [execution.architecture])[0]
    if found != execution.architecture:
        raise BundleError(
            f"the bundle says {execution.architecture}, its files say {found}",
            param="execution.architecture",
        )
    try:
        model = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=getattr(torch, execution.dtype),
            attn_implementation=ATTENTION,
            use_safetensors=True,
            local_files_only=True,
        )
    except ValueError as error:
        raise BundleError(
            f"transformers can't load {found} as a decoder: {error}", param="execution.architecture"
        ) from error
    if type(model).__name__ != execution.architecture:
        raise BundleError(
            f"the bundle says {execution.architecture}, its files make {type(model).__name__}",
            param="execution.architecture",
        )
    nn.Module.to(model, device)  # in place, as is eval; transformers' own are not typed
    nn.Module.eval(model)
    return model


_WEIGHT_BITS = {"int8": 8, "int4": 6}
"""Bits of a weight in layers, scales included: int4 has two of 16 bits for 32 weights."""


def weight_bytes(model: PreTrainedModel, quantization: str | None) -> int:
    """Return the bytes of a model's weights; those of linear layers as they are quantized."""
    parameters = {parameter.data_ptr(): parameter for parameter in model.parameters()}
    if quantization is None:
        return sum(each.numel() * each.element_size() for each in parameters.values())
    head = model.get_submodule("lm_head").get_parameter("weight")
    linears = [
        each.weight
        for each in model.modules()
        if isinstance(each, nn.Linear) and each.weight is not head
    ]
    kept = sum(
        each.numel() * each.element_size()
        for pointer, each in parameters.items()
        if pointer not in {linear.data_ptr() for linear in linears}
    )
    packed = sum(linear.numel() for linear in linears) * _WEIGHT_BITS[quantization] // 8
    return kept + packed + head.numel()


def load_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    """Load the tokenizer.

    Raises:
        BundleError: It has no fast implementation.
    """
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise BundleError("the tokenizer has no tokenizer.json", param="input.tokenizer")
    return tokenizer


def _unpacked(bundle: Bundle, name: str, cache: Path) -> Path:
    """Return the folder of an unpacked GGUF artifact, made when it is missing.

    It has its name only when it is whole: it is made beside it and renamed.
    """
    digests = {artifact.name: artifact.sha256 for artifact in bundle.manifest.artifacts}
    dtype = bundle.manifest.execution.dtype
    target = cache / "unpacked" / f"{digests[name]}-{dtype}-transformers-{version('transformers')}"
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=".part-", dir=target.parent))
    try:
        _unpack(bundle.files[name], part, getattr(torch, dtype))
        _rename(part, target)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return target


def _unpack(gguf: Path, folder: Path, dtype: torch.dtype) -> None:
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    # By default the weights stay packed, and a model of packed weights can't be saved.
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        dtype=dtype,
        quantization_config=GgufConfig(dequantize=True),
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _rename(part: Path, target: Path) -> None:
    """Rename, unless another process was faster."""
    try:
        os.rename(part, target)  # noqa: PTH104  Path.rename would do the same
    except OSError:
        if not target.is_dir():
            raise
