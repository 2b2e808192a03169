"""The native forward against transformers, against itself in company, and its refusals."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from safetensors.torch import save_file
from transformers import PretrainedConfig, PreTrainedModel

from headpond.bundle.store import Bundle
from headpond.engine import EngineSettings, Json
from headpond.errors import BundleError, InvalidRequest
from headpond_workloads.generation.engine.attention import NAME
from headpond_workloads.generation.engine.forward import Span
from headpond_workloads.generation.engine.load import load
from headpond_workloads.generation.engine.native import library as native_library
from headpond_workloads.generation.engine.native.adapters import NativeAdapters
from headpond_workloads.generation.engine.native.cache import NativeKvCache
from headpond_workloads.generation.engine.native.library import library
from headpond_workloads.generation.engine.native.runner import NativeRunner
from headpond_workloads.generation.engine.native.weights import NativeWeights
from headpond_workloads.generation.engine.transformers_reading import reading_of
from headpond_workloads.generation.items import GenerationItem, Prompt, Sampling
from headpond_workloads.native.library import NativeUnavailable
from headpond_workloads.native.packing import Format
from workloads.generation.conftest import CONFIGS, Tiny, artifact_of, save_tiny, train_tokenizer

if TYPE_CHECKING:
    from workloads.generation.conftest import Drive

try:
    library()
except NativeUnavailable as reason:
    pytest.skip(f"the native forward can't run here: {reason}", allow_module_level=True)

SETTINGS = EngineSettings(state_bytes=2**20)
BLOCKS = 24
TOKENS = [(at * 37 + 11) % 400 for at in range(100)]


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return save_tiny(tmp_path_factory.mktemp("wide"), CONFIGS["wide_llama"]())


def runner_of(model: PreTrainedModel, kind: Format, threads: int = 2) -> NativeRunner:
    model.set_attn_implementation(NAME)
    reading = reading_of(model, train_tokenizer())
    model.set_attn_implementation("sdpa")
    named = {name: each.numpy() for name, each in model.state_dict().items()}
    weights = NativeWeights(reading, named, kind, kind)
    cache = NativeKvCache(reading.kv_shape(16), BLOCKS)
    return NativeRunner(
        weights, cache, threads=threads, adapters=NativeAdapters(weights.structure, ())
    )


def logits_of(runner: NativeRunner, spans: Sequence[Span]) -> torch.Tensor:
    return torch.from_numpy(runner.forward(spans).values())


def span(start: int, end: int, first_block: int = 0) -> Span:
    blocks = list(range(first_block, first_block + 7))
    return Span(token_ids=TOKENS[start:end], start=start, blocks=blocks, logits=end - start)


def reference(model: PreTrainedModel) -> torch.Tensor:
    with torch.inference_mode():
        logits: torch.Tensor = model(torch.tensor([TOKENS])).logits[0].float()
    return logits


def error(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found - expected).std() / expected.std())


@pytest.mark.parametrize("name", [name for name in sorted(CONFIGS) if name.startswith("wide")])
def test_logits_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    model = save_tiny(tmp_path, CONFIGS[name]()).reference
    found = logits_of(runner_of(model, Format.FLOAT32), [span(0, 100)])
    torch.testing.assert_close(found, reference(model), rtol=1e-3, atol=1e-3)


def as_int8(weight: torch.Tensor) -> torch.Tensor:
    scale = weight.abs().amax(dim=1, keepdim=True) / 127
    return (weight / scale).round() * scale


def as_int4(weight: torch.Tensor) -> torch.Tensor:
    groups = weight.view(len(weight), -1, 32)
    least, most = groups.amin(dim=2, keepdim=True), groups.amax(dim=2, keepdim=True)
    step, base = ((most - least) / 15).half().float(), least.half().float()
    return (((groups - base) / step).round().clamp(0, 15) * step + base).view_as(weight)


ROUNDED = {
    Format.BFLOAT16: lambda weight: weight.bfloat16().float(),
    Format.INT8: as_int8,
    Format.INT4: as_int4,
}


@pytest.mark.parametrize("kind", ROUNDED)
def test_fewer_bits_are_the_rounded_weights(wide: Tiny, kind: Format) -> None:
    found = logits_of(runner_of(wide.reference, kind), [span(0, 100)])
    rounded = copy.deepcopy(wide.reference)
    with torch.no_grad():
        for module in rounded.modules():
            if isinstance(module, torch.nn.Linear):
                # The embedding, which is tied to the head, keeps its own bits.
                module.weight = torch.nn.Parameter(ROUNDED[kind](module.weight))
    from_weights = error(found, reference(rounded))
    assert from_weights < 0.15
    assert from_weights < error(found, reference(wide.reference))


@pytest.mark.parametrize("kind", list(Format))
@pytest.mark.parametrize("threads", [1, 3])
def test_a_row_is_the_same_to_the_bit_in_every_company(
    wide: Tiny, kind: Format, threads: int
) -> None:
    alone = logits_of(runner_of(wide.reference, kind, threads=1), [span(0, 100)])
    runner = runner_of(wide.reference, kind, threads)
    others = [Span(token_ids=TOKENS[:13], start=0, blocks=[7 + at]) for at in range(16)]
    rows = [logits_of(runner, [*others, span(0, 37)])]
    rows += [logits_of(runner, [others[at % 16], span(at, at + 1)]) for at in range(37, 51)]
    rows.append(logits_of(runner, [span(51, 100), *others[:3]]))
    assert torch.equal(torch.cat(rows), alone)


@pytest.mark.parametrize("wanted", [0, 1, 3])
def test_rows_are_the_same_when_few_are_wanted(wide: Tiny, wanted: int) -> None:
    runner = runner_of(wide.reference, Format.BFLOAT16)
    all_wanted = logits_of(runner, [span(0, 40)])
    spans = [replace(span(0, 40), logits=wanted), replace(span(0, 20, 8), logits=1)]
    found = logits_of(runner, spans)
    assert torch.equal(found, torch.cat([all_wanted[40 - wanted :], all_wanted[19:20]]))


@pytest.mark.parametrize("kind", [Format.FLOAT32, Format.BFLOAT16])
def test_sequences_that_share_blocks_get_the_same_to_the_bit_as_alone(
    wide: Tiny, kind: Format
) -> None:
    runner = runner_of(wide.reference, kind)
    runner.forward([span(0, 90)])
    # Eight hold the first five blocks together, and one only the very first.
    tables = [[0, 1, 2, 3, 4, own] for own in range(15, 23)] + [[0, 10, 11, 12, 13, 14]]
    for blocks, start in zip(tables, [80] * 8 + [16], strict=True):
        runner.forward([Span(token_ids=TOKENS[start:90], start=start, blocks=blocks)])
    counts = (1, 1, 1, 2, 2, 1, 1, 1, 1)
    spans = [
        Span(token_ids=[at, 300][:count], start=90, blocks=blocks, logits=count)
        for at, (count, blocks) in enumerate(zip(counts, tables, strict=True))
    ]
    together = logits_of(runner, spans)
    assert torch.equal(together, torch.cat([logits_of(runner, [each]) for each in spans]))


def test_blocks_may_lie_anywhere(wide: Tiny) -> None:
    runner = runner_of(wide.reference, Format.FLOAT32)
    ordered = logits_of(runner, [span(0, 100)])
    mixed = replace(span(0, 100), blocks=[20, 3, 17, 9, 5, 22, 11])
    assert torch.equal(logits_of(runner, [mixed]), ordered)


RANKS = {"first": 4, "second": 40}


@pytest.fixture(scope="module")
def adapted(
    wide: Tiny, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Bundle, dict[str, PreTrainedModel]]:
    """Return a bundle with two adapters, and the model with each merged into it."""
    folder = tmp_path_factory.mktemp("adapters")
    files, merged = {}, {}
    for name, rank in RANKS.items():
        merged[name] = save_adapter(wide.reference, folder, name, rank)
        files[name] = folder / f"{name}.safetensors"
        files[f"{name}_config"] = folder / f"{name}.json"
    return with_files(wide.bundle, files, {"adapters": {n: n for n in RANKS}}), merged


def save_adapter(model: PreTrainedModel, folder: Path, name: str, rank: int) -> PreTrainedModel:
    torch.manual_seed(rank)
    merged = copy.deepcopy(model)
    modules = ["self_attn.q_proj", "self_attn.v_proj", "mlp.up_proj", "mlp.down_proj"]
    if name == "second":
        modules += ["self_attn.k_proj", "self_attn.o_proj", "mlp.gate_proj"]
    tensors = {}
    for layer in range(model.config.num_hidden_layers):
        for module in modules:
            weight = merged.get_parameter(f"model.layers.{layer}.{module}.weight")
            down = torch.randn(rank, weight.shape[1]) * 0.1
            up = torch.randn(weight.shape[0], rank) * 0.1
            prefix = f"base_model.model.model.layers.{layer}.{module}"
            tensors[f"{prefix}.lora_A.weight"] = down
            tensors[f"{prefix}.lora_B.weight"] = up
            with torch.no_grad():
                weight.add_(2.0 * up @ down)
    save_file(tensors, folder / f"{name}.safetensors")
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": 2 * rank, "bias": "none"}
    (folder / f"{name}.json").write_text(json.dumps(config))
    return merged


class TestAdapters:
    def test_tokens_are_those_of_the_merged_model(
        self, wide: Tiny, adapted: tuple[Bundle, dict[str, PreTrainedModel]], drive: Drive
    ) -> None:
        bundle, merged = adapted
        models = dict[str | None, PreTrainedModel](merged) | {None: wide.reference}
        names = [None, "first", "second", "first", None, "second"]
        items = [
            GenerationItem(
                prompt=Prompt(token_ids=tuple(TOKENS[at : at + 21])),
                max_output_tokens=12,
                sampling=Sampling(temperature=0.0),
                adapter=name,
            )
            for at, name in enumerate(names)
        ]
        runs = drive(load(bundle, SETTINGS), items, stagger=1)
        for at, (name, run) in enumerate(zip(names, runs, strict=True)):
            expected = replace(wide, reference=models[name]).greedy(TOKENS[at : at + 21], 12)
            assert run.output_ids == expected
        assert len({tuple(run.output_ids) for run in runs}) == len(runs)

    def test_an_adapter_that_is_not_there_is_refused(
        self, adapted: tuple[Bundle, dict[str, PreTrainedModel]]
    ) -> None:
        engine = load(adapted[0], SETTINGS)
        prompt = Prompt(token_ids=(1, 2))
        with pytest.raises(InvalidRequest, match="third") as refusal:
            engine.plan(GenerationItem(prompt=prompt, adapter="third"), "tenant")
        assert refusal.value.param == "adapter"

    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            ({"use_dora": True}, "DoRA"),
            ({"bias": "all"}, "bias"),
            ({"peft_type": "IA3"}, "peft_type"),
        ],
    )
    def test_other_kinds_are_refused(
        self,
        adapted: tuple[Bundle, dict[str, PreTrainedModel]],
        tmp_path: Path,
        changes: dict[str, object],
        reason: str,
    ) -> None:
        bundle = adapted[0]
        path = tmp_path / "config.json"
        path.write_text(json.dumps(json.loads(bundle.files["first_config"].read_text()) | changes))
        files = {**bundle.files, "first_config": path}
        with pytest.raises(BundleError, match=reason) as refusal:
            load(replace(bundle, files=files), SETTINGS)
        assert refusal.value.param == "execution.options.adapters.first"


def with_files(bundle: Bundle, files: dict[str, Path], options: dict[str, object]) -> Bundle:
    artifacts = tuple(artifact_of(name, path) for name, path in files.items())
    manifest = bundle.manifest.model_copy(
        update={
            "artifacts": bundle.manifest.artifacts + artifacts,
            "execution": bundle.manifest.execution.model_copy(update={"options": options}),
        }
    )
    return replace(bundle, manifest=manifest, files={**bundle.files, **files})


def with_options(bundle: Bundle, **options: object) -> Bundle:
    return with_files(bundle, {}, options)


class TestChoice:
    @pytest.mark.parametrize("quantization", ["int8", "int4"])
    def test_weights_are_quantized_when_the_bundle_says_so(
        self, wide: Tiny, quantization: str
    ) -> None:
        whole = load(wide.bundle, SETTINGS).symbols["weight_bytes"]
        engine = load(with_options(wide.bundle, quantization=quantization), SETTINGS)
        assert engine.symbols["weight_bytes"] < whole / 2

    @pytest.mark.parametrize(
        "options",
        [{"quantization": "int8"}, {"determinism": "batch_invariant"}, {"kernels": "native"}],
    )
    def test_what_needs_the_native_forward_is_refused_where_there_is_none(
        self, tiny: Tiny, options: dict[str, object]
    ) -> None:
        with pytest.raises(BundleError, match="8 wide") as refusal:
            load(with_options(tiny.bundle, **options), SETTINGS)
        assert refusal.value.param == "execution.options"

    def test_both_forwards_give_the_same_text(self, wide: Tiny) -> None:
        given: dict[str, Json] = {"token_ids": list(TOKENS[:20]), "max_tokens": 20}
        torch_only = load(with_options(wide.bundle, kernels="torch"), SETTINGS)
        native = load(with_options(wide.bundle, kernels="native"), SETTINGS)
        assert torch_only.observe(given) == native.observe(given)

    def test_without_a_compiler_transformers_has_to_do(
        self, wide: Tiny, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("CXX", str(tmp_path / "no-compiler"))
        monkeypatch.setenv("HEADPOND_CACHE", str(tmp_path))
        native_library.library.cache_clear()
        try:
            with pytest.raises(NativeUnavailable, match="no-compiler"):
                library()
            assert load(wide.bundle, SETTINGS).observe({"token_ids": [1, 2, 3]})["text"]
        finally:
            native_library.library.cache_clear()

    def test_an_unknown_option_is_named(self, wide: Tiny) -> None:
        with pytest.raises(BundleError) as refusal:
            load(with_options(wide.bundle, quantisation="int8"), SETTINGS)
        assert refusal.value.param == "execution.options.quantisation"


def test_a_config_that_the_decoder_does_not_compute_is_refused(tmp_path: Path) -> None:
    config: PretrainedConfig = CONFIGS["wide_llama"]()
    config.hidden_act = "gelu"
    tiny = save_tiny(tmp_path, config)
    with pytest.raises(NativeUnavailable, match="gelu"):
        runner_of(tiny.reference, Format.FLOAT32)
