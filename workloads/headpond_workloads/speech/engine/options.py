"""What a bundle's `input`, `execution.options` and `output` may say about speech."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from headpond.bundle.hashing import file_sha256
from headpond.bundle.manifest import Manifest, Positive, Sha256, Text
from headpond.bundle.section import Section, read_section
from headpond.bundle.sources import Local, resolve
from headpond.errors import BundleError

_CHECKPOINT = "execution.options.checkpoint"


class Checkpoint(Section):
    """Weights in CTranslate2's binary form, which no suffix tells from a pickle.

    They are no then; this one file, with exactly this digest, is read by our own
    reader of tensors.

    Attributes:
        source: Where it lies, as of an artifact; must be on this machine.
        bytes: Its exact size.
        sha256: Its digest.
    """

    source: Text
    bytes: Positive
    sha256: Sha256

    def checked(self, root: Path) -> Path:
        """Return the file.

        Args:
            root: The bundle's folder.

        Raises:
            BundleError: It is absent, or differs from what was pinned.
        """
        place = resolve(self.source, root, param=f"{_CHECKPOINT}.source")
        if not isinstance(place, Local):
            raise BundleError("a checkpoint must lie on this machine", param=_CHECKPOINT)
        if place.path.stat().st_size != self.bytes:
            raise BundleError("the checkpoint has another size than pinned", param=_CHECKPOINT)
        if file_sha256(place.path) != self.sha256:
            raise BundleError("the checkpoint has another digest than pinned", param=_CHECKPOINT)
        return place.path


class Inputs(Section):
    """What the model hears.

    Attributes:
        sample_rate_hz: The rate of its samples.
        tokenizer: The artifact with its vocabulary.
        voice: The artifact that tells speech from other sound: silero's network.
        config: The artifact that says what the weights don't: heads, tokens never written.
    """

    sample_rate_hz: Positive
    tokenizer: Text
    voice: Text
    config: Text | None = None


class Options(Section):
    """How the engine computes.

    Attributes:
        kind: Whether the model hears each sample once, or an utterance again as it grows.
        checkpoint: Weights that are not an artifact; else the artifact `weights`.
        hear_every_ms: A `chunked` model hears an utterance again after so much more speech,
        hear_slower: and not before it has grown by this share.
        step_ms: Speech that is heard again in one step, at most, while utterances go on.
        longest_ms: The longest utterance of a `streaming` model.
        tail_ms: Silence it hears after each, so that the last word comes out.
    """

    kind: Literal["streaming", "chunked"]
    checkpoint: Checkpoint | None = None
    hear_every_ms: Annotated[int, Field(ge=100)] = 640
    hear_slower: Annotated[float, Field(ge=0.0, le=1.0)] = 0.1
    step_ms: Annotated[int, Field(ge=1000)] = 30_000
    longest_ms: Annotated[int, Field(ge=2000)] = 60_000
    tail_ms: Annotated[int, Field(ge=0, le=2000)] = 320


class Outputs(Section):
    """What the model writes.

    Attributes:
        language: What is spoken where the caller does not say, as ISO-639-1 has it.
    """

    language: Annotated[str, Field(pattern="^[a-z]{2,3}$")] = "en"


def inputs_of(manifest: Manifest) -> Inputs:
    """Read a bundle's input contract.

    Raises:
        BundleError: Names the first field that is not valid.
    """
    return read_section(Inputs, manifest.input, "input")


def options_of(manifest: Manifest) -> Options:
    """Read a bundle's options.

    Raises:
        BundleError: Names the first option that is not valid.
    """
    return read_section(Options, manifest.execution.options, "execution.options")


def outputs_of(manifest: Manifest) -> Outputs:
    """Read a bundle's output contract.

    Raises:
        BundleError: Names the first field that is not valid.
    """
    return read_section(Outputs, manifest.output, "output")
