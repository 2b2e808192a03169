"""What the routes of TEI have in common: the form of their errors, and `GET /info`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import version

from headpond.call import Failed, Output
from headpond.dialect import Ask, ErrorAnswer, Exchange, Heading, Incoming, ItemEvent, Raw, Unserved
from headpond.errors import (
    DeadlineExceeded,
    HeadpondError,
    InvalidRequest,
    NotReady,
    Overloaded,
    PayloadTooLarge,
    RateLimited,
)
from headpond.units import Work
from headpond_workloads.encoders.errors import EmptyInput, TooManyInputs
from headpond_workloads.encoders.items import Described, DescribeItem
from headpond_workloads.encoders.schema_tei import Info, ModelType

_STATUSES: tuple[tuple[type[HeadpondError], int, str], ...] = (
    (EmptyInput, 400, "Empty"),
    (TooManyInputs, 413, "Validation"),
    (PayloadTooLarge, 413, "Validation"),
    (InvalidRequest, 422, "Validation"),
    (NotReady, 503, "Unhealthy"),
    (Overloaded, 429, "Overloaded"),
    (RateLimited, 429, "Overloaded"),
    (DeadlineExceeded, 408, "Overloaded"),
)
"""The first class that an error is of decides; subclasses come before their bases."""


def tei_error(error: HeadpondError) -> ErrorAnswer:
    """Write an error as TEI does; what it has no word for keeps its status below 500."""
    status, kind = next(
        ((status, kind) for cls, status, kind in _STATUSES if isinstance(error, cls)),
        (error.status, "Validation") if error.status < 500 else (424, "Backend"),
    )
    return ErrorAnswer(status=status, body={"error": error.described(), "error_type": kind})


tei_unserved = tuple(
    Unserved(f"/{name}", tei_error)
    for name in (
        "embed",
        "embed_all",
        "embed_sparse",
        "similarity",
        "rerank",
        "predict",
        "tokenize",
        "decode",
        "info",
    )
)
"""All that TEI's clients ask for: what a model, or its workload, lacks has TEI's errors."""


class InfoExchange(Exchange):
    """What the one model that is meant is."""

    def __init__(self, kind: Callable[[Described], ModelType], incoming: Incoming) -> None:
        """Read a request: it says nothing.

        Args:
            kind: What the model does, from its description.
            incoming: The request.
        """
        del incoming
        self._kind = kind

    def ask(self) -> Ask:
        """Ask for the description of the only model."""
        return Ask(model=None, items=(DescribeItem(),))

    def body(self, heading: Heading, events: Sequence[ItemEvent], work: Work) -> Raw:
        """Return an `Info`; TEI leaves out what does not apply.

        Raises:
            HeadpondError: The engine failed.
        """
        told = described(events)
        info = Info(
            model_id=told.model,
            model_sha=told.digest,
            model_dtype=told.dtype,
            model_type=self._kind(told),
            max_input_length=told.max_tokens,
            # A text that is longer than a batch goes alone; TEI's clients take this for its bound.
            max_batch_tokens=max(told.max_batch_tokens, told.max_tokens),
            version=version("headpond"),
        )
        content = info.model_dump_json(exclude_none=True).encode()
        return Raw(content=content, media_type="application/json")


def described(events: Sequence[ItemEvent]) -> Described:
    """Return what a model said of itself.

    Raises:
        HeadpondError: It failed.
        TypeError: It said nothing.
    """
    for event in events:
        if isinstance(event, Failed):
            raise event.error
        if isinstance(event, Output) and isinstance(event.payload, Described):
            return event.payload
    raise TypeError("a model describes itself with a Described")
