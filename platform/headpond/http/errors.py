"""Errors on the wire: envelope and headers, made in one place; the class has the status.

The envelope is OpenAI's, `{"error": {"message", "type", "param", "code"}}`, always with all
four keys. Nothing in it grows with the request: not the number of problems, not their
texts, and the caller's values are never repeated.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from math import ceil

from pydantic import ValidationError
from pydantic_core import ErrorDetails, from_json

from headpond.dialect import ErrorAnswer, ErrorForm
from headpond.errors import (
    AuthenticationFailed,
    HeadpondError,
    InvalidRequest,
    ModelNotFound,
    NotFound,
    Overloaded,
    PermissionDenied,
    RateLimited,
)

RawHeaders = list[tuple[bytes, bytes]]

_MAX_PROBLEMS = 10
_MAX_TEXT = 200
_MAX_COUNTED = 2_000
"""Past this many problems pydantic takes seconds and gigabytes to list them."""
_MAX_WAIT_S = 3600.0
_ABSENT = object()
_FIELD = re.compile(r"[a-z][a-z0-9_]*")
_BRANCHES = {"str", "bytes", "int", "float", "bool", "none", "dict", "json"}
"""What pydantic calls the branches of a union, where that looks like a field's name."""
_PLAIN_TEXTS = {
    "tuple_type": "Input should be an array",
    "list_type": "Input should be an array",
    "dict_type": "Input should be an object",
    "model_type": "Input should be an object",
    "model_attributes_type": "Input should be an object",
}
"""What pydantic says in Python's words, said in JSON's."""


class SessionNotFound(NotFound):
    """There is no such session, or what it said since can't be said again."""

    code = "session_not_found"


class OriginNotAllowed(PermissionDenied):
    """Pages of this origin may not call this server."""

    code = "origin_not_allowed"


class UpgradeRequired(HeadpondError):
    """This address speaks WebSocket; open one."""

    status = 426
    code = "upgrade_required"
    kind = "invalid_request_error"


class MethodNotAllowed(HeadpondError):
    """The method is not allowed at this address."""

    status = 405
    code = "method_not_allowed"
    kind = "invalid_request_error"

    def __init__(self, allowed: str) -> None:
        """Keep the methods that are allowed, as the `allow` header lists them."""
        self.allowed = allowed
        super().__init__(f"The method is not allowed here; use {allowed}.")


def envelope(error: HeadpondError) -> dict[str, dict[str, str | None]]:
    """Return an error as OpenAI's clients expect it."""
    param = error.param
    if param is None and isinstance(error, ModelNotFound):
        param = "model"
    return {
        "error": {
            "message": _bounded(error.message, _MAX_PROBLEMS * _MAX_TEXT),
            "type": error.kind,
            "param": None if param is None else _bounded(param, _MAX_TEXT),
            "code": error.code,
        }
    }


def error_answer(error: HeadpondError, form: ErrorForm | None) -> ErrorAnswer:
    """Return an error in a route's own form; in OpenAI's when it has none."""
    if form is None:
        return ErrorAnswer(status=error.status, body={"error": {**envelope(error)["error"]}})
    return form(error)


def error_json(error: HeadpondError) -> str:
    """Return the envelope as one line of JSON."""
    return json.dumps(envelope(error))


def error_headers(error: HeadpondError) -> RawHeaders:
    """Return the headers that tell a client what to do about an error."""
    headers = [(b"x-should-retry", b"true" if error.retryable else b"false")]
    wait_s = error.retry_after_s
    if wait_s is None and error.retryable and isinstance(error, RateLimited | Overloaded):
        wait_s = 1.0
    if wait_s is not None:
        wait_s = min(max(wait_s, 0.001), _MAX_WAIT_S)
        headers.append((b"retry-after", b"%d" % max(1, ceil(wait_s))))
        headers.append((b"retry-after-ms", b"%d" % ceil(wait_s * 1000)))
    if isinstance(error, AuthenticationFailed):
        headers.append((b"www-authenticate", b"Bearer"))
    if isinstance(error, MethodNotAllowed):
        headers.append((b"allow", error.allowed.encode()))
    if isinstance(error, UpgradeRequired):
        headers.append((b"upgrade", b"websocket"))
    return headers


def invalid_request(error: ValidationError, body: bytes) -> InvalidRequest:
    """Return what pydantic found wrong with a body, naming the first field at fault.

    Args:
        error: Raised while parsing `body`.
        body: Tells the body's own fields from pydantic's names for the branches of a union;
            of one that is no JSON (a form) entries of lists are not told.
    """
    count = error.error_count()
    if count > _MAX_COUNTED:
        return InvalidRequest(f"The body has {count} values of a wrong type.")
    problems = _causes(error.errors(include_url=False, include_context=False, include_input=False))
    if problems[0]["type"] == "json_invalid":
        return InvalidRequest(_bounded(f"The body is not valid JSON. {problems[0]['msg']}"))
    try:
        parsed = from_json(body)
        paths = [_field_path(problem, parsed) for problem in problems[:_MAX_PROBLEMS]]
    except ValueError:
        paths = [_form_path(problem["loc"]) for problem in problems[:_MAX_PROBLEMS]]
    listed = [
        _bounded(f"{path}: {text}" if path else text)
        for path, text in zip(paths, map(_text, problems[:_MAX_PROBLEMS]), strict=True)
    ]
    if count > _MAX_PROBLEMS:
        listed.append(f"and {count - _MAX_PROBLEMS} more")
    return InvalidRequest("; ".join(dict.fromkeys(listed)), param=paths[0] or None)


def _causes(problems: list[ErrorDetails]) -> list[ErrorDetails]:
    """Leave out lists that are too short only because an entry of theirs is wrong."""
    inner = {problem["loc"][:-1] for problem in problems}
    return [
        problem
        for problem in problems
        if problem["type"] != "too_short" or problem["loc"] not in inner
    ]


def _text(problem: ErrorDetails) -> str:
    plain = _PLAIN_TEXTS.get(problem["type"])
    if plain is not None:
        return plain
    text = problem["msg"].removeprefix("Value error, ")
    if problem["type"] in ("too_long", "too_short"):
        return (
            text.replace("Tuple", "Array").replace("List", "Array").replace("Dictionary", "Object")
        )
    return text


def _field_path(problem: ErrorDetails, parsed: object) -> str:
    """Return the dotted path of a problem's field as the caller wrote it.

    For a union pydantic puts its own names (`str`, `list[int]`) between the fields; what
    cannot be followed in the parsed body is such a name, except for a missing field's own.
    """
    location: Sequence[int | str] = problem["loc"]
    missing = problem["type"] == "missing"
    path: list[str] = []
    for part in location[:-1] if missing else location:
        inner = _inside(parsed, part)
        if inner is not _ABSENT:
            parsed = inner
            path.append(str(part))
    if missing:
        path.append(str(location[-1]))
    return _bounded(".".join(path))


def _form_path(location: Sequence[int | str]) -> str:
    """Return the dotted path of a field of a form, whose names are words in lower case."""
    first, *inner = location
    fields = [
        part
        for part in inner
        if isinstance(part, str) and _FIELD.fullmatch(part) and part not in _BRANCHES
    ]
    return _bounded(".".join([str(first), *fields]))


def _inside(parsed: object, part: int | str) -> object:
    if isinstance(parsed, dict):
        return parsed.get(part, _ABSENT)
    if isinstance(parsed, list) and isinstance(part, int) and part < len(parsed):
        return parsed[part]
    return _ABSENT


def _bounded(text: str, limit: int = _MAX_TEXT) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
