"""The manifest of a bundle: what `bundle.yaml` says, and the digest of all of it."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cached_property
from typing import Annotated, Self

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    StringConstraints,
    ValidationError,
    model_validator,
)

from headpond.errors import BundleError
from headpond.state import DTYPE_BYTES

UNLOCKED = datetime.fromtimestamp(0, UTC)
"""`Manifest.created` of a bundle that was never locked."""

NAME_PATTERN = r"[a-z0-9][a-z0-9._-]{0,63}"
VERSION_PATTERN = r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?"


def _matching(pattern: str, what: str) -> AfterValidator:
    compiled = re.compile(pattern)

    def check(value: str) -> str:
        if not compiled.fullmatch(value):
            raise ValueError(f"{value!r} is no {what}")
        return value

    return AfterValidator(check)


def _finite(value: JsonValue) -> JsonValue:
    if not all(math.isfinite(number) for number in _floats(value)):
        raise ValueError("NaN and infinity have no canonical form; use a finite number")
    return value


def _floats(value: JsonValue) -> Iterator[float]:
    if isinstance(value, float):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _floats(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _floats(item)


def _known_dtype(dtype: str) -> str:
    if dtype not in DTYPE_BYTES:
        raise ValueError(f"dtype {dtype!r} is not known; use one of {', '.join(DTYPE_BYTES)}")
    return dtype


Name = Annotated[
    str, _matching(NAME_PATTERN, "name: use 1 to 64 of a-z, 0-9, '.', '_' and '-', letters first")
]
Version = Annotated[str, _matching(VERSION_PATTERN, "version: write MAJOR.MINOR.PATCH, quoted")]
Symbol = Annotated[str, _matching(r"[a-z][a-z0-9_]*", "symbol: use snake_case")]
Text = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]
Count = Annotated[int, Field(strict=True, ge=0)]
Positive = Annotated[int, Field(strict=True, gt=0)]
Sha256 = Annotated[str, _matching(r"[0-9a-f]{64}", "sha256: use 64 lower-case hex digits")]
Section = dict[str, Annotated[JsonValue, AfterValidator(_finite)]]


class Part(BaseModel):
    """A part of a manifest: immutable, and closed to keys it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Source(Part):
    """One file of a bundle, as its author names it.

    Attributes:
        name: How the input and execution contracts speak of it, e.g. `weights`.
        source: Where it comes from; see `headpond.bundle.sources`.
        bytes: Its exact size, once locked.
        sha256: Its digest, once locked: 64 lower-case hex digits.
    """

    name: Name
    source: Text
    bytes: Positive | None = None
    sha256: Sha256 | None = None


class Artifact(Source):
    """One file of a locked bundle: its size and digest are known."""

    bytes: Positive
    sha256: Sha256


class Execution(Part):
    """How the model is computed.

    Attributes:
        architecture: The model class, in the words of the engine.
        dtype: The dtype the engine computes in.
        options: The workload's own, e.g. the position scheme.
    """

    architecture: Text
    dtype: Annotated[str, AfterValidator(_known_dtype)]
    options: Section = Field(default_factory=dict)


class Fixture(Part):
    """A fixed input and what the engine must make of it.

    Attributes:
        name: What failures call it.
        given: The input, in the workload's own words.
        expect: A value by contract of the record; filled by `headpond bundle lock`.
        tolerance: The largest absolute difference of a float; all else is exact.
    """

    name: Name
    given: Section
    expect: Section = Field(default_factory=dict)
    tolerance: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0


class Draft(Part):
    """What the author of a bundle writes; `headpond bundle lock` makes a `Manifest` of it.

    Attributes:
        name: The bundle's name.
        version: `MAJOR.MINOR.PATCH`, with an optional `-prerelease`.
        workload: The name of the record it binds to.
        summary: One line for people.
        licence: SPDX identifier of the weights' licence.
        created: When it was locked; with a zone.
        artifacts: Every file that takes part.
        model: The integers that the record's symbols bind to.
        input: The input contract (tokenizer, template, preprocessing); the workload's own.
        execution: The execution contract.
        output: The output contract (decoding defaults, labels); the workload's own.
        limits: Bounds by symbol, tighter than the model's own.
        fixtures: What must come out before a replica is ready.
    """

    name: Name
    version: Version
    workload: Symbol
    summary: Text
    licence: Text
    created: AwareDatetime = UNLOCKED
    artifacts: Annotated[tuple[Source, ...], Field(min_length=1)]
    model: dict[Symbol, Count] = Field(default_factory=dict)
    input: Section = Field(default_factory=dict)
    execution: Execution
    output: Section = Field(default_factory=dict)
    limits: dict[Symbol, Positive] = Field(default_factory=dict)
    fixtures: tuple[Fixture, ...] = ()

    @model_validator(mode="after")
    def _unique_names(self) -> Self:
        for what, names in (
            ("artifact", [artifact.name for artifact in self.artifacts]),
            ("fixture", [fixture.name for fixture in self.fixtures]),
        ):
            repeated = sorted({name for name in names if names.count(name) > 1})
            if repeated:
                raise ValueError(f"{what} {repeated[0]!r} is declared twice; keep one")
        return self

    @classmethod
    def parse(cls, document: object) -> Self:
        """Check a document, as YAML or JSON hold it.

        Raises:
            BundleError: Lists every field at fault; `param` is the first.
        """
        try:
            return cls.model_validate(document)
        except ValidationError as error:
            raise _invalid(error) from None


class Manifest(Draft):
    """The versioned, executable contract for one model."""

    artifacts: Annotated[tuple[Artifact, ...], Field(min_length=1)]

    def canonical(self) -> bytes:
        """Return the manifest as JSON with sorted keys, no spaces, in UTF-8."""
        document = self.model_dump(mode="json")
        text = json.dumps(
            document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
        )
        return text.encode()

    @cached_property
    def digest(self) -> str:
        """The sha256 of the canonical form, in hex: it covers everything above."""
        return hashlib.sha256(self.canonical()).hexdigest()

    @property
    def ref(self) -> str:
        """The value of `x-headpond-bundle`: `name@version+digest12`."""
        return f"{self.name}@{self.version}+{self.digest[:12]}"

    @property
    def names(self) -> frozenset[str]:
        """The names under which exactly this bundle can be asked for."""
        return names_of(self.ref)

    @property
    def created_s(self) -> int:
        """Unix time at which the bundle was locked; 0 when it never was."""
        return int(self.created.timestamp())


def _invalid(error: ValidationError) -> BundleError:
    """Turn what pydantic found into one error that names every field."""
    problems = [
        (".".join(str(part) for part in found["loc"]), _advice(found["type"], found["msg"]))
        for found in error.errors(include_url=False, include_input=False)
    ]
    listed = "; ".join(f"{field or 'bundle'}: {message}" for field, message in problems)
    unlocked = any(field.endswith((".bytes", ".sha256")) for field, _ in problems)
    hint = "; `headpond bundle lock` fills sizes and hashes" if unlocked else ""
    return BundleError(f"the manifest is not valid: {listed}{hint}", param=problems[0][0] or None)


def _advice(kind: str, message: str) -> str:
    if kind == "extra_forbidden":
        return "no such key"
    return message.removeprefix("Value error, ")


def names_of(ref: str) -> frozenset[str]:
    """Return `name`, `name@version` and the whole `ref` of a bundle."""
    versioned = ref.rpartition("+")[0]
    return frozenset({versioned.partition("@")[0], versioned, ref})
