"""Tiny random models of other pipelines, as bundles and as diffusers' own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import yaml
from diffusers import (
    AutoencoderKL,
    FluxTransformer2DModel,
    SD3Transformer2DModel,
    UNet2DConditionModel,
)
from safetensors.torch import save_file
from transformers import (
    CLIPTextConfig,
    CLIPTextModel,
    CLIPTextModelWithProjection,
    T5Config,
    T5EncoderModel,
)

from headpond.bundle.locking import lock_files
from headpond.bundle.store import Bundle, Store
from workloads.diffusion.digits import BUNDLE

TOKENS, VOCAB = 16, 146
PAD = "<|endoftext|>"
SCHEDULE = {
    "num_train_timesteps": 1000,
    "beta_start": 0.00085,
    "beta_end": 0.012,
    "beta_schedule": "scaled_linear",
    "clip_sample": False,
    "steps_offset": 1,
}


def text_encoder(kind: Any, width: int, seed: int) -> Any:
    torch.manual_seed(seed)
    config = CLIPTextConfig(
        vocab_size=VOCAB,
        hidden_size=width,
        intermediate_size=32,
        num_hidden_layers=3,
        num_attention_heads=2,
        max_position_embeddings=TOKENS,
        projection_dim=width,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=1,
    )
    return kind(config).eval()


def autoencoder(channels: int, **given: Any) -> Any:
    torch.manual_seed(5)
    kind: Any = AutoencoderKL
    return kind(
        latent_channels=channels,
        block_out_channels=(16, 16),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        norm_num_groups=8,
        sample_size=16,
        scaling_factor=0.5,
        **given,
    ).eval()


def unet(width: int, **given: Any) -> Any:
    torch.manual_seed(6)
    kind: Any = UNet2DConditionModel
    return kind(
        sample_size=8,
        layers_per_block=1,
        block_out_channels=(16, 32),
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=width,
        attention_head_dim=2,
        norm_num_groups=8,
        **given,
    ).eval()


def sd(**given: Any) -> dict[str, Any]:
    return {
        "text_encoder": text_encoder(CLIPTextModel, 16, 1),
        "unet": unet(16, **given),
        "vae": autoencoder(4),
    }


def sdxl() -> dict[str, Any]:
    size_width, projected = 8, 24
    return {
        "text_encoder": text_encoder(CLIPTextModel, 16, 1),
        "text_encoder_2": text_encoder(CLIPTextModelWithProjection, projected, 2),
        "unet": unet(
            16 + projected,
            addition_embed_type="text_time",
            addition_time_embed_dim=size_width,
            projection_class_embeddings_input_dim=projected + 6 * size_width,
            use_linear_projection=True,
        ),
        "vae": autoencoder(4),
    }


def sd3() -> dict[str, Any]:
    torch.manual_seed(7)
    kind: Any = SD3Transformer2DModel
    transformer = kind(
        sample_size=8,
        patch_size=2,
        in_channels=8,
        num_layers=2,
        attention_head_dim=8,
        num_attention_heads=4,
        joint_attention_dim=48,
        caption_projection_dim=32,
        pooled_projection_dim=40,
        out_channels=8,
        pos_embed_max_size=16,
    ).eval()
    return {
        "text_encoder": text_encoder(CLIPTextModelWithProjection, 16, 1),
        "text_encoder_2": text_encoder(CLIPTextModelWithProjection, 24, 2),
        "transformer": transformer,
        "vae": autoencoder(8, shift_factor=0.1, use_quant_conv=False, use_post_quant_conv=False),
    }


def t5_encoder(width: int) -> Any:
    torch.manual_seed(3)
    kind: Any = T5EncoderModel
    return kind(
        T5Config(
            vocab_size=VOCAB,
            d_model=width,
            d_kv=8,
            d_ff=32,
            num_layers=2,
            num_heads=2,
            feed_forward_proj="gated-gelu",
        )
    ).eval()


def flux(*, guidance_embeds: bool) -> dict[str, Any]:
    torch.manual_seed(8)
    kind: Any = FluxTransformer2DModel
    transformer = kind(
        in_channels=16,
        num_layers=2,
        num_single_layers=2,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=24,
        pooled_projection_dim=16,
        axes_dims_rope=(4, 4, 8),
        guidance_embeds=guidance_embeds,
    ).eval()
    return {
        "text_encoder": text_encoder(CLIPTextModel, 16, 1),
        "text_encoder_2": t5_encoder(24),
        "transformer": transformer,
        "vae": autoencoder(4, shift_factor=0.1, use_quant_conv=False, use_post_quant_conv=False),
    }


def written(
    folder: Path,
    architecture: str,
    networks: Mapping[str, Any],
    *,
    schedule: Mapping[str, Any],
    schedulers: list[str],
    options: Mapping[str, Any],
    dtype: str = "float32",
) -> Bundle:
    """Write networks as a bundle."""
    (folder / "tokenizer.json").write_bytes((BUNDLE / "tokenizer.json").read_bytes())
    (folder / "scheduler.json").write_text(json.dumps(schedule))
    named = ["tokenizer", "scheduler"]
    artifacts = [{"name": name, "source": f"file:{name}.json"} for name in named]
    for name, network in networks.items():
        # A tensor with two names is written once, as transformers does.
        tensors = {each.data_ptr(): (key, each) for key, each in network.state_dict().items()}
        save_file(dict(tensors.values()), folder / f"{name}.safetensors")
        config = network.config
        content = config.to_dict() if hasattr(config, "to_dict") else dict(config)
        if name.startswith("text"):
            content["architectures"] = [type(network).__name__]
        else:
            content["_class_name"] = type(network).__name__
        (folder / f"{name}_config.json").write_text(json.dumps(content))
        artifacts += [
            {"name": name, "source": f"file:{name}.safetensors"},
            {"name": f"{name}_config", "source": f"file:{name}_config.json"},
        ]
    denoiser = "transformer" if "transformer" in networks else "unet"
    document = {
        "name": "tiny",
        "version": "1.0.0",
        "workload": "diffusion",
        "summary": "Random.",
        "licence": "Apache-2.0",
        "created": "2026-01-01T00:00:00Z",
        "artifacts": artifacts,
        "model": {},
        "input": {
            "readers": [
                {
                    "tokenizer": "tokenizer",
                    "encoder": name,
                    "config": f"{name}_config",
                    "tokens": TOKENS,
                    "pad": PAD,
                }
                for name in networks
                if name.startswith("text")
            ]
        },
        "execution": {
            "architecture": architecture,
            "dtype": dtype,
            "options": {
                "denoiser": {"weights": denoiser, "config": f"{denoiser}_config"},
                "autoencoder": {"weights": "vae", "config": "vae_config"},
                "scheduler": "scheduler",
                "schedulers": schedulers,
                **options,
            },
        },
        "output": {
            "width": 16,
            "height": 16,
            "steps": 4,
            "guidance": 4.0,
            "scheduler": schedulers[0],
        },
        "limits": {"pixels": 1024},
        "fixtures": [],
    }
    (folder / "bundle.yaml").write_text(yaml.safe_dump(document))
    return lock_files(folder, Store(folder / "store"))
