"""Files as texts: base64, or a `data:` URL that holds base64."""

from __future__ import annotations

import binascii
import re

from headpond.errors import InvalidRequest

_SPACE = re.compile(r"\s+", re.ASCII)
_SHOWN_CHARACTERS = 16


def file_bytes(given: str | bytes, param: str, noun: str) -> bytes:
    """Return a file from what a request holds: the file itself, or its text.

    Line breaks in base64 and missing padding are forgiven; the URL-safe alphabet is not.

    Args:
        given: As the wire has it.
        param: The field it came in.
        noun: What the file is, for messages, e.g. `image`.

    Raises:
        InvalidRequest: It is empty, no base64, or names what would have to be fetched.
    """
    data = given if isinstance(given, bytes) else _decoded(given, param, noun)
    if not data:
        raise InvalidRequest(f"the {noun} is empty", param=param)
    return data


def _decoded(text: str, param: str, noun: str) -> bytes:
    scheme, colon, rest = text[:_SHOWN_CHARACTERS].partition(":")
    if colon and scheme.strip().lower() == "data":
        header, comma, text = text.partition(",")
        if not comma or not header.rstrip().lower().endswith(";base64"):
            raise InvalidRequest("a data: URL must read data:<type>;base64,...", param=param)
    elif colon and rest.startswith("//"):
        raise InvalidRequest(
            f"{scheme}: URLs are not fetched here; send the {noun} itself, in base64 or as a file",
            param=param,
        )
    text = _SPACE.sub("", text).rstrip("=")
    try:
        return binascii.a2b_base64(text + "=" * (-len(text) % 4), strict_mode=True)
    except ValueError:  # binascii's own error is one, and so is text beyond ASCII
        raise InvalidRequest(f"the {noun} is not valid base64", param=param) from None
