"""Pictures and sound in whichever form a program has them, as the bytes of a file."""

from __future__ import annotations

import io
import os
import sys
import wave
from base64 import b64encode
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeGuard

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from numpy import float32, float64, int16, uint8
    from numpy.typing import NDArray
    from PIL.Image import Image

    Samples = NDArray[float32] | NDArray[float64] | NDArray[int16]
    Pixels = NDArray[uint8]
    Picture = bytes | str | os.PathLike[str] | BinaryIO | Image | Pixels
    Sound = bytes | str | os.PathLike[str] | BinaryIO | tuple[Samples, int]

_SAMPLE_BYTES = 2
_LOUDEST = 32_767


def picture_text(picture: Picture) -> str:
    """Return a picture as JSON has it: base64.

    Args:
        picture: The bytes of a file, its path (a `Path`), an open file, a picture of Pillow's,
            or an array of uint8 (height, width, or with 3 or 4 channels behind); texts are
            base64 or `data:` URLs, and stay as they are.

    Raises:
        OSError: The file can't be read.
        TypeError: It is none of these.
    """
    if isinstance(picture, str):
        return picture
    return b64encode(_picture_bytes(picture)).decode()


def sound_source(sound: Sound) -> str | os.PathLike[str] | bytes | BinaryIO:
    """Return sound as what a file can be uploaded from.

    Args:
        sound: A path, the bytes of a file, an open file, or samples and their rate in Hz:
            float from -1 to 1, or int16, of shape (frames,) or (frames, channels).
    """
    return wav_bytes(*sound) if isinstance(sound, tuple) else sound


def wav_bytes(samples: Samples, rate_hz: int) -> bytes:
    """Return samples, as `sound_source` has them, as a WAV file of 16 bits."""
    written = io.BytesIO()
    with wave.open(written, "wb") as file:
        file.setnchannels(1 if samples.ndim == 1 else samples.shape[1])
        file.setsampwidth(_SAMPLE_BYTES)
        file.setframerate(rate_hz)
        file.writeframes(pcm_bytes(samples))
    return written.getvalue()


def pcm_bytes(samples: Samples) -> bytes:
    """Return samples, as `sound_source` has them, as little-endian int16."""
    if samples.dtype.kind == "f":
        return (samples.clip(-1.0, 1.0) * _LOUDEST).astype("<i2").tobytes()
    return samples.astype("<i2").tobytes()


def _picture_bytes(picture: bytes | os.PathLike[str] | BinaryIO | Image | Pixels) -> bytes:
    if isinstance(picture, bytes):
        return picture
    if isinstance(picture, os.PathLike):
        return Path(picture).read_bytes()
    if _is_image(picture):
        return _png(picture)
    if _is_array(picture):
        from PIL.Image import fromarray  # noqa: PLC0415 - only where arrays are pictures

        return _png(fromarray(picture))
    read: Callable[[], bytes] | None = getattr(picture, "read", None)
    if read is None:
        raise TypeError(f"a {type(picture).__name__} is no picture")
    return read()


def _png(image: Image) -> bytes:
    written = io.BytesIO()
    plain = image if image.mode in ("1", "L", "LA", "P", "RGB", "RGBA") else image.convert("RGB")
    plain.save(written, format="PNG")
    return written.getvalue()


def _is_image(value: object) -> TypeGuard[Image]:
    module = _loaded("PIL.Image")
    return module is not None and isinstance(value, module.Image)


def _is_array(value: object) -> TypeGuard[Pixels]:
    module = _loaded("numpy")
    return module is not None and isinstance(value, module.ndarray)


def _loaded(name: str) -> ModuleType | None:
    """Return a module that is in use: who has a picture of Pillow's has loaded Pillow."""
    return sys.modules.get(name)
