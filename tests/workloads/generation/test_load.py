from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import torch
from transformers import AutoConfig, PretrainedConfig

from headpond.bundle.store import Bundle
from headpond.engine import EngineSettings
from headpond.errors import BundleError
from headpond_workloads.generation.engine.folder import model_folder
from headpond_workloads.generation.engine.load import load
from headpond_workloads.generation.engine.transformers_reading import read_folder, read_outline
from headpond_workloads.generation.record import record

if TYPE_CHECKING:
    from workloads.generation.conftest import Tiny

SMALL = {"vocab_size": 400, "hidden_size": 32, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48}
SETTINGS = EngineSettings(state_bytes=2**20)


def changed(bundle: Bundle, **sections: object) -> Bundle:
    return replace(bundle, manifest=bundle.manifest.model_copy(update=sections))


def test_symbols_are_those_of_the_record_and_the_model(tiny: Tiny) -> None:
    symbols = load(tiny.bundle, SETTINGS).symbols
    assert set(symbols) == set(record.symbols)
    parameters = sum(each.numel() for each in tiny.reference.parameters())
    assert symbols["weight_bytes"] == 4 * parameters
    assert {key: symbols[key] for key in ("layers", "kv_heads", "head_dim")} == {
        "layers": 2,
        "kv_heads": 2,
        "head_dim": 8,
    }


def test_an_outline_says_the_same_without_the_weights(any_tiny: Tiny) -> None:
    bundle = any_tiny.bundle
    architecture, dtype = bundle.manifest.execution.architecture, "bfloat16"
    with model_folder(bundle) as folder:
        whole = read_folder(folder, architecture, dtype)
        outline = read_outline(folder, architecture, dtype)
        with pytest.raises(BundleError, match="its files say"):
            read_outline(folder, "Other", dtype)
    assert outline == whole.model_copy(update={"plain": b"", "decoder": None})


def test_blocks_are_sized_by_the_memory_given(tiny: Tiny) -> None:
    state = record.bind({**tiny.engine().symbols, "block_tokens": 4}, "float32")
    kv_only = replace(state, terms=state.terms[:1])
    bundle = changed(tiny.bundle, model={"block_tokens": 4})
    engine = load(bundle, EngineSettings(state_bytes=10 * kv_only.request_bytes({}, 4) + 7))
    assert engine.free_blocks == 10
    with pytest.raises(BundleError, match="state_bytes"):
        load(bundle, EngineSettings(state_bytes=kv_only.request_bytes({}, 4) - 1))


def test_a_bundle_may_bring_its_own_template(tiny: Tiny) -> None:
    bundle = changed(tiny.bundle, input={"chat_template": "{{ messages[0]['content'] }}!"})
    seen = load(bundle, SETTINGS).observe({"messages": [{"role": "user", "content": "hey"}]})
    assert seen["input_ids"] == tiny.tokenizer.encode("hey!")


def test_another_architecture_than_the_bundle_says_is_refused(tiny: Tiny) -> None:
    execution = tiny.bundle.manifest.execution.model_copy(update={"architecture": "Other"})
    with pytest.raises(BundleError, match="LlamaForCausalLM") as refusal:
        load(changed(tiny.bundle, execution=execution), SETTINGS)
    assert refusal.value.param == "execution.architecture"


def test_stop_tokens_that_the_tokenizer_lacks_are_refused(tiny: Tiny) -> None:
    with pytest.raises(BundleError, match="<nope>") as refusal:
        load(changed(tiny.bundle, output={"stop_tokens": ["<nope>"]}), SETTINGS)
    assert refusal.value.param == "output.stop_tokens"


@pytest.mark.parametrize("device", ["cuda", "mps"])
def test_a_device_that_is_not_there_is_refused(tiny: Tiny, device: str) -> None:
    if torch.cuda.is_available() and device == "cuda":
        pytest.skip("there is one")
    with pytest.raises(BundleError, match=device):
        load(tiny.bundle, EngineSettings(state_bytes=2**20, device=device))


UNSUPPORTED: dict[str, tuple[str, dict[str, object]]] = {
    "soft-capped attention": ("gemma2", {**HEADS, "head_dim": 8}),
    "no attention": ("mamba", {"state_size": 4}),
    "convolutions between attention": (
        "lfm2",
        {**HEADS, "layer_types": ["conv", "full_attention"]},
    ),
    "batch-dependent positions": (
        "llama",
        {**HEADS, "rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}},
    ),
}


@pytest.mark.parametrize("kind", UNSUPPORTED)
def test_models_that_would_be_computed_wrong_are_refused(
    kind: str, make_tiny: Callable[[PretrainedConfig], Tiny]
) -> None:
    model_type, changes = UNSUPPORTED[kind]
    bundle = make_tiny(AutoConfig.for_model(model_type, **SMALL, **changes)).bundle
    with pytest.raises(BundleError) as refusal:
        load(bundle, SETTINGS)
    assert refusal.value.param is not None
    assert refusal.value.param.startswith("execution")
