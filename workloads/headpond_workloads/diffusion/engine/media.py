"""Writing pixels as files, large ones off the engine's thread."""

from __future__ import annotations

import io
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait

from PIL import Image as Pillow

from headpond_workloads.diffusion.engine.autoencoder import Image
from headpond_workloads.diffusion.items import Encoding, Medium

_AT_ONCE_PIXELS = 128 * 128
"""A file of so many is written in less than 2 ms, so where it is."""

_PATIENCE_S = 0.02


class Writer:
    """Writes files."""

    def __init__(self) -> None:
        """Have a thread for large ones."""
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="headpond-media")

    def begin(self, image: Image, encoding: Encoding) -> Future[bytes]:
        """Return the file, once it is written."""
        if image.shape[0] * image.shape[1] > _AT_ONCE_PIXELS:
            return self._threads.submit(encode, image, encoding)
        written: Future[bytes] = Future()
        written.set_result(encode(image, encoding))
        return written

    def wait(self, pending: Iterable[Future[bytes]]) -> None:
        """Wait a moment for one of those that are being written."""
        wait(pending, timeout=_PATIENCE_S, return_when="FIRST_COMPLETED")


def encode(image: Image, encoding: Encoding) -> bytes:
    """Return pixels as a file."""
    file = io.BytesIO()
    picture = Pillow.fromarray(image)
    if encoding.medium is Medium.PNG:
        picture.save(file, "png")
    else:
        picture.save(file, encoding.medium.value, quality=encoding.compression)
    return file.getvalue()
