"""From bytes that are cut anywhere to chunks of samples at the model's rate."""

from __future__ import annotations

from io import BytesIO
from itertools import pairwise

import av
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headpond_workloads.speech.engine.front.g711 import ALAW, ULAW
from headpond_workloads.speech.engine.front.intake import Intake
from headpond_workloads.speech.engine.front.pcm import Samples
from headpond_workloads.speech.items import Encoding, Format
from workloads.speech.sounds import tone

RATE_HZ = 16_000


def pieces(content: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(content) + 1) for cut in cuts), len(content)]
    return [content[first:last] for first, last in pairwise(edges)]


def heard(form: Format, parts: list[bytes], rate_hz: int = RATE_HZ) -> Samples:
    intake = Intake(form, rate_hz)
    for part in parts:
        intake.add(part)
    intake.end()
    whole = intake.take(intake.waiting)
    assert intake.drained
    return np.zeros(0, np.float32) if whole is None else whole


@pytest.mark.parametrize(("law", "table"), [("mulaw", ULAW), ("alaw", ALAW)])
def test_g711_is_what_the_media_library_reads(law: str, table: Samples) -> None:
    codes = bytes(range(256))
    with av.open(BytesIO(codes), "r", format=law, options={"sample_rate": "8000"}) as container:
        frames = [frame.to_ndarray().ravel() for frame in container.decode(audio=0)]
    assert np.array_equal(np.concatenate(frames).astype(np.float32) / 32768, table)


@pytest.mark.parametrize(
    ("form", "content", "expected"),
    [
        (Format(Encoding.PCM16, RATE_HZ), b"\x00\x80\xff\x7f\x01\x00", [-1, 32767 / 32768, 2**-15]),
        (Format(Encoding.PCM16, RATE_HZ, 2), b"\x00\x40\x00\x20\x00\xc0\x00\x40", [0.375, 0.0]),
        (Format(Encoding.FLOAT32, RATE_HZ), np.array([0.5, -2, 3], "<f4").tobytes(), [0.5, -1, 1]),
        (
            Format(Encoding.FLOAT32, RATE_HZ),
            np.array([np.nan, np.inf, -np.inf], "<f4").tobytes(),
            [0, 1, -1],
        ),
        (Format(Encoding.ULAW, RATE_HZ), b"\xff\x00\x80", [0.0, -32124 / 32768, 32124 / 32768]),
        (Format(Encoding.ALAW, RATE_HZ), b"\x55\xd5", [-8 / 32768, 8 / 32768]),
    ],
)
def test_samples_of_every_encoding(form: Format, content: bytes, expected: list[float]) -> None:
    assert heard(form, [content]).tolist() == pytest.approx(expected)


@given(
    st.sampled_from(Encoding),
    st.sampled_from([8_000, 11_025, 16_000, 24_000, 44_100, 48_000]),
    st.integers(1, 2),
    st.binary(max_size=3000),
    st.lists(st.integers(0, 3000), max_size=12),
)
def test_it_does_not_matter_how_the_bytes_are_cut(
    encoding: Encoding, rate_hz: int, channels: int, content: bytes, cuts: list[int]
) -> None:
    form = Format(encoding, rate_hz, channels)
    at_once = heard(form, [content])
    assert np.array_equal(heard(form, pieces(content, cuts)), at_once)
    assert np.isfinite(at_once).all()
    frames = len(content) // form.frame_bytes
    assert len(at_once) == pytest.approx(frames * RATE_HZ / rate_hz, abs=1)


def test_byte_by_byte() -> None:
    content = (tone(480, 24_000) * 32767).astype("<i2").tobytes()
    form = Format(Encoding.PCM16, 24_000)
    single = [content[at : at + 1] for at in range(len(content))]
    assert np.array_equal(heard(form, single), heard(form, [content]))


def test_resampling_keeps_a_tone() -> None:
    for rate_hz in (8_000, 24_000, 44_100, 48_000):
        sound = tone(rate_hz, rate_hz).astype("<f4").tobytes()
        out = heard(Format(Encoding.FLOAT32, rate_hz), [sound])
        middle = slice(2_000, 14_000)
        assert np.abs(out[middle] - tone(RATE_HZ, RATE_HZ)[middle]).max() < 1e-3


@given(st.lists(st.integers(0, 500), max_size=10), st.integers(1, 400))
def test_chunks_are_whole_until_the_end(lengths: list[int], size: int) -> None:
    sound = np.arange(sum(lengths), dtype=np.float32) / 10_000
    intake = Intake(None, RATE_HZ)
    taken: list[Samples] = []
    at = 0
    for length in lengths:
        intake.add(sound[at : at + length].tobytes())
        at += length
        while (chunk := intake.take(size)) is not None:
            assert len(chunk) == size
            taken.append(chunk)
        assert intake.waiting < size
        assert intake.buffered_ms == intake.waiting // 16
    assert not intake.drained
    intake.end()
    last = intake.take(size)
    if last is not None:
        taken.append(last)
    assert intake.take(size) is None
    assert intake.drained
    assert np.array_equal(np.concatenate([*taken, sound[:0]]), sound)


def test_sound_is_cleared_within_a_sample_too() -> None:
    intake = Intake(Format(Encoding.PCM16, RATE_HZ), RATE_HZ)
    intake.add(b"\0\0" * 50 + b"\x01")
    intake.clear()
    assert intake.waiting == 50
    intake.add(b"\x02\x00")
    chunk = intake.take(51)
    assert chunk is not None
    assert chunk[-1] == 2 / 32768


@pytest.mark.parametrize("rate_hz", [8_000, 24_000, 44_100, 48_000])
def test_all_that_came_can_be_taken_at_a_cut_and_none_of_it_follows(rate_hz: int) -> None:
    form = Format(Encoding.FLOAT32, rate_hz)
    sound = tone(rate_hz, rate_hz).astype("<f4").tobytes()
    intake = Intake(form, RATE_HZ)
    intake.add(sound)
    assert intake.waiting < RATE_HZ, "the filter keeps some back"
    intake.cut()
    first = intake.take(intake.waiting)
    assert first is not None
    assert np.array_equal(first, heard(form, [sound]))
    intake.add(bytes(len(sound)))
    intake.cut()
    second = intake.take(intake.waiting)
    assert second is not None
    assert (len(second), np.abs(second).max()) == (RATE_HZ, 0)


@given(
    st.sampled_from([8_000, 11_025, 16_000, 22_050, 44_100, 48_000]),
    st.lists(st.integers(0, 900), max_size=30),
)
def test_the_clock_is_that_of_what_came_however_often_it_is_cut(
    rate_hz: int, lengths: list[int]
) -> None:
    intake = Intake(Format(Encoding.PCM16, rate_hz), RATE_HZ)
    came = 0
    for length in lengths:
        intake.add(bytes(2 * length))
        intake.cut()
        came += length
        assert abs(intake.waiting - came * RATE_HZ / rate_hz) <= 0.5


def test_a_recording_is_an_intake_that_has_ended() -> None:
    intake = Intake.whole(np.arange(10, dtype=np.float32), RATE_HZ)
    first, last = intake.take(7), intake.take(7)
    assert first is not None
    assert last is not None
    assert (len(first), last.tolist(), intake.drained) == (7, [7, 8, 9], True)
    assert Intake.whole(np.zeros(0, np.float32), RATE_HZ).drained
