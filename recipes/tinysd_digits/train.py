"""Train a Stable Diffusion of 1.1M parameters on coloured digits, in minutes on one core.

    python recipes/tinysd_digits/train.py FOLDER --autoencoder-s 120 --denoiser-s 330

First the autoencoder learns to keep pictures in 8x8 latents; then a text encoder and a UNet
learn together to predict the velocity of their noise. What is written is the average of the
weights, and a tokenizer of the prompts' words, in the files of the bundle `tinysd-digits`.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from diffusers import AutoencoderTiny, DDPMScheduler, UNet2DConditionModel
from safetensors.torch import save_file
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from torch import Tensor, nn
from torch.nn import functional
from transformers import CLIPTextConfig, CLIPTextModel

from pictures import Digits, drawn, split
from prompts import NAMES, PHRASES, every_prompt, prompt

LENGTH, VOCABULARY, WIDTH = 16, 300, 64
BEGIN, END = "<|startoftext|>", "<|endoftext|>"
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
SCHEDULE = {
    "_class_name": "DPMSolverMultistepScheduler",
    "num_train_timesteps": 1000,
    "beta_schedule": "scaled_linear",
    "beta_start": 0.00085,
    "beta_end": 0.012,
    "clip_sample": False,
    "prediction_type": "v_prediction",
    "steps_offset": 1,
    "timestep_spacing": "linspace",
}
PICTURES, LATENTS = 32, 64
"""In a batch of the autoencoder's, and of the denoiser's."""

AUGMENTED = 12
"""How often each digit becomes latents, in other colours and places."""

UNPROMPTED = 0.1
"""The part of pictures that are seen without their prompt, so that guidance is possible."""


def tokenizer() -> Tokenizer:
    """Learn a tokenizer of CLIP's kind from the prompts."""
    words = Tokenizer(models.BPE(unk_token=END, end_of_word_suffix="</w>"))
    words.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.decoder = decoders.BPEDecoder(suffix="</w>")
    words.train_from_iterator(
        every_prompt(),
        trainers.BpeTrainer(
            vocab_size=VOCABULARY,
            special_tokens=[BEGIN, END],
            end_of_word_suffix="</w>",
            initial_alphabet=list(LETTERS),
            show_progress=False,
        ),
    )
    ids = [words.token_to_id(BEGIN), words.token_to_id(END)]
    words.post_processor = processors.RobertaProcessing((END, ids[1]), (BEGIN, ids[0]))
    return words


def read(words: Tokenizer, text: str) -> Tensor:
    """Return the tokens of a text, filled up."""
    ids = words.encode(text).ids
    return torch.tensor(ids + [words.token_to_id(END)] * (LENGTH - len(ids)))


def within(seconds: float) -> Iterator[float]:
    """Yield how much of the CPU's time has passed, 0 to 1, until it is over."""
    begun = time.process_time()
    while (passed := (time.process_time() - begun) / seconds) < 1.0:
        yield passed


def batch(digits: Digits, count: int, rng: np.random.Generator) -> tuple[Tensor, Any, Any]:
    """Return pictures, -1 to 1, their digits, and their colours."""
    chosen = rng.integers(0, len(digits.labels), count)
    colours = rng.integers(0, len(NAMES), count)
    pictures = drawn(digits.shapes[chosen], colours.tolist(), rng) * 2 - 1
    return pictures, digits.labels[chosen], colours


def train_autoencoder(digits: Digits, seconds: float, rng: np.random.Generator) -> AutoencoderTiny:
    """Learn latents from which pictures come out again; they are scaled to a variance of 1."""
    network = AutoencoderTiny(
        encoder_block_out_channels=(32, 32, 32),
        decoder_block_out_channels=(32, 32, 32),
        num_encoder_blocks=(1, 1, 1),
        num_decoder_blocks=(1, 1, 1),
        latent_channels=4,
    )
    optimizer = torch.optim.AdamW(network.parameters(), 2e-3)
    for step, passed in enumerate(within(seconds)):
        rate(optimizer, 2e-3 * min(1.0, step / 30 + 0.02) * (1 - 0.95 * passed))
        pictures, _, _ = batch(digits, PICTURES, rng)
        latents = network.encode(pictures).latents
        again = network.decode(latents).sample
        error = functional.mse_loss(again, pictures) + 0.02 * functional.l1_loss(again, pictures)
        learn(optimizer, error + 1e-4 * latents.square().mean())
    network.eval()
    with torch.no_grad():
        latents = network.encode(batch(digits, 256, rng)[0]).latents
    network.register_to_config(scaling_factor=1 / float(latents.std()))
    return network


@torch.no_grad()
def latents_of(
    digits: Digits, network: AutoencoderTiny, rng: np.random.Generator
) -> tuple[Tensor, Any, Any]:
    """Return scaled latents of all digits, in several colours and places each."""
    found = [batch(digits, len(digits.labels), rng) for _ in range(AUGMENTED * 2)]
    latents = [network.encode(pictures).latents for pictures, _, _ in found]
    labels, colours = (np.concatenate([each[at] for each in found]) for at in (1, 2))
    return torch.cat(latents) * network.config["scaling_factor"], labels, colours


def train_denoiser(
    latents: tuple[Tensor, Any, Any], words: Tokenizer, seconds: float, rng: np.random.Generator
) -> tuple[CLIPTextModel, UNet2DConditionModel]:
    """Learn to tell the velocity of noisy latents, with and without their prompts."""
    encoder, denoiser = networks(words)
    schedule = DDPMScheduler(**{key: value for key, value in SCHEDULE.items() if key[0] != "_"})
    learnt = [*encoder.parameters(), *denoiser.parameters()]
    average = [each.detach().clone() for each in learnt]
    optimizer = torch.optim.AdamW(learnt, 1.5e-3, weight_decay=0.01)
    clean, labels, colours = latents
    for step, passed in enumerate(within(seconds)):
        decayed = 0.97 * 0.5 * (1 + math.cos(math.pi * passed)) + 0.03
        rate(optimizer, 1.5e-3 * min(1.0, step / 100 + 0.01) * decayed)
        chosen = rng.integers(0, len(clean), LATENTS)
        texts = [
            prompt(int(labels[at]), NAMES[colours[at]], int(rng.integers(len(PHRASES))))
            if rng.random() >= UNPROMPTED
            else ""
            for at in chosen
        ]
        ids = torch.stack([read(words, text) for text in texts])
        timesteps = torch.from_numpy(rng.integers(0, 1000, LATENTS))
        given = clean[torch.from_numpy(chosen)]
        noise = torch.randn_like(given)
        noisy = schedule.add_noise(given, noise, timesteps)
        told = encoder(ids).last_hidden_state
        said = denoiser(noisy, timesteps, encoder_hidden_states=told).sample
        error = functional.mse_loss(said, schedule.get_velocity(given, noise, timesteps))
        learn(optimizer, error, learnt)
        with torch.no_grad():
            kept = min(0.998, (1 + step) / (10 + step))
            torch._foreach_lerp_(average, [each.detach() for each in learnt], 1 - kept)
        if step % 200 == 0:
            print(f"step {step}, error {error.item():.4f}", flush=True)
    with torch.no_grad():
        for each, value in zip(learnt, average, strict=True):
            each.copy_(value)
    return encoder.eval(), denoiser.eval()


def networks(words: Tokenizer) -> tuple[CLIPTextModel, UNet2DConditionModel]:
    """Return a fresh text encoder and UNet."""
    encoder = CLIPTextModel(
        CLIPTextConfig(
            vocab_size=words.get_vocab_size(),
            hidden_size=WIDTH,
            intermediate_size=2 * WIDTH,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=LENGTH,
            projection_dim=WIDTH,
            bos_token_id=words.token_to_id(BEGIN),
            eos_token_id=words.token_to_id(END),
            pad_token_id=words.token_to_id(END),
            architectures=["CLIPTextModel"],
        )
    )
    denoiser = UNet2DConditionModel(
        sample_size=8,
        layers_per_block=1,
        block_out_channels=(32, 64),
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=WIDTH,
        attention_head_dim=4,
        norm_num_groups=8,
    )
    return encoder, denoiser


def rate(optimizer: torch.optim.Optimizer, value: float) -> None:
    """Set how fast is learnt."""
    for group in optimizer.param_groups:
        group["lr"] = value


def learn(
    optimizer: torch.optim.Optimizer, error: Tensor, clipped: list[nn.Parameter] | None = None
) -> None:
    """Take one step down."""
    optimizer.zero_grad()
    error.backward()  # type: ignore[no-untyped-call]
    if clipped is not None:
        nn.utils.clip_grad_norm_(clipped, 1.0)
    optimizer.step()


def write(
    folder: Path,
    words: Tokenizer,
    encoder: CLIPTextModel,
    denoiser: UNet2DConditionModel,
    autoencoder: AutoencoderTiny,
) -> None:
    """Write the bundle's files."""
    folder.mkdir(parents=True, exist_ok=True)
    words.save(str(folder / "tokenizer.json"))
    parts = {"text_encoder": encoder, "unet": denoiser, "vae": autoencoder}
    for name, network in parts.items():
        save_file(network.state_dict(), folder / f"{name}.safetensors")
        config = network.config
        content = config.to_dict() if isinstance(config, CLIPTextConfig) else dict(config)
        if name != "text_encoder":
            content["_class_name"] = type(network).__name__
        (folder / f"{name}.json").write_text(json.dumps(content, indent=2) + "\n")
    (folder / "scheduler.json").write_text(json.dumps(SCHEDULE, indent=2) + "\n")


def main() -> None:
    """Train, and write the bundle's files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--autoencoder-s", type=float, default=120.0, help="CPU seconds")
    parser.add_argument("--denoiser-s", type=float, default=330.0, help="CPU seconds")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    digits, _ = split()
    words = tokenizer()
    autoencoder = train_autoencoder(digits, options.autoencoder_s, rng)
    latents = latents_of(digits, autoencoder, rng)
    encoder, denoiser = train_denoiser(latents, words, options.denoiser_s, rng)
    write(options.folder, words, encoder, denoiser, autoencoder)


if __name__ == "__main__":
    main()
