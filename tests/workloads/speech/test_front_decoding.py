"""Whole files: every kind of sound that people send, and everything that is none."""

from __future__ import annotations

import struct
from io import BytesIO
from typing import Any

import av
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headpond.errors import InvalidRequest, PayloadTooLarge
from headpond_workloads.speech.engine.front.decoding import Bounds, decode
from headpond_workloads.speech.engine.front.intake import Intake
from headpond_workloads.speech.engine.front.pcm import Samples
from headpond_workloads.speech.items import Encoding, Format
from workloads.speech.sounds import ALAW, FLOAT, PCM, ULAW, encoded, tone, wav, written

RATE_HZ = 16_000
BOUNDS = Bounds(duration_ms=60_000)
SOUND = tone(8_000, RATE_HZ)

CONTAINERS = (
    ("flac", "flac", RATE_HZ),
    ("ogg", "libopus", 48_000),
    ("webm", "libopus", 48_000),
    ("mp3", "libmp3lame", RATE_HZ),
    ("mp3", "libmp3lame", 44_100),
    ("ipod", "aac", 44_100),
    ("mp4", "aac", RATE_HZ),
    ("3gp", "aac", RATE_HZ),
    ("adts", "aac", RATE_HZ),
    ("matroska", "pcm_s16le", RATE_HZ),
    ("aiff", "pcm_s16be", RATE_HZ),
    ("caf", "pcm_s16le", RATE_HZ),
    ("au", "pcm_s16be", RATE_HZ),
    ("w64", "pcm_s24le", RATE_HZ),
    ("wav", "adpcm_ms", RATE_HZ),
)


def refusal(content: bytes, bounds: Bounds = BOUNDS) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as refused:
        decode(content, RATE_HZ, bounds)
    assert refused.value.param == "file"
    assert refused.value.status < 500
    return refused.value


def sound_or_none(content: bytes, bounds: Bounds = BOUNDS) -> Samples | None:
    """Return the sound, or None where it is refused as it should be."""
    try:
        return decode(content, RATE_HZ, bounds)
    except InvalidRequest as error:
        if error.param != "file":
            raise
        return None


def likeness(found: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> float:
    """Return how alike two sounds are at the best shift of at most 0.15 s."""
    size = 4096
    piece = expected[2000 : 2000 + size]
    windows = np.lib.stride_tricks.sliding_window_view(found, size)[:6000]
    norms = np.linalg.norm(windows, axis=1) * np.linalg.norm(piece)
    return float((windows @ piece / np.maximum(norms, 1e-9)).max())


@pytest.mark.parametrize("rf64", [False, True])
@pytest.mark.parametrize("odd_chunk", [False, True])
@pytest.mark.parametrize("extensible", [False, True])
@pytest.mark.parametrize(
    ("code", "bits", "close"),
    [
        (PCM, 8, 2**-6),
        (PCM, 16, 2**-14),
        (PCM, 24, 2**-22),
        (PCM, 32, 2**-22),
        (PCM, 64, 2**-22),
        (FLOAT, 32, 2**-22),
        (FLOAT, 64, 2**-22),
    ],
)
def test_every_kind_of_wav(
    code: int, bits: int, close: float, extensible: bool, odd_chunk: bool, rf64: bool
) -> None:
    file = wav(
        written(SOUND, code, bits),
        rate_hz=RATE_HZ,
        code=code,
        bits=bits,
        extensible=extensible,
        odd_chunk=odd_chunk,
        rf64=rf64,
    )
    found = decode(file, RATE_HZ, BOUNDS)
    assert found.dtype == np.float32
    assert found.shape == SOUND.shape
    assert np.abs(found - SOUND).max() < close


@pytest.mark.parametrize(("code", "encoding"), [(ULAW, Encoding.ULAW), (ALAW, Encoding.ALAW)])
def test_wav_of_g711_is_what_a_stream_of_it_is(code: int, encoding: Encoding) -> None:
    data = bytes(range(256)) * 8
    intake = Intake(Format(encoding, 8_000), RATE_HZ)
    intake.add(data)
    intake.end()
    streamed = intake.take(intake.waiting)
    assert streamed is not None
    found = decode(wav(data, rate_hz=8_000, code=code, bits=8), RATE_HZ, BOUNDS)
    assert np.array_equal(found, streamed)


@pytest.mark.parametrize("rate_hz", [8_000, 11_025, 24_000, 44_100, 48_000, 96_000])
def test_a_file_is_what_a_stream_of_it_is(rate_hz: int) -> None:
    data = written(tone(rate_hz, rate_hz), PCM, 16)
    intake = Intake(Format(Encoding.PCM16, rate_hz), RATE_HZ)
    intake.add(data)
    intake.end()
    streamed = intake.take(intake.waiting)
    assert streamed is not None
    assert np.array_equal(decode(wav(data, rate_hz=rate_hz), RATE_HZ, BOUNDS), streamed)


def test_channels_are_mixed() -> None:
    left, right = tone(1600, RATE_HZ), tone(1600, RATE_HZ, 700.0)
    data = written(np.stack([left, right], axis=1), PCM, 16)
    found = decode(wav(data, rate_hz=RATE_HZ, channels=2), RATE_HZ, BOUNDS)
    assert np.abs(found - (left + right) / 2).max() < 2**-14


@pytest.mark.parametrize(("container", "codec", "rate_hz"), CONTAINERS)
@pytest.mark.parametrize("channels", [1, 2])
def test_other_containers(container: str, codec: str, rate_hz: int, channels: int) -> None:
    file = encoded(tone(rate_hz, rate_hz), rate_hz, container, codec, channels)
    found = decode(file, RATE_HZ, BOUNDS)
    assert len(found) == pytest.approx(RATE_HZ, abs=RATE_HZ // 8)
    assert likeness(found, tone(RATE_HZ, RATE_HZ)) > 0.98


@pytest.mark.parametrize("size", [0, 0x7FFF_FFFF, 0xFFFF_FFFF, 0x7FFF_FF00])
def test_a_wav_whose_writer_did_not_know_its_size(size: int) -> None:
    data = written(SOUND, PCM, 16)
    found = decode(wav(data, rate_hz=RATE_HZ, size=size), RATE_HZ, BOUNDS)
    assert len(found) == len(SOUND)


@pytest.mark.parametrize("rate_hz", [8_000, RATE_HZ, 48_000])
def test_files_without_samples_are_empty_sounds(rate_hz: int) -> None:
    assert len(decode(wav(b"", rate_hz=rate_hz), RATE_HZ, BOUNDS)) == 0


@pytest.mark.parametrize("channels", [3, 7, 8, 64])
def test_many_channels(channels: int) -> None:
    data = written(np.repeat(SOUND[:, None], channels, axis=1), PCM, 16)
    found = decode(wav(data, rate_hz=RATE_HZ, channels=channels), RATE_HZ, BOUNDS)
    assert np.abs(found - SOUND).max() < 2**-14


def test_more_planes_than_can_be_counted() -> None:
    """PyAV reads past the end of such a frame's planes."""
    file = encoded(tone(48_000, 48_000), 48_000, "adts", "aac")
    assert "8 channels" in refusal(_adts_with_channels(file, 7)).message


def _adts_with_channels(file: bytes, configuration: int) -> bytes:
    """Return an AAC file whose first frame says that it has other channels."""
    head = bytearray(file)
    head[2] = (head[2] & 0xFE) | (configuration >> 2)
    head[3] = (head[3] & 0x3F) | (configuration & 3) << 6
    return bytes(head)


def test_what_is_not_finite_is_cleaned() -> None:
    data = np.array([np.nan, np.inf, -np.inf, 0.25, 7], "<f4").tobytes()
    found = decode(wav(data, rate_hz=RATE_HZ, code=FLOAT, bits=32), RATE_HZ, BOUNDS)
    assert found.tolist() == [0, 1, -1, 0.25, 1]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"),
        (b"hello" * 100, "no sound that can be read"),
        (b"\0" * 4096, "no sound that can be read"),
        (b"RIFF\x10\0\0\0WAVE", "no sound that can be read"),
        (b"\x89PNG\r\n\x1a\n" + bytes(200), "no sound that can be read"),
        (wav(b"\0\0" * 100, rate_hz=RATE_HZ)[:-150], "150 bytes are missing"),
        (wav(b"\0\0" * 100, rate_hz=500), "500 Hz"),
        (wav(b"\0\0" * 100, rate_hz=RATE_HZ, channels=0), "0 channels"),
        (wav(b"\0\0" * 999, rate_hz=RATE_HZ, channels=999), "999 channels"),
        (b"RIFX" + wav(b"\0\0" * 100, rate_hz=RATE_HZ)[4:], "big-endian"),
        (encoded(SOUND, 48_000, "webm", "libopus")[:100], "it is cut off"),
        (b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n", "no sound that can be read"),
        (b"ffconcat version 1.0\nfile /etc/hostname\n", "no sound that can be read"),
    ],
)
def test_what_is_no_sound_is_refused(content: bytes, says: str) -> None:
    assert says in refusal(content).message


@pytest.mark.parametrize(
    ("container", "codec"),
    [
        ("flac", "flac"),
        ("webm", "libopus"),
        ("aiff", "pcm_s16be"),
        ("ipod", "aac"),
        ("ogg", "libopus"),
        ("mp3", "libmp3lame"),
    ],
)
@pytest.mark.parametrize("kept", [0.4, 0.66])
def test_a_cut_file_is_refused(container: str, codec: str, kept: float) -> None:
    file = encoded(tone(96_000, 48_000), 48_000, container, codec)
    refusal(file[: int(len(file) * kept)])


@pytest.mark.parametrize("rate_hz", [RATE_HZ, 44_100, 8_000])
@pytest.mark.parametrize("channels", [1, 2])
def test_a_cut_mp3_is_refused_whatever_its_frames(rate_hz: int, channels: int) -> None:
    file = encoded(tone(2 * rate_hz, rate_hz), rate_hz, "mp3", "libmp3lame", channels)
    assert len(decode(file, RATE_HZ, BOUNDS)) == pytest.approx(2 * RATE_HZ, rel=0.1)
    assert "2." in refusal(file[: len(file) // 2]).message


def test_an_ogg_file_without_its_last_page_is_refused() -> None:
    file = encoded(tone(96_000, 48_000), 48_000, "ogg", "libopus")
    assert len(decode(file, RATE_HZ, BOUNDS)) > 0
    assert "last page" in refusal(file[: file.rindex(b"OggS")]).message
    assert "last page" in refusal(file[:-1]).message


@pytest.mark.parametrize(
    ("container", "codec"), [("flac", "flac"), ("ogg", "libopus"), ("mp3", "libmp3lame")]
)
def test_a_damaged_file_is_refused(container: str, codec: str) -> None:
    file = bytearray(encoded(tone(96_000, 48_000), 48_000, container, codec))
    for at in range(len(file) // 2, len(file) // 2 + 300):
        file[at] ^= 0x5A
    assert "damaged" in refusal(bytes(file)).message


def test_a_file_that_is_too_long_is_refused_before_it_is_decoded() -> None:
    file = wav(bytes(2 * RATE_HZ * 3), rate_hz=RATE_HZ)
    with pytest.raises(PayloadTooLarge, match="longer than 1 s"):
        decode(file, RATE_HZ, Bounds(duration_ms=1000))


def test_a_file_that_declares_nothing_is_bounded_while_it_is_decoded() -> None:
    file = encoded(tone(3 * 48_000, 48_000), 48_000, "webm", "libopus")
    with pytest.raises(PayloadTooLarge):
        decode(file, RATE_HZ, Bounds(duration_ms=60_000, pcm_bytes=100_000))
    with pytest.raises(PayloadTooLarge):
        decode(file, RATE_HZ, Bounds(duration_ms=1_900))


def test_decoding_stops_when_its_time_is_over() -> None:
    file = wav(bytes(2 * RATE_HZ), rate_hz=RATE_HZ)
    with pytest.raises(PayloadTooLarge, match="too long to decode"):
        decode(file, RATE_HZ, Bounds(duration_ms=60_000, wall_s=-1.0))


def test_pictures_are_not_decoded() -> None:
    """A film is read for its sound; its pictures, which may be huge, are passed over."""
    file = BytesIO()
    with av.open(file, "w", format="mov") as output:
        film: Any = output.add_stream("png", rate=1)
        film.width, film.height, film.pix_fmt = 64, 64, "rgb24"
        sound: Any = output.add_stream("pcm_s16le", rate=RATE_HZ, layout="mono")
        picture = av.VideoFrame.from_ndarray(np.zeros((64, 64, 3), np.uint8), format="rgb24")
        output.mux(film.encode(picture))
        output.mux(film.encode(None))
        frame = av.AudioFrame.from_ndarray(
            (SOUND[None] * 32767).astype(np.int16), format="s16", layout="mono"
        )
        frame.rate = RATE_HZ
        output.mux(sound.encode(frame))
        output.mux(sound.encode(None))
    found = decode(file.getvalue(), RATE_HZ, BOUNDS)
    assert np.abs(found - SOUND).max() < 2**-14


def test_a_file_without_sound_is_refused() -> None:
    file = BytesIO()
    with av.open(file, "w", format="mov") as output:
        film: Any = output.add_stream("png", rate=1)
        film.width, film.height, film.pix_fmt = 16, 16, "rgb24"
        picture = av.VideoFrame.from_ndarray(np.zeros((16, 16, 3), np.uint8), format="rgb24")
        output.mux(film.encode(picture))
        output.mux(film.encode(None))
    assert "holds no sound" in refusal(file.getvalue()).message


FILES = {
    (container, codec, rate_hz): encoded(tone(rate_hz // 4, rate_hz), rate_hz, container, codec)
    for container, codec, rate_hz in CONTAINERS
}


@settings(max_examples=300)
@given(
    st.sampled_from(sorted(FILES)),
    st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=30),
    st.floats(0, 1),
)
def test_broken_files_are_sound_or_refused(
    kind: tuple[str, str, int], changes: list[tuple[float, int]], kept: float
) -> None:
    file = bytearray(FILES[kind])
    for where, value in changes:
        file[int(where * len(file))] = value
    content = bytes(file[: int(len(file) * kept) + 1])
    found = sound_or_none(content, Bounds(duration_ms=10_000, wall_s=10))
    if found is not None:
        assert found.dtype == np.float32
        assert np.isfinite(found).all()
        assert np.abs(found).max(initial=0) < 4


@settings(max_examples=100)
@given(st.binary(max_size=400), st.sampled_from([b"RIFF\xff\0\0\0WAVE", b"fLaC", b"OggS", b"ID3"]))
def test_noise_is_refused_or_empty(noise: bytes, head: bytes) -> None:
    sound_or_none(head + noise)


@given(st.integers(0, 2**32 - 1), st.integers(0, 64), st.integers(0, 2**32 - 1))
def test_any_head_of_a_wav(rate_hz: int, channels: int, size: int) -> None:
    form = struct.pack("<HHIIHH", 1, channels, rate_hz, rate_hz, 2, 16)
    head = b"RIFF\xff\0\0\0WAVEfmt " + struct.pack("<I", len(form)) + form
    sound_or_none(head + b"data" + struct.pack("<I", size) + bytes(400))
