"""A session of the sync client in which speech is transcribed while it is spoken."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from headpond.client.errors import ConnectionFailed
from headpond_workloads.speech.client_realtime_events import Heard, RealtimeEvent, parsed
from headpond_workloads.speech.client_realtime_memory import REST_S, Memory
from headpond_workloads.speech.schema_realtime_events import SessionResumed

if TYPE_CHECKING:
    from headpond.client.socket import Socket

ENDED = "The server ended the session amid the sound."
CLOSED = "socket_closed"
"""The code of `SocketClosed`: the server has ended the session, which is there no more."""


class RealtimeSession:
    """A session in which speech is transcribed while it is spoken; iterating yields its events.

    One thread may send while another iterates. Where the connection breaks, iterating comes back
    to the session for as long as the server keeps it, and sends again what is in no final text
    yet, as it does where the server has lost the worker that listened; what is sent meanwhile is
    kept. A client with `max_retries=0` leaves that to its user.
    """

    def __init__(
        self,
        socket: Socket,
        memory: Memory,
        redial: Callable[[Mapping[str, str]], Socket] | None,
    ) -> None:
        """Talk over an open WebSocket.

        Args:
            socket: The open one.
            memory: What was sent so far.
            redial: Opens another one at the same route, with a query; None never comes back.
        """
        self._socket = socket
        self._memory = memory
        self._redial = redial
        self._sending = threading.RLock()
        self._away = False
        self._over = False

    def append(self, sound: bytes) -> None:
        """Send more sound: 16 bits, one channel, at the session's rate, split anywhere.

        Raises:
            ConnectionFailed: The connection is gone for good.
        """
        with self._sending:
            self._send(self._memory.append(sound))

    def commit(self) -> None:
        """End the utterance here.

        Raises:
            ConnectionFailed: The connection is gone for good.
        """
        with self._sending:
            self._send(self._memory.commit())

    def clear(self) -> None:
        """Drop the sound that is not committed.

        Raises:
            ConnectionFailed: The connection is gone for good.
        """
        with self._sending:
            self._send(self._memory.clear())

    def __iter__(self) -> Iterator[RealtimeEvent]:
        while (text := self._receive()) is not None:
            event = parsed(text)
            shown = self._memory.take(event)
            loss = None if self._redial is None else self._memory.loss(event)
            if loss is not None:
                time.sleep(loss.wait_s)
                self._send_again(loss.next_sequence)
            if shown and (loss is None or isinstance(event, SessionResumed)):
                yield event

    def listen(self, sound: Iterable[bytes]) -> Generator[RealtimeEvent]:
        """Send sound as it comes, and yield what the server says until all of it is text.

        The sound is read by a thread of its own. Who leaves the loop early leaves the session.

        Args:
            sound: Pieces, as `append` takes them; a `Microphone`, for one.

        Raises:
            HeadpondError: What the server says is wrong, or the connection is gone for good.
        """
        heard = Heard()
        threading.Thread(target=self._speak, args=(sound, heard), daemon=True).start()
        try:
            for event in self:
                heard.take(event)
                yield event
                if heard.over:
                    return
            raise ConnectionFailed(ENDED)
        except ConnectionFailed:
            if heard.failure is not None:
                raise heard.failure from None
            raise
        finally:
            heard.stopped = True

    def _speak(self, sound: Iterable[bytes], heard: Heard) -> None:
        try:
            for piece in sound:
                if heard.stopped:
                    return
                self.append(piece)
            with self._sending:
                heard.end(self._memory.sequence)
                self._send(self._memory.end())
        except Exception as error:  # noqa: BLE001 - raised by who listens
            heard.failure = error
            self._over = True
            self._socket.close()

    def _send(self, text: str) -> None:
        """Send what is kept; where the connection is broken, who iterates sends it again."""
        if self._away:
            return
        try:
            self._socket.send(text)
        except ConnectionFailed:
            if not self._returns:
                raise

    def _send_again(self, next_sequence: int) -> None:
        with self._sending:
            self._away = False
            for text in self._memory.again(next_sequence):
                self._send(text)

    @property
    def _returns(self) -> bool:
        return self._redial is not None and self._memory.window_s > 0 and not self._over

    def _receive(self) -> str | None:
        while True:
            try:
                return self._socket.receive()
            except ConnectionFailed as error:
                if not self._returns or error.code == CLOSED:
                    self._over = True
                    raise
                self._come_back(error)

    def _come_back(self, error: ConnectionFailed) -> None:
        """Open the session's next connection, on which the server says what it has."""
        until_s = time.monotonic() + self._memory.window_s
        with self._sending:
            self._away = True
        while self._redial is not None and not self._over:
            try:
                self._socket = self._redial(self._memory.address())
            except ConnectionFailed:
                if time.monotonic() > until_s:
                    break
                time.sleep(REST_S)
            else:
                return
        self._over = True
        self._away = False
        raise error
