"""What a bundle's `input`, `execution.options` and `output` may say about diffusion."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from headpond.bundle.manifest import Manifest, Positive, Text
from headpond.bundle.section import Section, read_section
from headpond_workloads.diffusion.items import Scheduler
from headpond_workloads.diffusion.schema_fields import MAX_GUIDANCE, MAX_STEPS


class Reader(Section):
    """A text encoder and its tokenizer.

    Attributes:
        tokenizer: The artifact with the tokenizer, a `tokenizer.json`.
        encoder: The artifact with the encoder's weights.
        config: The artifact with its configuration.
        tokens: The length to which prompts are padded; longer ones are refused.
        pad: The token they are padded with.
    """

    tokenizer: Text
    encoder: Text
    config: Text
    tokens: Positive
    pad: Text


class Inputs(Section):
    """What reads prompts: one encoder, or several, in the pipeline's order."""

    readers: Annotated[tuple[Reader, ...], Field(min_length=1, max_length=3)]


class Network(Section):
    """A network by its artifacts.

    Attributes:
        weights: The artifact with the weights.
        config: The artifact with its configuration.
    """

    weights: Text
    config: Text


class Autoencoding(Network):
    """The autoencoder by its artifacts.

    Attributes:
        dtype: What it is computed in, where that is not `execution.dtype`.
    """

    dtype: Literal["float32", "bfloat16", "float16"] | None = None


class Preview(Section):
    """How previews are made of latents.

    Attributes:
        kind: `decoder` by the autoencoder, where it is a small one; else `linear`.
        factors: For `linear`: what each channel of the latents adds to red, green and blue,
            in the range -1 to 1, and last what is added in any case.
    """

    kind: Literal["decoder", "linear"] = "decoder"
    factors: tuple[tuple[float, float, float], ...] = ()


class Options(Section):
    """How the engine computes.

    Attributes:
        denoiser: The UNet or transformer.
        autoencoder: What turns latents into pixels.
        scheduler: The artifact with the configuration the model was trained with.
        schedulers: Those that suit the model.
        preview: How previews are made.
        rows: The most rows of one forward; more slots take turns. By default as many as pay
            on the device.
        tile_pixels: Larger pictures are decoded in tiles; smaller ones only if memory lacks.
        zero_negative: Whether no negative prompt means zeros instead of an empty prompt's
            encoding; as SDXL's `force_zeros_for_empty_prompt`.
        empty_tokens: Zeros in place of what SD3's third text encoder would say.
    """

    denoiser: Network
    autoencoder: Autoencoding
    scheduler: Text
    schedulers: Annotated[tuple[Scheduler, ...], Field(min_length=1)]
    preview: Preview = Preview()
    rows: Annotated[int, Field(ge=2, le=256)] | None = None
    tile_pixels: Positive = 2048 * 2048
    zero_negative: bool = False
    empty_tokens: Annotated[int, Field(ge=0, le=512)] = 256


class Outputs(Section):
    """What is painted when a request does not say.

    Attributes:
        width: Pixels.
        height: Pixels.
        steps: Denoising steps.
        guidance: Up to 1 there is none.
        scheduler: One of the options' `schedulers`.
    """

    width: Positive
    height: Positive
    steps: Annotated[int, Field(ge=1, le=MAX_STEPS)]
    guidance: Annotated[float, Field(ge=0.0, le=MAX_GUIDANCE)]
    scheduler: Scheduler


def inputs_of(manifest: Manifest) -> Inputs:
    """Read a bundle's input contract.

    Raises:
        BundleError: Names the first field that is not valid.
    """
    return read_section(Inputs, manifest.input, "input")


def options_of(manifest: Manifest) -> Options:
    """Read a bundle's options.

    Raises:
        BundleError: Names the first option that is not valid.
    """
    return read_section(Options, manifest.execution.options, "execution.options")


def outputs_of(manifest: Manifest) -> Outputs:
    """Read a bundle's output contract.

    Raises:
        BundleError: Names the first field that is not valid.
    """
    return read_section(Outputs, manifest.output, "output")
