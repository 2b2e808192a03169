"""Whose errors an address gets that no route answers: those its dialect's clients can read."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from starlette.routing import compile_path

from headpond.dialect import ErrorForm
from headpond.record import WorkloadRecord


class ErrorForms:
    """Forms of errors by address, as the records declare them."""

    def __init__(self, records: Sequence[WorkloadRecord]) -> None:
        """Take in what the records say of their routes, and of what is near them."""
        routes = chain.from_iterable(record.routes for record in records)
        self._routes = [(compile_path(route.path)[0], route.fail) for route in routes]
        unserved = chain.from_iterable(record.unserved for record in records)
        self._unserved = sorted(unserved, key=lambda each: -len(each.path))

    def at(self, path: str) -> ErrorForm | None:
        """Return the form at a path: that of a route with another method, else as declared.

        None is OpenAI's envelope.
        """
        for pattern, fail in self._routes:
            if pattern.match(path):
                return fail
        return next((each.fail for each in self._unserved if each.holds(path)), None)
