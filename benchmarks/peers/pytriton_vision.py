"""PyTriton with an image classifier: Pillow, two instances of one thread, batches of up to 8.

Arguments: the HTTP port, and the network as an ONNX graph of pixels. Ports behind it are taken
too. Needs its own libpython on `LD_LIBRARY_PATH`.
"""

import io
import sys

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from PIL import Image
from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

CROP, EDGE, BEST = 224, 256, 5
Floats = NDArray[np.float32]


def pixels(data: bytes) -> Floats:
    """Resize the shorter side and crop, as torchvision does."""
    image = Image.open(io.BytesIO(data)).convert("RGB")
    width, height = image.size
    if width <= height:
        size = (EDGE, int(EDGE * height / width))
    else:
        size = (int(EDGE * width / height), EDGE)
    left, top = (round((side - CROP) / 2) for side in size)
    resized = image.resize(size, Image.Resampling.BICUBIC)
    return np.asarray(resized.crop((left, top, left + CROP, top + CROP)), np.float32)


class Classify:
    """Decodes, computes, and answers with the five best classes."""

    def __init__(self, graph: str) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(
            graph, options, providers=["CPUExecutionProvider"]
        )

    # PyTriton's own decorator has no types.
    @batch
    def __call__(self, image: NDArray[np.object_]) -> dict[str, NDArray[np.generic]]:
        values = np.stack([pixels(data) for data in image.reshape(-1)])
        (logits,) = self.session.run(None, {"pixel_values": values})
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        scores = powers / powers.sum(axis=1, keepdims=True)
        classes = np.argsort(-scores, axis=1, kind="stable")[:, :BEST]
        return {
            "classes": classes.astype(np.int32),
            "scores": np.take_along_axis(scores, classes, axis=1).astype(np.float32),
        }


if __name__ == "__main__":
    port = int(sys.argv[1])
    config = TritonConfig(
        http_address="127.0.0.1",
        http_port=port,
        grpc_address="127.0.0.1",
        grpc_port=port + 1,
        metrics_port=port + 2,
    )
    with Triton(config=config) as triton:
        triton.bind(
            model_name="vision",
            infer_func=[Classify(sys.argv[2]) for _ in range(2)],
            inputs=[Tensor(name="image", dtype=np.bytes_, shape=(1,))],
            outputs=[
                Tensor(name="classes", dtype=np.int32, shape=(BEST,)),
                Tensor(name="scores", dtype=np.float32, shape=(BEST,)),
            ],
            config=ModelConfig(
                max_batch_size=8, batcher=DynamicBatcher(max_queue_delay_microseconds=0)
            ),
            strict=True,
        )
        triton.serve()
