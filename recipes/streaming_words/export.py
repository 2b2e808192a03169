"""Write a trained model as the three ONNX files and the token list that sherpa-onnx reads.

python export.py --folder build --into ../../bundles/streaming-words
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

import onnx
import torch
from torch import Tensor, nn
from torch.export import Dim

from model import CHUNK, CONTEXT, HISTORY, JOINER, LAYERS, WIDTH, Transducer
from train import TOKENS

AUTHOR = "Headpond"


def write(
    module: nn.Module,
    inputs: Mapping[str, Tensor],
    outputs: list[str],
    path: Path,
    metadata: Mapping[str, int | str],
    batch_axes: Mapping[str, int] | None = None,
) -> None:
    """Write one module with its metadata; the batch, axis 0 unless told, may be of any size."""
    batch = Dim("N")
    axes = dict.fromkeys(inputs, 0) | dict(batch_axes or {})
    torch.onnx.export(
        module,
        tuple(inputs.values()),
        path,
        input_names=list(inputs),
        output_names=outputs,
        dynamic_shapes={name: {axes[name]: batch} for name in inputs},
        external_data=False,
        verbose=False,
    )
    model = onnx.load(path)
    for key, value in metadata.items():
        model.metadata_props.add(key=key, value=str(value))
    for value_info in [*model.graph.value_info]:
        model.graph.value_info.remove(value_info)
    onnx.save(model, path)


def main() -> None:
    """Export the checkpoint of a folder."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, default=Path("build"))
    parser.add_argument("--into", type=Path, required=True)
    options = parser.parse_args()
    options.into.mkdir(parents=True, exist_ok=True)
    model = Transducer(len(TOKENS))
    model.load_state_dict(torch.load(options.folder / "checkpoint.pt", weights_only=True)["model"])
    model.eval()
    frames = CHUNK + CONTEXT
    state = torch.zeros(LAYERS, 2, WIDTH)
    write(
        model.encoder,
        {"x": torch.zeros(2, frames, 80), "h": state, "c": state.clone()},
        ["encoder_out", "next_h", "next_c"],
        options.into / "encoder.onnx",
        {
            "model_type": "lstm",
            "version": 1,
            "model_author": AUTHOR,
            "T": frames,
            "decode_chunk_len": CHUNK,
            "num_encoder_layers": LAYERS,
            "rnn_hidden_size": WIDTH,
            "d_model": WIDTH,
        },
        {"h": 1, "c": 1},
    )
    write(
        model.decoder,
        {"y": torch.zeros(2, HISTORY, dtype=torch.int64)},
        ["decoder_out"],
        options.into / "decoder.onnx",
        {"context_size": HISTORY, "vocab_size": len(TOKENS)},
    )
    joined = torch.zeros(2, JOINER)
    write(
        model.joiner,
        {"encoder_out": joined, "decoder_out": joined.clone()},
        ["logit"],
        options.into / "joiner.onnx",
        {"joiner_dim": JOINER},
    )
    words = [token if token.startswith("<") else f"▁{token}" for token in TOKENS]
    lines = [f"{word} {at}\n" for at, word in enumerate(words)]
    (options.into / "tokens.txt").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
