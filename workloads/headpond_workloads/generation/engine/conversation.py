"""What a bundle says of its model's ways: how it calls tools, and how it marks reasoning."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from headpond.bundle.manifest import Manifest
from headpond.errors import BundleError, InvalidRequest
from headpond_workloads.generation.engine import tool_syntax
from headpond_workloads.generation.engine.grammar import Grammars, Matcher
from headpond_workloads.generation.engine.reader import Marks, Reader
from headpond_workloads.generation.items import Constraint, GenerationItem, Prompt


class _Reasoning(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    begin: str
    end: str
    starts_inside: bool = False


class _Output(BaseModel):
    model_config = ConfigDict(frozen=True)

    tool_syntax: Literal["hermes"] | None = None
    reasoning: _Reasoning | None = None


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """A model's ways.

    Attributes:
        grammars: Hold outputs to what they must be.
        calls_tools: Whether it was trained to call tools in a syntax that is known.
        reasoning: How it marks reasoning, or None.
    """

    grammars: Grammars
    calls_tools: bool = False
    reasoning: Marks | None = None

    @classmethod
    def of(cls, manifest: Manifest, grammars: Grammars) -> Conversation:
        """Read a bundle's output section.

        Raises:
            BundleError: Names what is not valid.
        """
        try:
            output = _Output.model_validate(manifest.output)
        except ValidationError as error:
            first = error.errors()[0]
            path = ".".join(["output", *map(str, first["loc"])])
            raise BundleError(f"{path}: {first['msg']}", param=path) from None
        declared = output.reasoning
        marks = None if declared is None else Marks(**declared.model_dump())
        return cls(grammars=grammars, calls_tools=output.tool_syntax is not None, reasoning=marks)

    def matcher(self, item: GenerationItem) -> Matcher | None:
        """Return what holds an item's output to its form, or None when it may be anything.

        Raises:
            InvalidRequest: The form is not valid, or tools are asked for that can't be called.
        """
        constraint = self._constraint(item)
        return None if constraint is None else self.grammars.matcher(constraint)

    def _constraint(self, item: GenerationItem) -> Constraint | None:
        if item.prompt.tools and item.tool_choice != "none" and not self.calls_tools:
            raise InvalidRequest("this model can't call tools", param="tools")
        if not item.prompt.tools or item.tool_choice in {"auto", "none"}:
            return item.constraint
        if item.constraint is not None:
            raise InvalidRequest(
                "an output that must call tools can't be held to another form",
                param=item.constraint.param,
            )
        name = None if item.tool_choice == "required" else item.tool_choice
        return tool_syntax.must_call(item.prompt.tools, name, parallel=item.parallel_tool_calls)

    def prompt(self, item: GenerationItem) -> Prompt:
        """Return what the model reads: of tools only when it may call them."""
        return replace(item.prompt, tools=()) if item.tool_choice == "none" else item.prompt

    def reader(self, item: GenerationItem) -> Reader | None:
        """Return what tells the parts of an item's output; None where all is said."""
        tools = bool(item.prompt.tools) and item.tool_choice != "none"
        marks = self.reasoning if item.prompt.messages is not None else None
        return Reader(tools=tools, reasoning=marks) if tools or marks else None
