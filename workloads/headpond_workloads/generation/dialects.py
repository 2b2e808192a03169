"""Generation's HTTP routes, each in the dialect that its clients speak."""

from __future__ import annotations

from headpond.dialect import Route
from headpond_workloads.generation.dialect_chat import ChatExchange
from headpond_workloads.generation.dialect_completions import CompletionExchange
from headpond_workloads.generation.schema_chat import (
    CHAT_PATH,
    ChatCompletion,
    ChatCompletionChunk,
    ChatCompletionRequest,
)
from headpond_workloads.generation.schema_completions import (
    COMPLETIONS_PATH,
    Completion,
    CompletionRequest,
)

routes: tuple[Route, ...] = (
    Route.json(
        CHAT_PATH,
        "Go on with a conversation (OpenAI chat completions).",
        request=ChatCompletionRequest,
        exchange=ChatExchange,
        response=ChatCompletion,
        chunk=ChatCompletionChunk,
        example={
            "messages": [{"role": "user", "content": "What is the capital of France?"}],
            "max_completion_tokens": 32,
            "temperature": 0,
        },
    ),
    Route.json(
        COMPLETIONS_PATH,
        "Go on with a text (OpenAI completions, legacy).",
        request=CompletionRequest,
        exchange=CompletionExchange,
        response=Completion,
        chunk=Completion,
        example={"prompt": "A headpond is", "max_tokens": 32, "temperature": 0},
    ),
)
