"""Wire types of TEI's `/rerank` and `/predict`."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Discriminator, Field, RootModel, Tag

from headpond_workloads.encoders.schema_fields import Flag, TextList
from headpond_workloads.encoders.schema_tei import TeiRequest

RERANK_PATH = "/rerank"
PREDICT_PATH = "/predict"


class TeiRerankRequest(TeiRequest):
    """Texts, and the query by which they are ranked."""

    query: str
    texts: TextList
    raw_scores: Flag | None = None
    return_text: Flag | None = None


class Rank(BaseModel):
    """A text by its index in the request, and how well it answers the query."""

    index: int
    text: str | None = None
    score: float


class TeiRanking(RootModel[list[Rank]]):
    """The best text first."""


Sequence = Annotated[tuple[str, ...], Field(fail_fast=True, max_length=2)]
"""A text, or a pair of texts, that is classified."""


def _form(value: object) -> str | None:
    if isinstance(value, str):
        return "text"
    if isinstance(value, list | tuple):
        return "batch" if value and isinstance(value[0], list | tuple) else "pair"
    return None


Sequences = Annotated[
    Annotated[str, Tag("text")]
    | Annotated[Sequence, Tag("pair")]
    | Annotated[tuple[Sequence, ...], Field(fail_fast=True), Tag("batch")],
    Discriminator(
        _form,
        custom_error_type="sequences",
        custom_error_message="must be a text, a pair of texts, or an array of arrays of one or two",
    ),
]
"""`"a"`, the pair `["a", "b"]`, or a batch: `[["a"], ["a", "b"]]`."""


class PredictRequest(TeiRequest):
    """Texts, or pairs of texts, that are classified."""

    inputs: Sequences
    raw_scores: Flag | None = None


class Prediction(BaseModel):
    """How well a label fits."""

    score: float
    label: str


class Predictions(RootModel[list[Prediction] | list[list[Prediction]]]):
    """The best label first; of a batch a list for each sequence."""
