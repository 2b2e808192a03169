"""A bundle's fixtures: short recordings, and what is said in them, and when."""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import Field

from headpond.bundle.section import Section, read_section
from headpond.engine import Json
from headpond.errors import BundleError
from headpond_workloads.speech.items import Final, Listening, Reading, Recording


class _Given(Section):
    audio: Annotated[str, Field(min_length=1)]
    language: str | None = None


def recording_of_fixture(given: Mapping[str, Json]) -> Recording:
    """Return the recording, in base64 as `audio`, and the optional `language` of a fixture.

    Raises:
        BundleError: They are not there, or of a wrong kind.
    """
    fixture = read_section(_Given, given, "fixtures.given")
    try:
        content = b64decode(fixture.audio, validate=True)
    except binascii.Error:
        raise BundleError("the recording is not base64", param="fixtures.given.audio") from None
    return Recording(content, None, Listening(language=fixture.language, words=True))


def observation(readings: Sequence[Reading]) -> Mapping[str, Json]:
    """Return what the record's contracts compare, utterance by utterance; times in seconds."""
    finals = [reading for reading in readings if isinstance(reading, Final)]
    return {
        "speech": [[final.start_ms / 1000, final.end_ms / 1000] for final in finals],
        "text": [final.text for final in finals],
        "words": [[word.text, word.start_ms / 1000] for final in finals for word in final.words],
    }
