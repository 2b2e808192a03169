"""An uploaded file: a form that is written to the disk while it comes, never held."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from multipart import (  # type: ignore[import-untyped]
    MultipartError,
    MultipartSegment,
    PushMultipartParser,
    parse_options_header,
)
from starlette.types import Receive

from headpond.errors import InvalidRequest, PayloadTooLarge
from headpond.form import is_form
from headpond.http.body import body_parts
from headpond.http.headers import Headers
from headpond.jobs.errors import ObjectsUnavailable

FILE_FIELD = "file"

_MOST_PARTS = 32
_MOST_FIELD_BYTES = 4096
_FRAMING_BYTES = 2**18
"""Room for everything of a form that is not the file."""
_BLOCK_BYTES = 2**20
"""So much is collected before a thread writes it."""
_MOST_NAME = 255


@dataclass(frozen=True, slots=True)
class Upload:
    """The fields of a form as texts by name, and what its file is called."""

    fields: dict[str, str]
    filename: str


async def receive_upload(
    receive: Receive, headers: Headers, target: Path, limit_bytes: int
) -> Upload:
    """Write the file of a form to `target` while it comes.

    Raises:
        InvalidRequest: It is no form, or has not exactly one file.
        PayloadTooLarge: The file is longer than `limit_bytes`.
        ObjectsUnavailable: The disk does not take it.
        DeadlineExceeded: Nothing more of it came for half a minute.
        CallerGone: The caller went away while sending it.
    """
    content_type = headers.get(b"content-type", b"").decode("latin-1")
    boundary = parse_options_header(content_type)[1].get("boundary", "")
    if not is_form(content_type) or not boundary:
        raise InvalidRequest("Send the file as multipart/form-data, with its boundary named.")
    with target.open("wb") as file:
        form = _Form(boundary, file, limit_bytes)
        block = bytearray()
        async with aclosing(body_parts(receive, headers, limit_bytes + _FRAMING_BYTES)) as parts:
            async for part in parts:
                block += part
                if len(block) >= _BLOCK_BYTES:
                    await asyncio.to_thread(form.feed, bytes(block))
                    block.clear()
        await asyncio.to_thread(form.finish, bytes(block))
    return form.upload()


@dataclass(slots=True)
class _Form:
    """The push parser's other side: the file goes to the disk, fields stay."""

    boundary: str
    file: IO[bytes]
    limit_bytes: int
    _fields: dict[str, bytearray] = field(default_factory=dict)
    _field: bytearray | None = None
    _filename: str | None = None
    _parser: PushMultipartParser = field(init=False)

    def __post_init__(self) -> None:
        try:
            self._parser = PushMultipartParser(self.boundary, max_segment_count=_MOST_PARTS)
        except (MultipartError, ValueError):
            raise InvalidRequest("The boundary of the form is not valid.") from None

    def feed(self, block: bytes) -> None:
        """Take in a part of the body."""
        try:
            for event in [] if self._parser.closed else self._parser.parse(block):
                if isinstance(event, MultipartSegment):
                    self._begin(event)
                elif event is not None:
                    self._add(event)
        except (MultipartError, ValueError):  # a name that is no UTF-8 is a ValueError
            raise InvalidRequest("The body is not a valid form.") from None
        except OSError as error:
            raise ObjectsUnavailable(
                f"The disk does not take the file: {error.strerror}.", retry_after_s=10.0
            ) from error

    def finish(self, block: bytes) -> None:
        """Take in the last part of the body."""
        self.feed(block)
        self.feed(b"")
        if not self._parser.closed:
            raise InvalidRequest("The body is not a valid form.")
        try:
            self.file.flush()
        except OSError as error:
            raise ObjectsUnavailable(retry_after_s=10.0) from error

    def upload(self) -> Upload:
        if self._filename is None:
            raise InvalidRequest("A form field `file` with the file is needed.", param=FILE_FIELD)
        texts = {name: value.decode(errors="replace") for name, value in self._fields.items()}
        return Upload(texts, self._filename)

    def _begin(self, segment: MultipartSegment) -> None:
        name = segment.name or ""
        if name != FILE_FIELD:
            self._field = self._fields[name] = bytearray()
            return
        if self._filename is not None:
            raise InvalidRequest("Send one file at a time.", param=FILE_FIELD)
        self._field = None
        self._filename = _plain_name(segment.filename or FILE_FIELD)

    def _add(self, data: bytes | bytearray) -> None:
        if self._field is not None:
            self._field += data
            if len(self._field) > _MOST_FIELD_BYTES:
                raise PayloadTooLarge("A field of the form is too long.")
        elif self.file.tell() + len(data) > self.limit_bytes:
            raise PayloadTooLarge(f"The file is larger than {self.limit_bytes} bytes.")
        else:
            self.file.write(data)


def _plain_name(filename: str) -> str:
    """Return a name without folders and control characters."""
    last = filename.replace("\\", "/").rpartition("/")[2]
    return "".join(c if c.isprintable() else "_" for c in last)[-_MOST_NAME:] or FILE_FIELD
