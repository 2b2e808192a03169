"""The microphone of this machine, for realtime sessions; needs `sounddevice`."""

from __future__ import annotations

from collections.abc import Iterator
from queue import SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Self

from headpond_workloads.speech.schema_realtime import PCM_RATE_HZ

if TYPE_CHECKING:
    from sounddevice import (  # type: ignore[import-untyped]
        CallbackFlags,
        RawInputStream,
    )

_MS_PER_S = 1000


class Microphone:
    """What is spoken, in pieces of 16 bits, one channel; iterating ends with `stop`.

    >>> with Microphone() as microphone:  # doctest: +SKIP
    ...     for event in session.listen(microphone):
    ...         print(event)
    """

    def __init__(
        self,
        *,
        rate_hz: int = PCM_RATE_HZ,
        device: int | str | None = None,
        piece_ms: int = 100,
    ) -> None:
        """Say how to listen; nothing is heard before the block is entered.

        Args:
            rate_hz: Samples a second, as the session was told.
            device: Its number or a part of its name; the machine's own choice when absent.
            piece_ms: How long a piece is.
        """
        self._rate_hz = rate_hz
        self._device = device
        self._frames = max(1, rate_hz * piece_ms // _MS_PER_S)
        self._pieces: SimpleQueue[bytes | None] = SimpleQueue()
        self._stream: RawInputStream | None = None

    def __enter__(self) -> Self:
        """Begin to listen.

        Raises:
            ImportError: There is no `sounddevice`; `pip install 'headpond[microphone]'`.
            OSError: There is no PortAudio, or no microphone.
        """
        try:
            import sounddevice  # noqa: PLC0415 - finds the sound system when imported
        except ImportError as error:
            text = "the microphone needs sounddevice: pip install 'headpond[microphone]'"
            raise ImportError(text) from error
        try:
            self._stream = sounddevice.RawInputStream(
                samplerate=self._rate_hz,
                blocksize=self._frames,
                device=self._device,
                channels=1,
                dtype="int16",
                callback=self._take,
            )
            self._stream.start()
        except sounddevice.PortAudioError as error:
            raise OSError(f"the microphone can't be used: {error}") from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Listen no more; what was heard is still given. Safe to call twice, and from anywhere."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()
            self._pieces.put(None)

    def __iter__(self) -> Iterator[bytes]:
        while (piece := self._pieces.get()) is not None:
            yield piece

    def _take(self, data: object, frames: int, time: object, flags: CallbackFlags) -> None:
        # PortAudio's own thread: the buffer is its again when this returns.
        self._pieces.put(bytes(data))  # type: ignore[call-overload]
