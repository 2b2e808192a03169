"""Wire types of `POST /tokenize` and `POST /detokenize`, in vLLM's shapes."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from headpond_workloads.generation.schema_chat import Messages
from headpond_workloads.generation.schema_fields import Flag, JsonObject, NonEmpty, TokenIds
from headpond_workloads.generation.schema_tools import Tools

TOKENIZE_PATH = "/tokenize"
DETOKENIZE_PATH = "/detokenize"


class TokenizeRequest(BaseModel):
    """A text, or a conversation, whose tokens are asked for.

    Unknown fields are kept, for those that would change the tokens and are to be refused.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    model: NonEmpty
    prompt: str | None = None
    messages: Messages | None = None
    tools: Tools | None = None
    add_special_tokens: Flag | None = Field(
        default=None,
        description="Whether the tokenizer adds its own to a prompt (true).",
    )
    add_generation_prompt: Flag | None = Field(
        default=None, description="Whether a conversation ends where the answer begins (true)."
    )
    continue_final_message: Flag | None = Field(
        default=None, description="Whether a conversation ends within its last message."
    )
    chat_template_kwargs: JsonObject | None = None
    return_token_strs: Flag | None = None


class Tokenization(BaseModel):
    """The tokens of a prompt."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None = None


class DetokenizeRequest(BaseModel):
    """Tokens whose text is asked for."""

    model_config = ConfigDict(frozen=True)

    model: NonEmpty
    tokens: TokenIds


class Detokenization(BaseModel):
    """The text of some tokens."""

    prompt: str
