"""A line of a job's input, checked against what the job says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from headpond.jobs.gathering import Lineage
from headpond.jobs.job import Job, LineError

MOST_LINE_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class InputLine:
    """A line that is not blank.

    Attributes:
        number: Which it is, from 1.
        content: The line; of one that is too long, its beginning.
        given: What it says; None when it is no JSON object.
        lineage: Which object it comes from.
    """

    number: int
    content: bytes
    given: Mapping[str, object] | None
    lineage: Lineage

    @classmethod
    def of(cls, number: int, content: bytes, lineage: Lineage) -> InputLine:
        """Read a line."""
        return cls(number, content, _object(content), lineage)

    @property
    def custom_id(self) -> str | None:
        """The record's name, when it has a proper one."""
        name = None if self.given is None else self.given.get("custom_id")
        return name if isinstance(name, str) and name else None

    def problem(self, job: Job, seen: dict[str, int]) -> LineError | None:
        """Return the first thing that is wrong with it; `seen` gets its name."""
        if len(self.content) >= MOST_LINE_BYTES:
            return self._error("line_too_large", f"It is longer than {MOST_LINE_BYTES} bytes.")
        if self.given is None:
            return self._error("invalid_json_line", "This line is not parseable as a JSON object.")
        return self._field_problem(self.given, job) or self._name_problem(self.given, seen)

    def _field_problem(self, given: Mapping[str, object], job: Job) -> LineError | None:
        for name in ("custom_id", "method", "url", "body"):
            if given.get(name) is None:
                return self._error("missing_required_parameter", f"`{name}` is missing.", name)
        if self.custom_id is None:
            return self._error("invalid_type", "`custom_id` is no text, or empty.", "custom_id")
        if given["method"] != "POST":
            return self._error("invalid_method", "`method` is not `POST`.", "method")
        if given["url"] != job.endpoint:
            text = f"`url` is not the batch's endpoint, `{job.endpoint}`."
            return self._error("url_mismatch", text, "url")
        return self._body_problem(given["body"], job)

    def _body_problem(self, body: object, job: Job) -> LineError | None:
        if not isinstance(body, dict):
            return self._error("invalid_type", "`body` is no object.", "body")
        model = body.get("model")
        if not isinstance(model, str | None):
            return self._error("invalid_type", "`body.model` is no text.", "body.model")
        if model not in (None, job.model):
            text = "`body.model` is not the model of the batch, which has one."
            return self._error("model_mismatch", text, "body.model")
        return None

    def _name_problem(self, given: Mapping[str, object], seen: dict[str, int]) -> LineError | None:
        name = str(given["custom_id"])
        other = seen.setdefault(name, self.number)
        if other == self.number:
            return None
        key, line = self.lineage.place(other)
        text = f"Its `custom_id` is that of line {line}{'' if key is None else f' of `{key}`'}."
        return self._error("duplicate_custom_id", text, "custom_id")

    def _error(self, code: str, message: str, param: str | None = None) -> LineError:
        key, line = self.lineage.place(self.number)
        return LineError(code, message if key is None else f"`{key}`: {message}", line, param)


def _object(content: bytes) -> Mapping[str, object] | None:
    """Return what a line says; None when that is no JSON object."""
    try:
        given = orjson.loads(content)
    except ValueError:
        return None
    return given if isinstance(given, dict) else None
