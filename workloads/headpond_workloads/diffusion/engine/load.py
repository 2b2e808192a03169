"""From a bundle and a deployment's settings to an engine that is ready to paint."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import nn

from headpond.bundle.store import Bundle
from headpond.engine import EngineSettings
from headpond.errors import BundleError
from headpond_workloads.diffusion.engine.autoencoder import Autoencoder
from headpond_workloads.diffusion.engine.components import (
    AUTOENCODERS,
    DENOISERS,
    load_encoder,
    load_network,
    read_config,
)
from headpond_workloads.diffusion.engine.conditioning import Conditioning, Encoder, Lexer
from headpond_workloads.diffusion.engine.denoiser import (
    PACKED,
    Denoiser,
    PackedTransformerCall,
    TransformerCall,
    UNetCall,
)
from headpond_workloads.diffusion.engine.encoders import (
    ClipEncoder,
    FluxEncoder,
    Sd3Encoder,
    SdxlEncoder,
)
from headpond_workloads.diffusion.engine.engine import DiffusionEngine
from headpond_workloads.diffusion.engine.footprint import activation_elements, weight_bytes
from headpond_workloads.diffusion.engine.options import (
    Options,
    Outputs,
    Reader,
    inputs_of,
    options_of,
    outputs_of,
)
from headpond_workloads.diffusion.engine.planning import Bounds, Planning
from headpond_workloads.diffusion.engine.preview import look_of
from headpond_workloads.diffusion.engine.schedulers import Layout, scheduler_of
from headpond_workloads.diffusion.engine.tables import Tables, is_affine
from headpond_workloads.diffusion.items import Scheduler
from headpond_workloads.diffusion.record import record
from headpond_workloads.diffusion.schema_fields import MAX_STEPS

_ROWS = {"cpu": 16, "cuda": 64}
"""Rows of a forward that pay: on a CPU the activations of more no longer fit its caches."""

_TRIED_STEPS = 8
_OPTIONS = "execution.options"
_STEPS_ONLY = Layout()


@dataclass(frozen=True, kw_only=True, slots=True)
class Architecture:
    """How the parts of a kind of pipeline are used.

    Attributes:
        encoder: Makes conditions of tokens, of the text encoders, the device, the options and
            the denoiser.
        call: Makes a function of the denoiser.
        rewrites: Whether the pipeline changes its scheduler's configuration.
        layout: What the pipeline tells its scheduler besides the steps.
        packed: The side of the squares of latents that the denoiser takes as one place.
    """

    encoder: Callable[[Sequence[Any], torch.device, Options, Any], Encoder]
    call: Callable[[nn.Module, Sequence[str]], nn.Module]
    rewrites: bool = False
    layout: Layout = _STEPS_ONLY
    packed: int = 1


ARCHITECTURES: Mapping[str, Architecture] = {
    "StableDiffusionPipeline": Architecture(
        encoder=lambda encoders, device, _, __: ClipEncoder(encoders, device),
        call=UNetCall,
        rewrites=True,
    ),
    "StableDiffusionXLPipeline": Architecture(
        encoder=lambda encoders, device, options, _: SdxlEncoder(
            encoders, device, zeros=options.zero_negative
        ),
        call=UNetCall,
    ),
    "StableDiffusion3Pipeline": Architecture(
        encoder=lambda encoders, device, options, denoiser: Sd3Encoder(
            encoders,
            device,
            width=denoiser.config["joint_attention_dim"],
            tokens=options.empty_tokens,
        ),
        call=TransformerCall,
        layout=Layout(rounds_up=True),
    ),
    "FluxPipeline": Architecture(
        encoder=lambda encoders, device, _, __: FluxEncoder(encoders, device),
        call=PackedTransformerCall,
        layout=Layout(linear=True, rounds_up=True),
        packed=PACKED,
    ),
}
"""By the names that diffusers has for the pipelines."""


def load(bundle: Bundle, settings: EngineSettings) -> DiffusionEngine:
    """Load the bundle's networks onto the device.

    Raises:
        BundleError: The files don't make a model that this engine can serve.
    """
    torch.set_num_threads(settings.threads)
    device, manifest = _device(settings), bundle.manifest
    dtype: torch.dtype = getattr(torch, manifest.execution.dtype)
    options, outputs = options_of(manifest), outputs_of(manifest)
    architecture = _architecture(manifest.execution.architecture)
    tables = _tables(bundle, options, architecture)
    network = load_network(bundle, options.denoiser, DENOISERS, dtype, f"{_OPTIONS}.denoiser")
    lexers, encoders = _readers(bundle, device, dtype)
    conditioning = Conditioning(lexers, architecture.encoder(encoders, device, options, network))
    vae_dtype = getattr(torch, options.autoencoder.dtype or manifest.execution.dtype)
    param = f"{_OPTIONS}.autoencoder"
    vae = load_network(bundle, options.autoencoder, AUTOENCODERS, vae_dtype, param)
    weights = sum(map(weight_bytes, [network, vae, *encoders]))
    denoiser = Denoiser(network, architecture.call, device, dtype, architecture.packed)
    autoencoder = Autoencoder(vae, device, vae_dtype, tile_pixels=options.tile_pixels)
    if denoiser.channels != autoencoder.channels:
        raise BundleError(
            f"the denoiser takes {denoiser.channels} channels, and latents have "
            f"{autoencoder.channels}",
            param=f"{_OPTIONS}.denoiser",
        )
    bounds = _bounds(manifest.limits, outputs, denoiser, autoencoder)
    if outputs.scheduler not in tables:
        raise BundleError("the scheduler is none of the options'", param="output.scheduler")
    return DiffusionEngine(
        planning=Planning(conditioning, tables, outputs, bounds),
        conditioning=conditioning,
        denoiser=denoiser,
        autoencoder=autoencoder,
        look=look_of(options.preview, autoencoder),
        rows=options.rows or _ROWS[device.type],
        symbols={
            "pixels": bounds.pixels,
            "latents": bounds.pixels // autoencoder.factor**2,
            "latent_channels": autoencoder.channels,
            "history": _history(tables),
            "weight_bytes": weights,
            **_measured(conditioning, denoiser, autoencoder, outputs),
        },
    )


def _device(settings: EngineSettings) -> torch.device:
    device = torch.device(settings.device)
    if device.type not in record.fit.devices:
        raise BundleError(f"diffusion runs on {', '.join(record.fit.devices)}, not {device.type}")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise BundleError(f"the deployment asks for {settings.device}, and there is no CUDA device")
    return device


def _architecture(name: str) -> Architecture:
    if name not in ARCHITECTURES:
        raise BundleError(
            f"there is no architecture {name!r} of diffusion; there are {', '.join(ARCHITECTURES)}",
            param="execution.architecture",
        )
    return ARCHITECTURES[name]


def _tables(
    bundle: Bundle, options: Options, architecture: Architecture
) -> Mapping[Scheduler, Tables]:
    """Prepare the schedules, and try on random latents which are linear."""
    config = read_config(bundle.artifact(options.scheduler, f"{_OPTIONS}.scheduler"))
    found = {}
    for name in options.schedulers:
        scheduler = scheduler_of(name, config, rewritten=architecture.rewrites)
        layout = architecture.layout
        if not layout.suits(scheduler):
            raise BundleError(
                f"{name.value} can't be told the noise of each step, as the pipeline lays it out",
                param=f"{_OPTIONS}.schedulers",
            )
        linear = is_affine(scheduler, _TRIED_STEPS, layout)
        found[name] = Tables(scheduler, layout, linear=linear)
    return found


def _history(tables: Mapping[Scheduler, Tables]) -> int:
    """Return how many tensors a slot keeps of steps before, with the longest memory."""
    return max(each.held(_TRIED_STEPS) for each in tables.values())


def _readers(
    bundle: Bundle, device: torch.device, dtype: torch.dtype
) -> tuple[list[Lexer], list[Any]]:
    """Return the tokenizers and text encoders."""
    lexers, encoders = [], []
    for at, reader in enumerate(inputs_of(bundle.manifest).readers):
        param = f"input.readers.{at}"
        encoder = load_encoder(bundle, reader.encoder, reader.config, dtype, param)
        encoders.append(nn.Module.to(encoder, device))
        lexers.append(_lexer(bundle, reader, param))
    return lexers, encoders


def _lexer(bundle: Bundle, reader: Reader, param: str) -> Lexer:
    path = bundle.artifact(reader.tokenizer, f"{param}.tokenizer")
    tokenizer = Tokenizer.from_file(str(path))
    pad: int | None = tokenizer.token_to_id(reader.pad)
    if pad is None:
        raise BundleError(f"the tokenizer has no token {reader.pad!r}", param=f"{param}.pad")
    return Lexer(tokenizer, length=reader.tokens, pad=pad)


def _bounds(
    limits: Mapping[str, int], outputs: Outputs, denoiser: Denoiser, autoencoder: Autoencoder
) -> Bounds:
    pixels = limits.get("pixels", outputs.width * outputs.height)
    if outputs.width * outputs.height > pixels:
        raise BundleError("the default size is more than the limit", param="limits.pixels")
    return Bounds(
        granule=autoencoder.factor * denoiser.patch,
        pixels=pixels,
        steps=min(limits.get("steps", MAX_STEPS), MAX_STEPS),
        factor=autoencoder.factor,
        guides=denoiser.guides,
    )


def _measured(
    conditioning: Conditioning, denoiser: Denoiser, autoencoder: Autoencoder, outputs: Outputs
) -> Mapping[str, int]:
    """Compute an empty prompt once at the default size: what it holds, and that it works."""
    size = outputs.width, outputs.height
    rows, columns = outputs.height // autoencoder.factor, outputs.width // autoencoder.factor
    latents = torch.zeros(1, autoencoder.channels, rows, columns, device=denoiser.device)
    with torch.inference_mode():
        (empty,) = conditioning.encode([(conditioning.read("", "prompt").tokens, *size)])
        told = denoiser.told(empty, outputs.guidance)
        in_denoiser = activation_elements(
            denoiser.network, lambda: denoiser.plain(latents, torch.ones(1), [told])
        )
        in_decoder = activation_elements(
            autoencoder.network, lambda: autoencoder.decode(latents[0])
        )
        denoiser(latents, torch.ones(1), [told])
    return {
        "conditioning": sum(each.numel() for each in told.values()),
        "activations": -(-in_denoiser // (rows * columns)),
        "workspace_bytes": 4 * in_decoder,
    }
