"""What the generation engine is asked for and what it gives back, in no dialect."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NewType

from headpond.engine import Json

FinishReason = Literal["stop", "length", "tool_calls"]

ToolChoice = Literal["auto", "none", "required"]
"""Whether the model may, must not, or must call a tool."""

PromptEnd = Literal["answer", "turn", "inside"]
"""Where a conversation ends as the model reads it: where the answer begins, behind the last
turn, or inside the last turn, which the model then goes on with."""

ToolName = NewType("ToolName", str)
"""The one tool that must be called, by name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tool:
    """A function that the model may ask the caller to run.

    Attributes:
        parameters: JSON schema of its arguments, an object.
        strict: Whether the arguments are held to the schema while they are generated.
    """

    name: str
    description: str | None = None
    parameters: Mapping[str, Json] = field(default_factory=dict)
    strict: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolCall:
    """A call the model made in an earlier turn; `arguments` is JSON text."""

    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Constraint:
    """What the whole output must be.

    Attributes:
        kind: `json_object` any JSON object; `json_schema` JSON that its schema allows;
            `regex` and `lark` (a grammar) what they match; `choice` one of several texts.
        source: The schema as JSON text, the expression, the grammar, or the JSON list of
            choices; empty for `json_object`.
        param: The wire field it came from, for errors.
    """

    kind: Literal["json_object", "json_schema", "regex", "choice", "lark"]
    source: str = ""
    param: str = "response_format"


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """One turn of a conversation, as templates see it."""

    role: str
    content: str
    name: str | None = None
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Prompt:
    """Exactly one of a conversation, a text, or token IDs.

    Attributes:
        tools: What a conversation's template shows as callable.
        documents: What a conversation's template shows as sources.
        template_options: Further variables of the template, e.g. `enable_thinking`.
        end: Where a conversation ends.
        add_special_tokens: Whether the tokenizer adds its own around a text.
        most_tokens: Keep this many of the last tokens, or as many as leave room for the
            output; None keeps all.
        param: The wire field it came from, for errors: `messages`, `prompt`.
    """

    messages: tuple[Message, ...] | None = None
    text: str | None = None
    token_ids: tuple[int, ...] | None = None
    tools: tuple[Tool, ...] = ()
    documents: tuple[Mapping[str, Json], ...] = ()
    template_options: Mapping[str, Json] = field(default_factory=dict)
    end: PromptEnd = "answer"
    add_special_tokens: bool = True
    most_tokens: int | Literal["what fits"] | None = None
    param: str = "prompt"


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampling:
    """How the next token is chosen from the logits.

    Attributes:
        temperature: 0 is greedy: the token with the highest logit.
        top_p: Keep the smallest set of tokens whose probabilities reach this.
        top_k: Keep this many tokens; 0 keeps all.
        min_p: Keep tokens at least this likely, relative to the likeliest.
        presence_penalty: Subtracted from the logit of every token already generated.
        frequency_penalty: The same, times how often it was generated.
        repetition_penalty: Divides (or multiplies) logits of tokens of prompt and output.
        logit_bias: Added to the logits of these token IDs.
        seed: Makes sampling repeatable, whatever else is in the batch; None draws one.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenRules:
    """Which tokens may come at all, whatever their logits.

    Attributes:
        min_tokens: No token that ends the output comes before so many others.
        allowed_ids: The only tokens that may come; none for all of them.
        bad_words: Texts whose tokens must not follow each other, alone or behind a space.
    """

    min_tokens: int = 0
    allowed_ids: tuple[int, ...] = ()
    bad_words: tuple[str, ...] = ()


NO_RULES = TokenRules()


@dataclass(frozen=True, kw_only=True, slots=True)
class GenerationItem:
    """One sequence to generate.

    Attributes:
        prompt: What to go on from.
        max_output_tokens: The most tokens to generate; None means what the context leaves.
        sampling: How tokens are chosen.
        rules: Which tokens may come.
        stop: Strings that end the text; none of them, in part or whole, is given out.
        stop_ids: Tokens that end the text, which is without them.
        include_stop: Give out what ended the text as well.
        ignore_eos: Go on past the end-of-sequence token (benchmarks).
        show_control: Spell control tokens out in the text.
        logprobs: None for none, else how many alternatives to give beside each token (0-20).
        prompt_logprobs: The same for the tokens of the prompt, given out before the output.
        echo: Give the prompt's own text and tokens out before the output.
        constraint: What the output must be, or None.
        tool_choice: One of `ToolChoice`, or the name of the tool that must be called.
        parallel_tool_calls: Whether one turn may call several tools.
        adapter: The LoRA adapter by name, or None for the model as it is.
        cache_salt: Only requests of the same one share cached prefixes.
        max_tokens_param: The wire field that set `max_output_tokens`, for errors.
    """

    prompt: Prompt
    max_output_tokens: int | None = None
    sampling: Sampling = Sampling()
    rules: TokenRules = NO_RULES
    stop: tuple[str, ...] = ()
    stop_ids: tuple[int, ...] = ()
    include_stop: bool = False
    ignore_eos: bool = False
    show_control: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    echo: bool = False
    constraint: Constraint | None = None
    tool_choice: ToolChoice | ToolName = "auto"
    parallel_tool_calls: bool = True
    adapter: str | None = None
    cache_salt: str = ""
    max_tokens_param: str = "max_tokens"

    @property
    def may_wait(self) -> bool:
        """Whether there may be a form to be tried first."""
        return self.constraint is not None or bool(self.prompt.tools)


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenizeItem:
    """A prompt whose token IDs are asked for, and nothing generated."""

    prompt: Prompt


@dataclass(frozen=True, kw_only=True, slots=True)
class DetokenizeItem:
    """Token IDs whose text is asked for; control tokens are spelled out."""

    token_ids: tuple[int, ...]
    param: str = "tokens"


@dataclass(frozen=True, kw_only=True, slots=True)
class Tokens:
    """The answer to a tokenize or a detokenize item.

    Attributes:
        token_ids: The tokens.
        pieces: Each token's own text.
        text: What they spell together.
        context_tokens: The most tokens the model takes.
    """

    token_ids: tuple[int, ...]
    pieces: tuple[str, ...]
    text: str
    context_tokens: int


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token and its log-probability before temperature and filters.

    Attributes:
        token: Its text; U+FFFD stands for bytes that are no character alone.
        token_id: Its ID.
        logprob: Natural log of its probability; None for a prompt's first token only.
        raw: Its exact bytes; joined over tokens they are the exact text. None for a control
            token, unless it is one that the prompt's text spells out.
    """

    token: str
    token_id: int
    logprob: float | None
    raw: bytes


@dataclass(frozen=True, slots=True)
class ChosenToken:
    """A generated token with the likeliest alternatives, most likely first."""

    chosen: TokenLogprob
    top: tuple[TokenLogprob, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenUsage:
    """What one sequence came to, in tokens."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    reasoning_tokens: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolCallDelta:
    """What a step added to a call of a tool.

    Attributes:
        index: Which call of this turn, from 0.
        call_id: Set on the first delta of a call only.
        name: Set on the first delta of a call only.
        arguments: JSON text that goes on from the call's earlier deltas.
    """

    index: int
    call_id: str | None = None
    name: str | None = None
    arguments: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class TextDelta:
    """What one step added to a sequence; the last one has a reason and the usage.

    Attributes:
        text: Whole characters only, and nothing that may still become a stop string.
        reasoning: Text the model marked as its reasoning, which is no part of `text`.
        tool_calls: What the step added to calls of tools, which are no part of `text`.
        token_ids: The tokens generated in this step; more than one after accepted drafts.
        logprobs: One entry for each token in `token_ids`, when asked for.
        is_prompt: Whether text, tokens and logprobs are the prompt's own, asked for by
            `echo` or `prompt_logprobs`; such deltas come first, with text only for `echo`.
        finish_reason: Set on the last delta only.
        usage: Set on the last delta only.
    """

    text: str
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[ChosenToken, ...] = ()
    finish_reason: FinishReason | None = None
    usage: TokenUsage | None = None
    reasoning: str = ""
    tool_calls: tuple[ToolCallDelta, ...] = ()
    is_prompt: bool = False

    def __reduce__(self) -> tuple[Callable[..., TextDelta], tuple[object, ...]]:
        """Cross a lane at a third of the cost of a frozen dataclass's own pickling."""
        fields = (self.text, self.token_ids, self.logprobs, self.finish_reason, self.usage)
        return (_delta, (*fields, self.reasoning, self.tool_calls, self.is_prompt))


def _delta(
    text: str,
    token_ids: tuple[int, ...],
    logprobs: tuple[ChosenToken, ...],
    finish_reason: FinishReason | None,
    usage: TokenUsage | None,
    reasoning: str,
    tool_calls: tuple[ToolCallDelta, ...],
    is_prompt: bool,
) -> TextDelta:
    return TextDelta(
        text=text,
        token_ids=token_ids,
        logprobs=logprobs,
        finish_reason=finish_reason,
        usage=usage,
        reasoning=reasoning,
        tool_calls=tool_calls,
        is_prompt=is_prompt,
    )
