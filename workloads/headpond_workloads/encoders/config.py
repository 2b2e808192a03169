"""What an encoder is, from its `config.json`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from pydantic import AliasChoices, BaseModel, Field

from headpond.bundle.store import Bundle
from headpond.errors import BundleError
from headpond_workloads.encoders.files import read, read_if_there


class Family(StrEnum):
    """Encoders that differ in names, positions and token types, and compute the same."""

    BERT = "bert"
    ROBERTA = "roberta"
    DISTILBERT = "distilbert"


_FAMILIES = {
    "bert": Family.BERT,
    "roberta": Family.ROBERTA,
    "xlm-roberta": Family.ROBERTA,
    "camembert": Family.ROBERTA,
    "distilbert": Family.DISTILBERT,
}

Activation = Literal["gelu", "gelu_new", "gelu_pytorch_tanh", "relu"]


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """The numbers of an encoder.

    Attributes:
        family: How its weights are named.
        architecture: The class it was saved from, e.g. `BertModel`.
        layers: Transformer layers.
        hidden: Values of a token's vector.
        heads: Attention heads.
        intermediate: Values between the two products of a layer's second half.
        vocab_tokens: Token IDs are below this.
        context_tokens: The most tokens of a sequence, special ones included, that it is good for.
        positions: The most there may be: rows of the position table.
        first_position: The row of that table that the first token gets.
        epsilon: Of the layer norms.
        activation: Between the two products of a layer's second half.
        labels: Names of what a classification head gives, in their order.
        multi_label: Whether several labels may hold at once.
    """

    family: Family
    architecture: str
    layers: int
    hidden: int
    heads: int
    intermediate: int
    vocab_tokens: int
    context_tokens: int
    positions: int
    first_position: int
    epsilon: float
    activation: Activation
    labels: tuple[str, ...]
    multi_label: bool


class _File(BaseModel):
    """The fields of `config.json` that matter, under the names of all families."""

    model_type: str
    architectures: list[str] = Field(min_length=1)
    num_hidden_layers: int = Field(validation_alias=AliasChoices("num_hidden_layers", "n_layers"))
    hidden_size: int = Field(validation_alias=AliasChoices("hidden_size", "dim"))
    num_attention_heads: int = Field(
        validation_alias=AliasChoices("num_attention_heads", "n_heads")
    )
    intermediate_size: int = Field(validation_alias=AliasChoices("intermediate_size", "hidden_dim"))
    hidden_act: Activation = Field(
        "gelu", validation_alias=AliasChoices("hidden_act", "activation")
    )
    vocab_size: int
    max_position_embeddings: int
    layer_norm_eps: float = 1e-12
    pad_token_id: int | None = None
    position_embedding_type: Literal["absolute"] = "absolute"
    is_decoder: Literal[False] = False
    id2label: dict[int, str] = {0: "LABEL_0", 1: "LABEL_1"}
    problem_type: str | None = None


class SentenceConfig(BaseModel):
    """The artifact `sentence_config`, a `sentence_bert_config.json`.

    Attributes:
        max_seq_length: The longest text, special tokens included, that the model is good for.
        do_lower_case: Whether texts are put into lower case, before the tokenizer does what it
            does.
    """

    max_seq_length: int | None = None
    do_lower_case: bool = False


class _TokenizerConfig(BaseModel):
    model_max_length: int | None = None


def read_config(bundle: Bundle) -> EncoderConfig:
    """Read the artifact `config`; and, where a bundle has them, those that bound its texts.

    They are `sentence_config`, of sentence-transformers, and `tokenizer_config`.

    Raises:
        BundleError: It is no encoder of a known family, or another than the bundle names.
    """
    file = read(bundle, "config", _File)
    family = _FAMILIES.get(file.model_type)
    if family is None:
        raise BundleError(
            f"{file.model_type!r} is none of {', '.join(sorted(_FAMILIES))}",
            param="artifacts.config",
        )
    architecture = bundle.manifest.execution.architecture
    if file.architectures[0] != architecture:
        raise BundleError(
            f"the bundle says {architecture}, its files say {file.architectures[0]}",
            param="execution.architecture",
        )
    if file.hidden_size % file.num_attention_heads:
        raise BundleError(
            f"{file.hidden_size} values can't be dealt out to {file.num_attention_heads} heads",
            param="artifacts.config",
        )
    # RoBERTa's tables keep rows up to the padding token's for what is not there.
    first = (file.pad_token_id or 0) + 1 if family is Family.ROBERTA else 0
    sentences = read_if_there(bundle, "sentence_config", SentenceConfig) or SentenceConfig()
    texts = read_if_there(bundle, "tokenizer_config", _TokenizerConfig) or _TokenizerConfig()
    bounds = (sentences.max_seq_length, texts.model_max_length)
    positions = file.max_position_embeddings - first
    return EncoderConfig(
        family=family,
        architecture=architecture,
        layers=file.num_hidden_layers,
        hidden=file.hidden_size,
        heads=file.num_attention_heads,
        intermediate=file.intermediate_size,
        vocab_tokens=file.vocab_size,
        context_tokens=min([positions, *(each for each in bounds if each is not None)]),
        positions=positions,
        first_position=first,
        epsilon=file.layer_norm_eps,
        activation=file.hidden_act,
        labels=tuple(name for _, name in sorted(file.id2label.items())),
        multi_label=file.problem_type == "multi_label_classification",
    )
