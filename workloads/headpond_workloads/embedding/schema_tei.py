"""Wire types of TEI's `/embed`, `/embed_all` and `/similarity`."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, RootModel

from headpond_workloads.embedding.schema_texts import Dimensions, Texts
from headpond_workloads.encoders.schema_fields import Flag, NonEmpty, TextList
from headpond_workloads.encoders.schema_tei import Direction, TeiRequest

EMBED_PATH = "/embed"
EMBED_ALL_PATH = "/embed_all"
SIMILARITY_PATH = "/similarity"


class TeiEmbedRequest(TeiRequest):
    """Texts, or token IDs, whose vectors, or whose tokens' vectors, are asked for."""

    inputs: Texts
    prompt_name: NonEmpty | None = None
    normalize: Flag | None = None
    dimensions: Dimensions | None = None


class SimilarityInput(BaseModel):
    """A text, and those it is compared with."""

    model_config = ConfigDict(frozen=True)

    source_sentence: str
    sentences: TextList


class SimilarityParameters(BaseModel):
    """How the texts of a comparison are embedded."""

    model_config = ConfigDict(frozen=True)

    truncate: Flag | None = None
    truncation_direction: Direction | None = None
    prompt_name: NonEmpty | None = None


class SimilarityRequest(BaseModel):
    """Texts whose likeness to another is asked for."""

    model_config = ConfigDict(frozen=True)

    model: NonEmpty | None = None
    inputs: SimilarityInput
    parameters: SimilarityParameters | None = None


class TeiEmbeddings(RootModel[list[list[float]]]):
    """A vector for each text."""


class TeiTokenEmbeddings(RootModel[list[list[list[float]]]]):
    """For each text a vector for each of its tokens."""


class Similarities(RootModel[list[float]]):
    """The cosine of each sentence with the source."""
