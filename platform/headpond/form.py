"""Forms: the fields of a `multipart/form-data` body (RFC 7578), as a wire type reads them."""

from __future__ import annotations

from multipart import (  # type: ignore[import-untyped]
    MultipartError,
    MultipartSegment,
    PushMultipartParser,
    parse_options_header,
)

from headpond.errors import InvalidRequest

FormValue = str | bytes | list[str | bytes]

_MEDIA_TYPE = "multipart/form-data"
_URLENCODED = "application/x-www-form-urlencoded"
_MOST_PARTS = 1024


def is_form(content_type: str) -> bool:
    """Say whether a body of this content type is a form."""
    return _media_type(content_type) == _MEDIA_TYPE


def is_urlencoded(body: bytes, content_type: str) -> bool:
    """Say whether a body is a urlencoded form, and not JSON that a client called one."""
    return _media_type(content_type) == _URLENCODED and body.lstrip()[:1] not in (b"{", b"[")


def read_form(body: bytes, content_type: str) -> dict[str, FormValue]:
    """Return the fields of a form by name: files as bytes, everything else as text.

    A field that comes more than once, or whose name ends with `[]`, is a list; its name
    loses the brackets.

    Raises:
        InvalidRequest: The body is not a form, holds too many parts, or a field that is no text.
    """
    boundary = parse_options_header(content_type)[1].get("boundary", "")
    if not boundary:
        raise InvalidRequest("The content type of a form must name its boundary.")
    try:
        parts = _parts(body, boundary)
    except (MultipartError, ValueError):  # a name or a text that is no UTF-8 is a ValueError
        raise InvalidRequest("The body is not a valid form.") from None
    fields: dict[str, FormValue] = {}
    for name, value in parts:
        bare = name.removesuffix("[]")
        before = fields.get(bare)
        if before is None:
            fields[bare] = [value] if bare != name else value
        elif isinstance(before, list):
            before.append(value)
        else:
            fields[bare] = [before, value]
    return fields


def _media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def _parts(body: bytes, boundary: str) -> list[tuple[str, str | bytes]]:
    found: list[tuple[MultipartSegment, list[bytes | bytearray]]] = []
    parser = PushMultipartParser(boundary, max_segment_count=_MOST_PARTS)
    with parser:
        for chunk in (body, b""):
            for event in [] if parser.closed else parser.parse(chunk):
                if isinstance(event, MultipartSegment):
                    found.append((event, []))
                elif event is not None:
                    found[-1][1].append(event)
    return [(part.name or "", _value(part, b"".join(data))) for part, data in found]


def _value(part: MultipartSegment, data: bytes) -> str | bytes:
    if part.filename is not None:
        return data
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise InvalidRequest(
            "is no text, and no file either: a file's part has a filename", param=part.name
        ) from None
