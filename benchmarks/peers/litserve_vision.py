"""LitServe with an image classifier: Pillow, two workers of one thread, batches of up to 8.

The network is TorchScript of normalised values (`.pt`), or an ONNX graph of pixels (`.onnx`).
"""

import io
import sys
from pathlib import Path

import litserve as ls
import numpy as np
import onnxruntime
import torch
from fastapi import Request
from numpy.typing import NDArray
from PIL import Image
from torchvision import transforms

CROP, EDGE, MEAN, STD = 224, 256, 127.0, 128.0
Floats = NDArray[np.float32]


class Classify(ls.LitAPI):
    """Decodes in the worker, batches, and answers with the five best classes."""

    def setup(self, device: str) -> None:
        torch.set_num_threads(1)
        resize = transforms.Resize(EDGE, transforms.InterpolationMode.BICUBIC)
        self.preprocess = transforms.Compose([resize, transforms.CenterCrop(CROP)])
        self.script = self.session = None
        if Path(sys.argv[2]).suffix == ".pt":
            self.script = torch.jit.load(sys.argv[2]).eval()
        else:
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = 1
            self.session = onnxruntime.InferenceSession(
                sys.argv[2], options, providers=["CPUExecutionProvider"]
            )

    def decode_request(self, request: Request) -> Floats:
        data = request["image"].file.read()  # LitServe hands over the form
        return np.asarray(self.preprocess(Image.open(io.BytesIO(data)).convert("RGB")), np.float32)

    def batch(self, inputs: list[Floats]) -> Floats:
        return np.stack(inputs)

    def predict(self, batch: Floats) -> torch.Tensor:
        if self.session is not None:
            return torch.from_numpy(self.session.run(None, {"pixel_values": batch})[0])
        normalised = torch.from_numpy((batch - MEAN) / STD).permute(0, 3, 1, 2)
        with torch.inference_mode():
            return self.script(normalised)

    def unbatch(self, output: torch.Tensor) -> list[torch.Tensor]:
        return list(output)

    def encode_response(self, output: torch.Tensor) -> dict[str, object]:
        scores, classes = output.softmax(0).topk(5)
        return {"classes": classes.tolist(), "scores": scores.tolist()}


if __name__ == "__main__":
    api = Classify(max_batch_size=8, batch_timeout=0.0)
    server = ls.LitServer(api, accelerator="cpu", workers_per_device=2, healthcheck_path="/readyz")
    server.run(port=int(sys.argv[1]), log_level="warning", generate_client_file=False)
