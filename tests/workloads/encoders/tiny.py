"""Tiny random encoders made on the spot, as bundles, and the same weights in transformers."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np
import torch
from tokenizers import Tokenizer as Backend
from tokenizers import models, normalizers, pre_tokenizers, processors
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    PreTrainedModel,
)

from headpond.bundle.manifest import Artifact, Execution, Manifest
from headpond.bundle.store import Bundle
from headpond.engine import Json
from headpond_workloads.encoders.tokens import Floats, Tokens

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,!?é東"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
VOCAB = [*SPECIAL, *LETTERS, *(f"##{letter}" for letter in LETTERS), "the", "water", "mill"]
POSITIONS = 96

ARTIFACTS = {
    "model.safetensors": "weights",
    "config.json": "config",
    "tokenizer.json": "tokenizer",
    "modules.json": "modules",
    "pooling.json": "pooling",
    "sentence_config.json": "sentence_config",
    "prompts.json": "prompts",
}


def make_tokenizer() -> Backend:
    """As BERT's: word pieces, lower case; with the truncation and padding that folders ship."""
    vocab = {token: at for at, token in enumerate(VOCAB)}
    backend = Backend(models.WordPiece(vocab, unk_token="[UNK]"))  # noqa: S106
    backend.normalizer = normalizers.BertNormalizer(lowercase=True, strip_accents=False)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    backend.enable_truncation(8)
    backend.enable_padding(length=8)
    return backend


_SIZES: dict[str, object] = {
    "vocab_size": len(VOCAB),
    "pad_token_id": 0,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 96,
    "max_position_embeddings": POSITIONS,
}
_FAMILIES: dict[str, dict[str, object]] = {
    "bert": _SIZES,
    "roberta": _SIZES | {"pad_token_id": 1, "type_vocab_size": 2},
    "distilbert": {
        **{key: _SIZES[key] for key in ("vocab_size", "pad_token_id", "max_position_embeddings")},
        "dim": 64,
        "n_layers": 2,
        "n_heads": 2,
        "hidden_dim": 96,
    },
}


def make_model(architecture: str, **changes: object) -> PreTrainedModel:
    """Return a random model whose vectors depend on everything."""
    torch.manual_seed(5)
    family = next(each for each in _FAMILIES if architecture.lower().startswith(each))
    classifies = architecture.endswith("ForSequenceClassification")
    kind = AutoModelForSequenceClassification if classifies else AutoModel
    config = AutoConfig.for_model(family, **(_FAMILIES[family] | changes))
    model = kind.from_config(config)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.15)
    return cast("PreTrainedModel", model.eval())


@dataclass(frozen=True)
class Tiny:
    """A tiny encoder as a bundle, and in transformers."""

    bundle: Bundle
    reference: PreTrainedModel

    def executed(self, dtype: str = "float32", **options: Json) -> Bundle:
        """Return the bundle with another execution."""
        return changed(self.bundle, dtype=dtype, options=options)

    def rows(self, tokens: Tokens) -> Floats:
        """What transformers computes for a sequence alone, of shape [tokens, hidden]."""
        with torch.inference_mode():
            output = self.reference(**self._inputs(tokens))
        found: Floats = output.last_hidden_state[0].numpy()
        return found

    def logits(self, tokens: Tokens) -> torch.Tensor:
        """What its classification head gives for a sequence alone."""
        with torch.inference_mode():
            output = self.reference(**self._inputs(tokens))
        found: torch.Tensor = output.logits[0]
        return found

    def _inputs(self, tokens: Tokens) -> dict[str, torch.Tensor]:
        inputs = {"input_ids": torch.from_numpy(tokens.token_ids[None]).long()}
        if self.reference.config.model_type != "distilbert":
            inputs["token_type_ids"] = torch.from_numpy(tokens.type_ids[None]).long()
        return inputs


def changed(bundle: Bundle, **execution: object) -> Bundle:
    """Return a bundle with parts of its execution changed."""
    manifest = bundle.manifest
    other = manifest.execution.model_copy(update=execution)
    return replace(bundle, manifest=manifest.model_copy(update={"execution": other}))


def with_file(bundle: Bundle, name: str, content: object) -> Bundle:
    """Return a bundle with one more JSON file, or another in its place."""
    path = bundle.root / f"{hashlib.sha256(repr((name, content)).encode()).hexdigest()}.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return replace(bundle, files={**bundle.files, name: path})


def save_tiny(folder: Path, architecture: str = "BertModel", **changes: object) -> Tiny:
    """Write a model, and what a sentence-transformers folder has beside it, as a bundle."""
    folder.mkdir(parents=True, exist_ok=True)
    model = make_model(architecture, **changes)
    model.save_pretrained(folder)
    make_tokenizer().save(str(folder / "tokenizer.json"))
    kinds = ("Transformer", "Pooling", "Normalize")
    modules = [{"type": f"sentence_transformers.models.{kind}"} for kind in kinds]
    (folder / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    pooling = {"word_embedding_dimension": 64, "pooling_mode_mean_tokens": True}
    (folder / "pooling.json").write_text(json.dumps(pooling), encoding="utf-8")
    files = {ARTIFACTS[path.name]: path for path in folder.iterdir() if path.name in ARTIFACTS}
    manifest = Manifest(
        name="tiny",
        version="1.0.0",
        workload="embedding",
        summary="A tiny random encoder.",
        licence="Apache-2.0",
        artifacts=tuple(
            Artifact(
                name=name,
                source=f"file:{path.name}",
                bytes=path.stat().st_size,
                sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
            )
            for name, path in files.items()
        ),
        execution=Execution(architecture=architecture, dtype="float32"),
    )
    return Tiny(bundle=Bundle(manifest=manifest, root=folder, files=files), reference=model)


def sequence(count: int, seed: int = 0, first_type: int | None = None) -> Tokens:
    """Return random tokens; those from `first_type` on are of the second type."""
    generator = np.random.default_rng((count, seed))
    token_ids = generator.integers(4, len(VOCAB), count).astype(np.int32)
    token_ids[0], token_ids[-1] = 2, 3
    type_ids = np.zeros(count, np.int32)
    if first_type is not None:
        type_ids[first_type:] = 1
    return Tokens(token_ids=token_ids, type_ids=type_ids)
