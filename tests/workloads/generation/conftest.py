"""Tiny models made on the spot, as bundles; and a driver that stands in for the loop."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import pytest
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoModelForCausalLM,
    GPTNeoXConfig,
    LlamaConfig,
    MistralConfig,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
)

from headpond.bundle.manifest import Artifact, Execution, Manifest
from headpond.bundle.store import Bundle
from headpond.engine import EngineSettings, Json, Progress, Quantum
from headpond_workloads.generation.engine.engine import GenerationEngine
from headpond_workloads.generation.engine.forward import Runner
from headpond_workloads.generation.engine.forward_core import ForwardCore
from headpond_workloads.generation.engine.load import load
from headpond_workloads.generation.engine.sequence import Slot
from headpond_workloads.generation.items import GenerationItem, TextDelta, ToolCallDelta

Config = TypeVar("Config", bound=PretrainedConfig)

VOCAB = 400
CONTEXT = 160
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TEXTS = [
    "The quick brown fox jumps over the lazy dog, and then it rests a while.",
    "Sphinx of black quartz, judge my vow! Grüße aus Köln, 東京から 👋🏽.",
    "def area(width, height):\n    return width * height\n",
]


@dataclass(frozen=True)
class Tiny:
    """A tiny model: its files as a bundle, and the same weights in plain transformers."""

    bundle: Bundle
    tokenizer: PreTrainedTokenizerFast
    reference: PreTrainedModel

    def engine(self, *, blocks: int = 64, **options: Json) -> GenerationEngine:
        """Load it with the bundle's execution options given."""
        block_bytes = 16 * _token_bytes(self.reference.config)
        manifest = self.bundle.manifest
        execution = manifest.execution.model_copy(update={"options": options})
        bundle = replace(self.bundle, manifest=manifest.model_copy(update={"execution": execution}))
        return load(bundle, EngineSettings(state_bytes=blocks * block_bytes))

    def greedy(self, token_ids: Sequence[int], count: int) -> list[int]:
        """What transformers' own generate says, the end token included."""
        prompt = torch.tensor([list(token_ids)])
        with torch.inference_mode():
            output = self.reference.generate(  # type: ignore[operator]
                prompt,
                attention_mask=torch.ones_like(prompt),
                max_new_tokens=count,
                do_sample=False,
                pad_token_id=0,
            )
        generated: list[int] = output[0, len(token_ids) :].tolist()
        return generated


def _token_bytes(config: PretrainedConfig) -> int:
    kv_heads = getattr(config, "num_key_value_heads", config.num_attention_heads)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return int(config.num_hidden_layers * 2 * kv_heads * head_dim * 4)


def train_tokenizer() -> PreTrainedTokenizerFast:
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=360,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(TEXTS, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)  # type: ignore[no-untyped-call]
    tokenizer.add_special_tokens({"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"})
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def artifact_of(name: str, path: Path) -> Artifact:
    return Artifact(
        name=name,
        source=f"file:{path.name}",
        bytes=path.stat().st_size,
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
    )


def bundle_of(folder: Path, architecture: str, stop_tokens: Iterable[str] = ()) -> Bundle:
    names = {
        "config.json": "config",
        "tokenizer.json": "tokenizer",
        "tokenizer_config.json": "tokenizer_config",
        "generation_config.json": "generation_config",
        "chat_template.jinja": "chat_template",
        "model.safetensors": "weights",
    }
    files = {names[path.name]: path for path in folder.iterdir() if path.name in names}
    manifest = Manifest(
        name="tiny",
        version="1.0.0",
        workload="generation",
        summary="A tiny random model.",
        licence="Apache-2.0",
        artifacts=tuple(artifact_of(name, path) for name, path in files.items()),
        model={},
        execution=Execution(architecture=architecture, dtype="float32"),
        output={"stop_tokens": list(stop_tokens)},
    )
    return Bundle(manifest=manifest, root=folder, files=files)


def save_tiny(
    folder: Path,
    config: PretrainedConfig,
    *,
    seed: int = 7,
    tokens: Sequence[AddedToken] = (),
) -> Tiny:
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.4)
    model.generation_config.eos_token_id = model.config.eos_token_id = None
    tokenizer = train_tokenizer()
    tokenizer.add_tokens(list(tokens))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    bundle = bundle_of(folder, type(model).__name__)
    return Tiny(bundle=bundle, tokenizer=tokenizer, reference=model.eval())


def config_of(kind: Callable[..., Config], **changes: object) -> Config:
    """Two layers, heads 8 wide, two query heads for each KV head; a few of these changed."""
    sizes = {
        "vocab_size": VOCAB,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": CONTEXT,
    }
    return kind(**(sizes | changes))


def wide_config_of(kind: Callable[..., Config], **changes: object) -> Config:
    """As narrow as the native forward takes: heads 32 wide."""
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 2}
    return config_of(kind, **(sizes | changes))


def llama_config() -> LlamaConfig:
    return config_of(LlamaConfig)


SECOND_LAYER_SEES_12 = {"use_sliding_window": True, "sliding_window": 12, "max_window_layers": 1}


def qwen2_config() -> Qwen2Config:
    """Grouped heads, biases, and a sliding window of 12 tokens in the second layer."""
    return config_of(Qwen2Config, **SECOND_LAYER_SEES_12)


def gpt_neox_config() -> GPTNeoXConfig:
    """Fused projections, partial rotary embedding, as many KV heads as heads."""
    return GPTNeoXConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=CONTEXT,
    )


def wide_llama_config() -> LlamaConfig:
    """Three query heads for each of two KV heads, and scaled positions."""
    return wide_config_of(
        LlamaConfig,
        hidden_size=96,
        num_attention_heads=6,
        head_dim=32,
        tie_word_embeddings=True,
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 500.0,
            "factor": 4.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        },
    )


def wide_qwen2_config() -> Qwen2Config:
    """The native forward with biases, and a window of 12 tokens in the second layer."""
    return wide_config_of(Qwen2Config, num_key_value_heads=1, **SECOND_LAYER_SEES_12)


def wide_qwen3_config() -> Qwen3Config:
    """The native forward with normalised queries and keys."""
    return wide_config_of(Qwen3Config, num_attention_heads=4, head_dim=32)


def wide_mistral_config() -> MistralConfig:
    """The native forward with one window of 20 tokens for all layers."""
    return wide_config_of(MistralConfig, sliding_window=20)


CONFIGS: dict[str, Callable[[], PretrainedConfig]] = {
    "llama": llama_config,
    "qwen2": qwen2_config,
    "gpt_neox": gpt_neox_config,
    "wide_llama": wide_llama_config,
    "wide_qwen2": wide_qwen2_config,
    "wide_qwen3": wide_qwen3_config,
    "wide_mistral": wide_mistral_config,
}


@pytest.fixture(scope="session", params=sorted(CONFIGS))
def any_tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return save_tiny(tmp_path_factory.mktemp(request.param), CONFIGS[request.param]())


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return save_tiny(tmp_path_factory.mktemp("tiny"), llama_config())


@pytest.fixture
def engine(tiny: Tiny) -> GenerationEngine:
    return tiny.engine()


@pytest.fixture
def make_tiny(tmp_path: Path) -> Callable[[PretrainedConfig], Tiny]:
    """Make a tiny model of any configuration."""
    return lambda config: save_tiny(tmp_path, config)


def runner_of(engine: GenerationEngine) -> Runner:
    """What an engine computes with."""
    assert isinstance(engine._core, ForwardCore)
    return engine._core._runner


@dataclass
class Run:
    """What became of one item."""

    slot: Slot
    deltas: list[TextDelta]
    last: Progress[TextDelta] | None = None
    held: int = 0
    granted: int = 0
    lost: int = 0

    def grant(self, units: int, block: int = 16) -> None:
        """Reserve blocks as the loop does: whole ones, and never beyond the item's extent."""
        extent = self.slot.prompt_tokens + self.slot.prepared.max_output_tokens
        self.granted = max(self.granted, -(-min(units, extent) // block) * block)

    @property
    def text(self) -> str:
        return "".join(delta.text for delta in self.deltas)

    @property
    def calls(self) -> list[tuple[str, str]]:
        return joined_calls(call for delta in self.deltas for call in delta.tool_calls)

    @property
    def output_ids(self) -> list[int]:
        return [token_id for delta in self.deltas for token_id in delta.token_ids]


def joined_calls(deltas: Iterable[ToolCallDelta]) -> list[tuple[str, str]]:
    """Put deltas together as a client does: name and arguments of each call."""
    calls: list[tuple[str, str]] = []
    ids: set[str] = set()
    for delta in deltas:
        if delta.name is not None:
            assert delta.index == len(calls)
            assert delta.call_id is not None
            assert delta.call_id not in ids
            ids.add(delta.call_id)
            calls.append((delta.name, delta.arguments))
        else:
            assert delta.index == len(calls) - 1
            assert delta.call_id is None
            calls[-1] = (calls[-1][0], calls[-1][1] + delta.arguments)
    return calls


Drive = Callable[..., list[Run]]


@pytest.fixture
def drive() -> Drive:
    return drive_items


def drive_items(
    engine: GenerationEngine,
    items: Sequence[GenerationItem],
    *,
    chunk: int = 512,
    stagger: int = 0,
    preempt_every: int = 0,
    block: int = 16,
) -> list[Run]:
    """Step all items to their end; item `i` joins at step `i * stagger`."""
    runs = [Run(engine.start(engine.plan(item, "tenant")), []) for item in items]
    redo: dict[int, int] = {}
    step = preemptions = 0
    while any(run.last is None for run in runs):
        active = [at for at, run in enumerate(runs) if run.last is None and at * stagger <= step]
        step += 1
        if not active:
            continue
        if preempt_every and step % preempt_every == 0 and preemptions < 3 * len(items):
            preemptions += 1
            victim = active[step % len(active)]
            redo[victim] = redo.get(victim, 0) + engine.preempt(runs[victim].slot)
            runs[victim].held = runs[victim].granted = 0
        quanta = [_quantum(runs[at].slot, redo.get(at, 0), chunk) for at in active]
        for at in active:
            first = max(runs[at].slot.prompt_tokens, redo.get(at, 0))
            runs[at].grant(runs[at].held + 1 if runs[at].held else first + block, block)
        for at, progress in zip(active, engine.step(quanta), strict=True):
            runs[at].held += progress.units
            assert runs[at].held <= runs[at].granted
            redo[at] = max(0, redo.get(at, 0) - progress.units)
            runs[at].deltas += progress.outputs
            if progress.finished is not None or progress.error is not None:
                runs[at].last = progress
    for run in runs:
        engine.release(run.slot)
    return runs


def _quantum(slot: Slot, redo: int, chunk: int) -> Quantum[Slot]:
    left = max(redo, slot.prompt_tokens - slot.computed)
    return Quantum(slot=slot, units=min(chunk, left) if left > 0 else 1)
