"""What a bundle says of its model's ways: how it calls tools, and how it marks reasoning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from headpond.bundle.manifest import Manifest
from headpond.errors import BundleError, InvalidRequest
from headpond_workloads.generation.engine.form import Form, grammar_of, parameters_of
from headpond_workloads.generation.engine.grammar import Grammars, Matcher
from headpond_workloads.generation.engine.reader import Marks, Reader
from headpond_workloads.generation.engine.tool_syntax import SYNTAXES, ToolSyntax
from headpond_workloads.generation.engine.tool_words import TOOLS, ToolWords
from headpond_workloads.generation.items import GenerationItem, Prompt, Tool


class _Reasoning(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    begin: str = Field(min_length=1)
    end: str = Field(min_length=1)
    starts_inside: bool = False


class _Output(BaseModel):
    model_config = ConfigDict(frozen=True)

    tool_syntax: Literal["hermes", "smollm", "mistral", "llama3_json"] | None = None
    reasoning: _Reasoning | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Ways:
    """A model's ways, as its bundle declares them.

    Attributes:
        syntax: How it calls tools; None when it can't, or not in a syntax that is known.
        reasoning: How it marks reasoning, or None.
        tool_template: What tells it of tools, where its chat template doesn't; None takes
            plain words.
    """

    syntax: ToolSyntax | None = None
    reasoning: Marks | None = None
    tool_template: str | None = None

    @classmethod
    def of(cls, manifest: Manifest) -> Ways:
        """Read a bundle's output section, and `input.tool_template`.

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
        template = manifest.input.get("tool_template")
        if template is not None and not (isinstance(template, str) and TOOLS in template):
            raise BundleError(
                f"tool_template must be a text with {TOOLS} in it", param="input.tool_template"
            )
        return cls(
            syntax=SYNTAXES[output.tool_syntax] if output.tool_syntax else None,
            reasoning=None if declared is None else Marks(**declared.model_dump()),
            tool_template=template,
        )

    @property
    def words(self) -> ToolWords | None:
        """How to tell it of tools in words, when it can call any."""
        if self.syntax is None:
            return None
        return ToolWords(syntax=self.syntax, instructions=self.tool_template)


class Conversation:
    """What a model's ways make of an item: what it reads, must write, and is read by."""

    def __init__(self, ways: Ways, grammars: Grammars) -> None:
        """Hold outputs by `grammars` to what they must be."""
        self._ways = ways
        self._grammars = grammars

    def prompt(self, item: GenerationItem) -> Prompt:
        """Return what the model reads: of tools only when it may call them.

        Raises:
            InvalidRequest: There are tools, and the model can't call any.
        """
        if not item.prompt.tools:
            return item.prompt
        if item.tool_choice == "none":
            return replace(item.prompt, tools=())
        if self._ways.syntax is None:
            raise InvalidRequest(
                "this model can't call tools: its bundle declares no tool syntax", param="tools"
            )
        return item.prompt

    def reader(self, item: GenerationItem, spelled: str) -> Reader | None:
        """Return what tells the parts of an item's output; None where all is said.

        Args:
            item: What is asked for.
            spelled: How the prompt ends.
        """
        syntax = self._ways.syntax if self._tools(item) else None
        marks = self._marks(item, spelled)
        if syntax is None and marks is None:
            return None
        single = not item.parallel_tool_calls
        return Reader(
            syntax=syntax,
            reasoning=marks,
            most_calls=1 if single else None,
            exact=item.constraint is not None,
        )

    def matcher(self, item: GenerationItem, spelled: str, tenant: str) -> Matcher | None:
        """Return what holds an item's output to its form, or None when it may be anything.

        Args:
            item: What is asked for.
            spelled: How the prompt ends.
            tenant: Who asks for it.

        Raises:
            InvalidRequest: The form is not valid; names the field.
            Overloaded: It is new, and too many others are.
        """
        tools = self._tools(item)
        must_call = bool(tools) and item.tool_choice != "auto"
        strict = item.constraint is None and any(tool.strict for tool in tools)
        if item.constraint is None and not must_call and not strict:
            return None
        form = Form(self._grammars.token)
        marks = self._marks(item, spelled)
        if marks is not None:
            form.add_reasoning(marks, inside=marks.starts_inside)
        self._add_answers(form, item)
        if item.constraint is not None and not must_call:
            return self._grammars.matcher(form.whole(), item.constraint.param, tenant)
        return self._holding(form, tools, tenant)

    def _add_answers(self, form: Form, item: GenerationItem) -> None:
        tools, syntax = self._tools(item), self._ways.syntax
        must_call = bool(tools) and item.tool_choice != "auto"
        if tools and syntax is not None:
            several = item.parallel_tool_calls and not syntax.single
            if must_call and item.tool_choice != "required":
                named = [tool for tool in tools if tool.name == item.tool_choice]
                form.add_calls(syntax, named, several=False)
            elif must_call or item.constraint is not None:
                form.add_calls(syntax, tools, several=several)
            else:
                form.add_text_with_calls(syntax, tools, several=several)
        if item.constraint is not None and not must_call:
            form.add_body(grammar_of(item.constraint))

    def _holding(self, form: Form, tools: Sequence[Tool], tenant: str) -> Matcher:
        """Compile a form of calls; of an error, find the tool that it is about."""
        try:
            return self._grammars.matcher(form.whole(), "tools", tenant)
        except InvalidRequest as error:
            for tool in tools:
                alone = Form(self._grammars.token)
                alone.add_body(parameters_of(tool))
                try:
                    self._grammars.matcher(alone.whole(), "tools", tenant)
                except InvalidRequest as reason:
                    raise InvalidRequest(
                        f"the parameters of {tool.name!r}: {reason}", param="tools"
                    ) from None
            raise error from None

    def _tools(self, item: GenerationItem) -> Sequence[Tool]:
        return () if item.tool_choice == "none" else item.prompt.tools

    def _marks(self, item: GenerationItem, spelled: str) -> Marks | None:
        """Return how an item's output marks reasoning; a template may begin it already."""
        marks = self._ways.reasoning
        if marks is None or item.prompt.messages is None:
            return None
        inside = spelled.rstrip().endswith(marks.begin)
        return replace(marks, starts_inside=True) if inside else marks
