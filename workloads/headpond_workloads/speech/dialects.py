"""Speech's HTTP routes, each in the dialect that its clients speak."""

from __future__ import annotations

from headpond.dialect import Route
from headpond_workloads.speech.dialect_realtime import RealtimeConversation
from headpond_workloads.speech.dialect_transcription import (
    TranscriptionExchange,
    TranslationExchange,
)
from headpond_workloads.speech.example import EXAMPLE
from headpond_workloads.speech.schema import (
    TRANSCRIPTIONS_PATH,
    TRANSLATIONS_PATH,
    TranscriptEvent,
    Transcription,
    TranscriptionRequest,
    TranslationRequest,
)
from headpond_workloads.speech.schema_realtime import REALTIME_PATH

routes: tuple[Route, ...] = (
    Route.json(
        TRANSCRIPTIONS_PATH,
        "Write down what is said in a file.",
        request=TranscriptionRequest,
        exchange=TranscriptionExchange,
        response=Transcription,
        chunk=TranscriptEvent,
        form=True,
        example={"file": EXAMPLE},
    ),
    Route.json(
        TRANSLATIONS_PATH,
        "Refused: speech is written down in the language that is spoken.",
        request=TranslationRequest,
        exchange=TranslationExchange,
        response=Transcription,
        form=True,
        example={"file": EXAMPLE},
    ),
    Route.socket(
        REALTIME_PATH,
        "Transcribe speech while it is spoken.",
        conversation=RealtimeConversation,
    ),
)
