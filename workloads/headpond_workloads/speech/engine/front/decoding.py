"""Whole files: any that the media library opens, decoded to one channel at one rate.

Only demuxers and decoders of sound are let in (playlists, which name other files, are
not), and what a file may cost is bounded before and while it is decoded. What is damaged is
refused by name: text that silently lacks words is worse than none.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from time import monotonic

import av
from av.audio.codeccontext import AudioCodecContext
from av.audio.frame import AudioFrame
from av.audio.stream import AudioStream
from av.container import InputContainer

from headpond.errors import InvalidRequest, PayloadTooLarge
from headpond_workloads.speech.engine.front import mpeg, ogg, riff
from headpond_workloads.speech.engine.front.pcm import Samples
from headpond_workloads.speech.engine.front.track import Track

PARAM = "file"
"""The request field that files come in."""

_DEMUXERS = "wav,w64,aiff,au,caf,flac,ogg,mp3,aac,mov,mp4,m4a,matroska,webm,asf,amr,ac3,eac3,tta,wv"
_CODECS = (
    "aac,aac_fixed,aac_latm,ac3,eac3,alac,amrnb,amrwb,flac,mp1,mp1float,mp2,mp2float,mp3,"
    "mp3float,opus,libopus,speex,vorbis,tta,wavpack,wmav1,wmav2,wmapro,gsm,gsm_ms,"
    "adpcm_ms,adpcm_ima_wav,adpcm_g722,adpcm_g726,adpcm_swf,pcm_alaw,pcm_mulaw,pcm_u8,pcm_s8,"
    "pcm_s16le,pcm_s16be,pcm_s24le,pcm_s24be,pcm_s32le,pcm_s32be,pcm_f32le,pcm_f32be,"
    "pcm_f64le,pcm_f64be,pcm_s16le_planar,pcm_s64le,pcm_s64be"
)
_OPTIONS = {"format_whitelist": _DEMUXERS, "codec_whitelist": _CODECS}
_DECODER_OPTIONS = {"threads": "1"}
_STRICT = {"flac": {"err_detect": "crccheck+explode"}}
"""Decoders that would play damaged sound, and how they are kept from it."""

_DECLARES_LENGTH = {"mov", "matroska", "aiff", "au", "w64", "tta", "wv", "caf"}
"""Demuxers that read the length from the file; others estimate it, or measure the file."""

_END_SLACK_S = 0.25
_SUM_SLACK_S = {"flac": 0.02, "ogg": 0.25}
"""Demuxers that leave damaged parts out, so that only the sum of the rest tells."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bounds:
    """What one file may cost.

    Attributes:
        duration_ms: The longest sound.
        pcm_bytes: The most it may decode to, before channels are mixed.
        wall_s: How long decoding may take.
    """

    duration_ms: int
    pcm_bytes: int = 2 * 2**30
    wall_s: float = 60.0


def decode(content: bytes, rate_hz: int, bounds: Bounds) -> Samples:
    """Return a file's sound, channels mixed into one; empty where it holds no samples.

    The first track of sound counts, others and pictures are ignored.

    Args:
        content: The file.
        rate_hz: The rate of what is returned.
        bounds: What it may cost.

    Raises:
        InvalidRequest: It is no file of sound, or a damaged one; says what is wrong.
        PayloadTooLarge: It is longer, or takes more to decode, than it may.
    """
    if not content:
        raise InvalidRequest("the file is empty", param=PARAM)
    fault = riff.fault(content)
    if fault is not None:
        raise InvalidRequest(fault, param=PARAM)
    if ogg.is_cut(content):
        raise InvalidRequest("the file is cut or damaged: its last page is missing", param=PARAM)
    until_s = monotonic() + bounds.wall_s
    try:
        with av.open(
            _Source(content, until_s), "r", options=dict(_OPTIONS), metadata_errors="ignore"
        ) as container:
            track = _decoded(container, rate_hz, bounds, until_s)
            if container.format.name == "mp3":
                _check_sum(mpeg.declared_s(content), track.duration_ms / 1000, _END_SLACK_S)
            return track.end()
    except av.FFmpegError as error:
        raise InvalidRequest(
            f"the file is no sound that can be read here: {_reason(error)}", param=PARAM
        ) from error


class _Source(BytesIO):
    """A file that can be read only until a time, however a demuxer jumps about in it."""

    def __init__(self, content: bytes, until_s: float) -> None:
        super().__init__(content)
        self._until_s = until_s

    def read(self, size: int | None = -1, /) -> bytes:
        _check_time(self._until_s)
        return super().read(size)


def _decoded(container: InputContainer, rate_hz: int, bounds: Bounds, until_s: float) -> Track:
    if not container.streams.audio:
        raise InvalidRequest("the file holds no sound", param=PARAM)
    stream = container.streams.audio[0]
    codec: AudioCodecContext | None = stream.codec_context  # whatever its type says
    if codec is None:
        raise InvalidRequest("the file's sound is in no code that is known", param=PARAM)
    if codec.name not in _CODECS.split(","):
        raise InvalidRequest("the file's sound is in a code that is not read here", param=PARAM)
    declared_s = _declared_s(container, stream)
    if declared_s is not None and declared_s * 1000 > bounds.duration_ms + 1000:
        raise _too_long(bounds)
    codec.options = {**_DECODER_OPTIONS, **_STRICT.get(codec.name, {})}
    track = Track(rate_hz)
    for frame in _frames(container, stream, until_s):
        track.add(frame)
        if track.duration_ms > bounds.duration_ms:
            raise _too_long(bounds)
        if track.pcm_bytes > bounds.pcm_bytes:
            raise PayloadTooLarge(
                f"the file decodes to more than {bounds.pcm_bytes} bytes", param=PARAM
            )
    _check_whole(container, declared_s, track)
    return track


def _frames(container: InputContainer, stream: AudioStream, until_s: float) -> Iterator[AudioFrame]:
    """Iterate over the frames of a track.

    What cannot be decoded before the first frame or after the last is the rest of a file
    that was cut out of another, or no sound (tags); amid the sound it is damage.
    """
    heard_s = 0.0
    failed: av.FFmpegError | None = None
    for packet in container.demux(stream):
        _check_time(until_s)
        try:
            frames = packet.decode()
        except av.FFmpegError as error:
            failed = error if heard_s else None
            continue
        for frame in frames:
            if failed is not None:
                raise InvalidRequest(
                    f"the file is damaged {heard_s:.1f} s after its start: {_reason(failed)}",
                    param=PARAM,
                )
            if frame.samples and frame.sample_rate:
                heard_s += frame.samples / frame.sample_rate
                yield frame
    if failed is not None and not heard_s:
        raise failed


def _check_whole(container: InputContainer, declared_s: float | None, track: Track) -> None:
    demuxer = container.format.name.partition(",")[0]
    if demuxer in _SUM_SLACK_S:
        heard_s, slack_s = track.duration_ms / 1000, _SUM_SLACK_S[demuxer]
    elif demuxer in _DECLARES_LENGTH:
        heard_s, slack_s = track.end_s, _END_SLACK_S  # a pause may be a gap in time
    else:
        return
    _check_sum(declared_s, heard_s, slack_s)


def _check_sum(declared_s: float | None, heard_s: float, slack_s: float) -> None:
    if declared_s is not None and heard_s < declared_s - slack_s:
        raise InvalidRequest(
            f"the file is cut or damaged: it holds {heard_s:.2f} s of the {declared_s:.2f} s "
            "that it declares",
            param=PARAM,
        )


def _declared_s(container: InputContainer, stream: AudioStream) -> float | None:
    if stream.duration is not None and stream.time_base is not None:
        return float(stream.duration * stream.time_base)
    if container.duration is not None:
        return container.duration / av.time_base
    return None


def _check_time(until_s: float) -> None:
    if monotonic() > until_s:
        raise PayloadTooLarge("the file takes too long to decode", param=PARAM)


def _too_long(bounds: Bounds) -> PayloadTooLarge:
    return PayloadTooLarge(
        f"the file is longer than {bounds.duration_ms / 1000:.0f} s", param=PARAM
    )


def _reason(error: av.FFmpegError) -> str:
    if error.errno == errno.EIO or isinstance(error, av.EOFError):
        return "it is cut off"
    return (error.strerror or type(error).__name__).lower()
