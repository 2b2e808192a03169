"""LitServe with an image classifier: Pillow and torchvision, two workers, batches of up to 8."""

import io
import sys

import litserve as ls
import torch
from fastapi import Request
from PIL import Image
from torchvision import transforms

CROP, EDGE = 224, 256


class Classify(ls.LitAPI):
    """Decodes in the worker, batches, and answers with the five best classes."""

    def setup(self, device: str) -> None:
        torch.set_num_threads(1)
        self.model = torch.jit.load(sys.argv[2]).eval()
        self.preprocess = transforms.Compose(
            [
                transforms.Resize(EDGE, transforms.InterpolationMode.BICUBIC),
                transforms.CenterCrop(CROP),
                transforms.PILToTensor(),
                transforms.ConvertImageDtype(torch.float32),
                transforms.Normalize([127 / 255] * 3, [128 / 255] * 3),
            ]
        )

    async def decode_request(self, request: Request) -> torch.Tensor:
        form = await request.form()
        data = await form["image"].read()
        return self.preprocess(Image.open(io.BytesIO(data)).convert("RGB"))

    def batch(self, inputs: list[torch.Tensor]) -> torch.Tensor:
        return torch.stack(inputs)

    def predict(self, batch: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():
            return self.model(batch)

    def unbatch(self, output: torch.Tensor) -> list[torch.Tensor]:
        return list(output)

    def encode_response(self, output: torch.Tensor) -> dict[str, object]:
        scores, classes = output.softmax(0).topk(5)
        return {"classes": classes.tolist(), "scores": scores.tolist()}


if __name__ == "__main__":
    api = Classify(max_batch_size=8, batch_timeout=0.0)
    server = ls.LitServer(api, accelerator="cpu", workers_per_device=2, healthcheck_path="/readyz")
    server.run(port=int(sys.argv[1]), log_level="warning", generate_client_file=False)
