"""What a sentence-transformers folder says of how a text becomes a vector.

Its files are the artifacts `modules` (modules.json), `pooling` (1_Pooling/config.json) and, where
there are any, `prompts` (config_sentence_transformers.json).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, RootModel

from headpond.bundle.store import Bundle
from headpond.errors import BundleError
from headpond_workloads.embedding.engine.pooling import Pooling
from headpond_workloads.encoders.files import read, read_if_there

_MODULES = frozenset({"Transformer", "Pooling", "Normalize"})
_OLD_NAMES = {
    "cls_token": Pooling.CLS,
    "mean_tokens": Pooling.MEAN,
    "max_tokens": Pooling.MAX,
    "mean_sqrt_len_tokens": Pooling.MEAN_SQRT_LEN,
}


@dataclass(frozen=True, kw_only=True)
class Sentences:
    """How texts become vectors.

    Attributes:
        pooling: How token vectors become one.
        normalize: Whether a vector gets length 1 when nobody says.
        prompts: What is put before a text, by name.
        default_prompt: The name of the one that is used when nobody says.
    """

    pooling: Pooling
    normalize: bool
    prompts: Mapping[str, str]
    default_prompt: str | None


class _Module(BaseModel):
    type: str


class _Modules(RootModel[list[_Module]]):
    pass


class _Pooling(BaseModel):
    """Newer files name the mode; older ones have a flag for each."""

    model_config = ConfigDict(extra="allow")

    pooling_mode: str | None = None
    include_prompt: bool = True


class _Prompts(BaseModel):
    prompts: dict[str, str] = {}
    default_prompt_name: str | None = None


def read_sentences(bundle: Bundle) -> Sentences:
    """Read a folder's files.

    Raises:
        BundleError: It asks for something that is not computed, and says what.
    """
    kinds = [each.type.rpartition(".")[2] for each in read(bundle, "modules", _Modules).root]
    unknown = sorted(set(kinds) - _MODULES)
    if unknown or "Pooling" not in kinds:
        raise BundleError(
            f"modules are {', '.join(kinds)}; computed are a Transformer, a Pooling and, after "
            "them, Normalize",
            param="artifacts.modules",
        )
    prompts = read_if_there(bundle, "prompts", _Prompts) or _Prompts()
    if prompts.default_prompt_name not in {None, *prompts.prompts}:
        raise BundleError(
            f"there is no prompt {prompts.default_prompt_name!r} to be the default",
            param="artifacts.prompts",
        )
    return Sentences(
        pooling=_pooling(read(bundle, "pooling", _Pooling)),
        normalize="Normalize" in kinds,
        prompts=prompts.prompts,
        default_prompt=prompts.default_prompt_name,
    )


def _pooling(file: _Pooling) -> Pooling:
    flags = file.model_extra or {}
    names = [file.pooling_mode] if file.pooling_mode is not None else []
    prefix = "pooling_mode_"
    names += [
        name.removeprefix(prefix)
        for name, value in flags.items()
        if name.startswith(prefix) and value
    ]
    known = {each.value: each for each in Pooling} | _OLD_NAMES
    if len(names) != 1 or names[0] not in known:
        raise BundleError(
            f"the pooling is {' with '.join(names) or 'not said'}; use one of {', '.join(Pooling)}",
            param="artifacts.pooling",
        )
    if not file.include_prompt:
        raise BundleError("pooling without the prompt is not computed", param="artifacts.pooling")
    return known[names[0]]
