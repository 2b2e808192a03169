"""Sounds and files of them, made on the spot."""

from __future__ import annotations

import struct
from fractions import Fraction
from io import BytesIO
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

Wave = NDArray[np.float64]

PCM, FLOAT, ALAW, ULAW, EXTENSIBLE = 1, 3, 6, 7, 0xFFFE
_GUID_TAIL = bytes.fromhex("000000001000800000aa00389b71")


def tone(samples: int, rate_hz: int, hertz: float = 440.0, loudness: float = 0.5) -> Wave:
    """Return a sine."""
    return loudness * np.sin(2 * np.pi * hertz * np.arange(samples) / rate_hz)


def written(samples: Wave, code: int, bits: int) -> bytes:
    """Return samples as WAV files hold them."""
    if code == FLOAT:
        return samples.astype("<f4" if bits == 32 else "<f8").tobytes()
    if bits == 8:
        return np.round(samples * 127 + 128).astype(np.uint8).tobytes()
    if bits == 64:
        return np.round(samples * (2.0**63 - 1024)).astype("<i8").tobytes()
    whole = np.round(samples * (2 ** (bits - 1) - 1)).astype("<i4")
    width = bits // 8
    return b"".join(struct.pack("<i", each)[:width] for each in whole.ravel().tolist())


def wav(  # noqa: PLR0913 - every kind that there is
    data: bytes,
    *,
    rate_hz: int,
    code: int = PCM,
    bits: int = 16,
    channels: int = 1,
    extensible: bool = False,
    odd_chunk: bool = False,
    size: int | None = None,
    rf64: bool = False,
) -> bytes:
    """Return a WAV file around data; `size` is what its head says, if that is not the truth."""
    frame = channels * bits // 8
    form = struct.pack(
        "<HHIIHH",
        EXTENSIBLE if extensible else code,
        channels,
        rate_hz,
        rate_hz * frame,
        frame,
        bits,
    )
    if extensible:
        form += struct.pack("<HHIH", 22, bits, (1 << channels) - 1, code) + _GUID_TAIL
    chunks = _chunk(b"fmt ", form)
    if odd_chunk:
        chunks = _chunk(b"note", b"odd") + chunks + _chunk(b"LIST", b"INFOISFT\x03\0\0\0me\0\0")
    declared = len(data) if size is None else size
    if rf64:
        whole = 4 + 36 + len(chunks) + 8 + len(data)
        sizes = _chunk(b"ds64", struct.pack("<QQQI", whole, len(data), len(data) // frame, 0))
        body = b"WAVE" + sizes + chunks + b"data" + struct.pack("<I", 0xFFFF_FFFF) + data
        return b"RF64" + struct.pack("<I", 0xFFFF_FFFF) + body
    body = b"WAVE" + chunks + b"data" + struct.pack("<I", declared) + data
    return b"RIFF" + struct.pack("<I", min(len(body), 0xFFFF_FFFF)) + body + b"\0" * (len(data) % 2)


def _chunk(name: bytes, content: bytes) -> bytes:
    return name + struct.pack("<I", len(content)) + content + b"\0" * (len(content) % 2)


def encoded(samples: Wave, rate_hz: int, container: str, codec: str, channels: int = 1) -> bytes:
    """Return samples as a file of a container that the media library writes."""
    file = BytesIO()
    layout = "mono" if channels == 1 else "stereo"
    with av.open(file, "w", format=container) as output:
        stream: Any = output.add_stream(codec, rate=rate_hz, layout=layout)
        context = stream.codec_context
        planes = np.repeat(samples.astype(np.float32)[None], channels, axis=0)
        frame = av.AudioFrame.from_ndarray(planes, format="fltp", layout=layout)
        frame.rate = rate_hz
        shaper = av.AudioResampler(
            context.format.name, layout, rate_hz, frame_size=context.frame_size or None
        )
        at = 0
        for piece in [*shaper.resample(frame), *shaper.resample(None)]:
            piece.pts, piece.time_base = at, Fraction(1, rate_hz)
            at += piece.samples
            output.mux(stream.encode(piece))
        output.mux(stream.encode(None))
    return file.getvalue()
