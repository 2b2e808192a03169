"""What a bundle's `execution.options` may say about a text encoder."""

from __future__ import annotations

from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from headpond.bundle.manifest import Manifest
from headpond.bundle.section import read_section


class EncoderOptions(BaseModel):
    """How an encoder is computed.

    Attributes:
        engine: `native` is the C++ forward, `torch` tensor operations, `onnx` ONNX Runtime over
            the artifact `graph`; `auto` takes the native one where the model and the machine
            allow, else torch's.
        quantization: Products of fewer bits; needs the native forward.
        batch_tokens: Tokens of a batch, where the engine's own choice is not the best; no more
            than the records allow.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    engine: Literal["auto", "native", "torch", "onnx"] = "auto"
    quantization: Literal["int8"] | None = None
    batch_tokens: Annotated[int, Field(ge=1, le=16_384)] | None = None


Options = TypeVar("Options", bound=EncoderOptions)


def options_of(manifest: Manifest, kind: type[Options]) -> Options:
    """Read a bundle's options.

    Raises:
        BundleError: Names the first option that is not valid.
    """
    return read_section(kind, manifest.execution.options, "execution.options")
