"""Wire types of tools: what may be called, what must be, and what was."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from headpond_workloads.generation.schema_fields import Flag, JsonObject, Name, NonEmpty, at_most

MAX_TOOLS = 128

ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


FEW = at_most(MAX_TOOLS)


class FunctionParam(BaseModel):
    """A function that the model may ask for."""

    model_config = ConfigDict(frozen=True)

    name: Name
    description: str | None = None
    parameters: JsonObject | None = None
    strict: Flag | None = None


class ToolParam(BaseModel):
    """A tool; only functions can be served."""

    model_config = ConfigDict(frozen=True)

    type: str
    function: FunctionParam | None = None


Tools = Annotated[tuple[ToolParam, ...], Field(fail_fast=True), FEW]
Functions = Annotated[tuple[FunctionParam, ...], Field(fail_fast=True), FEW]


class NamedFunction(BaseModel):
    """A function by its name."""

    model_config = ConfigDict(frozen=True)

    name: NonEmpty


class ToolReference(BaseModel):
    """A tool by its name, which chat wraps and responses do not."""

    model_config = ConfigDict(frozen=True)

    type: str
    name: NonEmpty | None = None
    function: NamedFunction | None = None

    @property
    def called(self) -> str | None:
        """The name, wherever it is."""
        return self.function.name if self.function is not None else self.name


References = Annotated[tuple[ToolReference, ...], Field(fail_fast=True), FEW]


class AllowedTools(BaseModel):
    """Those of the tools that may be called."""

    model_config = ConfigDict(frozen=True)

    mode: Literal["auto", "required"]
    tools: References


class ToolChoiceParam(BaseModel):
    """`none`, `auto`, `required`, one function, or those that are allowed."""

    model_config = ConfigDict(frozen=True)

    type: str
    name: NonEmpty | None = None
    function: NamedFunction | None = None
    allowed_tools: AllowedTools | None = None
    mode: Literal["auto", "required"] | None = None
    tools: References | None = None


def _as_choice(value: object) -> object:
    return ToolChoiceParam(type=value) if isinstance(value, str) else value


def _as_function(value: object) -> object:
    return FunctionChoiceParam(mode=value) if isinstance(value, str) else value


ToolChoiceField = Annotated[
    ToolChoiceParam | None,
    BeforeValidator(_as_choice, json_schema_input_type=str | ToolChoiceParam | None),
]


class FunctionChoiceParam(BaseModel):
    """The older form of a tool choice: `none`, `auto`, or a function by its name."""

    model_config = ConfigDict(frozen=True)

    mode: str | None = None
    name: NonEmpty | None = None


FunctionChoiceField = Annotated[
    FunctionChoiceParam | None,
    BeforeValidator(_as_function, json_schema_input_type=str | FunctionChoiceParam | None),
]


class FunctionCallParam(BaseModel):
    """A call that the model made in an earlier turn."""

    model_config = ConfigDict(frozen=True)

    name: NonEmpty
    arguments: str


class ToolCallParam(BaseModel):
    """The same with the identifier by which its answer refers to it."""

    model_config = ConfigDict(frozen=True)

    id: NonEmpty
    type: str = "function"
    function: FunctionCallParam | None = None


class FunctionCall(BaseModel):
    """The function to call; `arguments` is JSON text."""

    name: str
    arguments: str


class ToolCallMessage(BaseModel):
    """A call that the model asks for."""

    id: str
    type: Literal["function"] = "function"
    function: FunctionCall


class FunctionCallChunk(BaseModel):
    """What a chunk adds to a call: its name once, then arguments."""

    name: str | None = None
    arguments: str | None = None


class ToolCallChunk(BaseModel):
    """The same by the call's place in the turn; `id` and `type` come once."""

    index: int
    id: str | None = None
    type: Literal["function"] | None = None
    function: FunctionCallChunk
