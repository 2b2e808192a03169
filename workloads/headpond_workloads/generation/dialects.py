"""Generation's HTTP routes, each in the dialect that its clients speak."""

from __future__ import annotations

from headpond.dialect import Route
from headpond_workloads.generation.dialect_chat import ChatExchange
from headpond_workloads.generation.dialect_completions import CompletionExchange
from headpond_workloads.generation.dialect_responses import ResponseExchange
from headpond_workloads.generation.dialect_tokenize import DetokenizeExchange, TokenizeExchange
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
from headpond_workloads.generation.schema_responses import (
    RESPONSES_PATH,
    Response,
    ResponseRequest,
)
from headpond_workloads.generation.schema_responses_events import ResponseEvent
from headpond_workloads.generation.schema_tokenize import (
    DETOKENIZE_PATH,
    TOKENIZE_PATH,
    Detokenization,
    DetokenizeRequest,
    Tokenization,
    TokenizeRequest,
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
    Route.json(
        RESPONSES_PATH,
        "Answer an input (OpenAI responses, for text; nothing is stored).",
        request=ResponseRequest,
        exchange=ResponseExchange,
        response=Response,
        chunk=ResponseEvent,
        example={
            "input": "What is the capital of France?",
            "max_output_tokens": 32,
            "temperature": 0,
        },
    ),
    Route.json(
        TOKENIZE_PATH,
        "Show the tokens of a prompt or a conversation.",
        request=TokenizeRequest,
        exchange=TokenizeExchange,
        response=Tokenization,
        example={"prompt": "A headpond is", "return_token_strs": True},
    ),
    Route.json(
        DETOKENIZE_PATH,
        "Show the text of tokens.",
        request=DetokenizeRequest,
        exchange=DetokenizeExchange,
        response=Detokenization,
        example={"tokens": [1, 2, 3]},
    ),
)
