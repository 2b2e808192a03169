"""What the routes of TEI have in common: the form of their errors, and `GET /info`."""

from __future__ import annotations

from importlib.metadata import version

from headpond.dialect import ErrorAnswer, Raw, Unserved
from headpond.errors import (
    DeadlineExceeded,
    HeadpondError,
    InvalidRequest,
    NotReady,
    Overloaded,
    PayloadTooLarge,
    RateLimited,
)
from headpond_workloads.encoders.errors import EmptyInput, TooManyInputs
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


def info_answer(
    *,
    model: str,
    digest: str,
    dtype: str,
    kind: ModelType,
    max_tokens: int,
    max_batch_tokens: int,
) -> Raw:
    """Return the answer of `GET /info`; TEI leaves out what does not apply."""
    info = Info(
        model_id=model,
        model_sha=digest,
        model_dtype=dtype,
        model_type=kind,
        max_input_length=max_tokens,
        # A text that is longer than a batch goes alone; TEI's clients take this for its bound.
        max_batch_tokens=max(max_batch_tokens, max_tokens),
        version=version("headpond"),
    )
    content = info.model_dump_json(exclude_none=True).encode()
    return Raw(content=content, media_type="application/json")
