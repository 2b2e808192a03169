"""What a bundle's `execution.options` may say about generation."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from headpond.bundle.manifest import Manifest
from headpond.bundle.section import read_section

Engine = Literal["headpond", "vllm"]
Kernels = Literal["auto", "native", "torch"]
Quantization = Literal["int8", "int4"]
AttentionKind = Literal["sdpa", "flex"]
Graphs = Literal["auto", True, False]


class PromptLookup(BaseModel):
    """Drafts copied from where the sequence's own last tokens stood before."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    method: Literal["prompt_lookup"]
    tokens: Annotated[int, Field(ge=1, le=15)] = 4
    longest_match: Annotated[int, Field(ge=1, le=16)] = 3
    max_rows: Annotated[int, Field(ge=1)] = 8


class DraftBundle(BaseModel):
    """Drafts of a smaller model with the same tokens.

    Attributes:
        bundle: Where it lies, relative to the bundle's own folder.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    method: Literal["draft"]
    bundle: Annotated[str, Field(min_length=1)]
    tokens: Annotated[int, Field(ge=1, le=15)] = 4
    max_rows: Annotated[int, Field(ge=1)] = 8


class Options(BaseModel):
    """How the engine computes.

    Attributes:
        engine: Whose engine computes: ours, or vLLM's, with what `vllm.load` says of the rest.
        python: The interpreter that has vLLM; None for `HEADPOND_VLLM_PYTHON`, or our own.
        kernels: `native` is the C++ forward, `torch` transformers' modules; `auto` takes the
            native one where the model and the machine allow.
        attention: How the torch forward attends, and that it is to be used: `sdpa` gathers
            the blocks of each sequence, `flex` reads them where they lie. None is `sdpa`,
            where it comes to the torch forward.
        cuda_graphs: Whether the torch forward replays recorded steps of decoding; `auto`
            does on a GPU.
        quantization: Weights of fewer bits; needs the native kernels.
        determinism: `batch_invariant` refuses to serve unless every result is the same to the
            bit whatever else is in the batch.
        prefix_cache: Whether prompts may reuse what their beginning computed before.
        speculation: Where drafts come from, or None for none.
        adapters: LoRA adapters by name; each is the name of its artifact. Its configuration
            is the artifact `<name>_config`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    engine: Engine = "headpond"
    python: Annotated[str, Field(min_length=1)] | None = None
    kernels: Kernels = "auto"
    attention: AttentionKind | None = None
    cuda_graphs: Graphs = "auto"
    quantization: Quantization | None = None
    determinism: Literal["batch_invariant"] | None = None
    prefix_cache: bool = True
    speculation: Annotated[PromptLookup | DraftBundle, Field(discriminator="method")] | None = None
    adapters: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _python_has_vllm(self) -> Self:
        if self.python is not None and self.engine != "vllm":
            raise ValueError("python names who has vLLM, and the engine is another one")
        return self


def options_of(manifest: Manifest) -> Options:
    """Read a bundle's options.

    Raises:
        BundleError: Names the first option that is not valid.
    """
    return read_section(Options, manifest.execution.options, "execution.options")
