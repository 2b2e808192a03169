"""From what is asked of an output to one grammar for all of it, in Lark."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from llguidance import LLMatcher

from headpond.engine import Json
from headpond.errors import InvalidRequest
from headpond_workloads.generation.engine.key_counts import check_counts
from headpond_workloads.generation.engine.reader import Marks
from headpond_workloads.generation.engine.tool_syntax import ToolSyntax
from headpond_workloads.generation.items import Constraint, Tool

_JSON_OPTIONS: dict[str, Json] = {
    # `oneOf` of schemas that may overlap is held as `anyOf`.
    "coerce_one_of": True,
    # A model that is unsure may write white space for ever.
    "whitespace_pattern": r"[ \n\r\t]{1,24}",
}
_TEXT = "TEXT: /(?s:.*)/"

Spelling = Callable[[str], str]
"""Returns a text in Lark; `Grammars.token`."""


def grammar_of(constraint: Constraint) -> str:
    """Return the grammar of a constraint.

    Raises:
        InvalidRequest: It is no valid JSON where it has to be, or a schema that can't be held;
            names the field.
    """
    source = constraint.source
    match constraint.kind:
        case "json_object":
            return f"start: %json {_schema({'type': 'object'})}"
        case "json_schema":
            schema = _loaded(constraint)
            check_counts(schema, constraint.param)
            return f"start: %json {_schema(schema)}"
        case "regex":
            return _lark_of_regex(source)
        case "choice":
            return f"start: {' | '.join(map(_quoted, _choices(constraint)))}"
        case "lark":
            return source


def parameters_of(tool: Tool) -> str:
    """Return the grammar of a tool's arguments alone.

    Raises:
        InvalidRequest: A strict tool's can't be held; names `tools`.
    """
    return f"start: {_parameters(tool)}"


class Form:
    """The grammar of an output: calls of tools, a form of its text, and reasoning before.

    Say what it is made of, then take `whole`.
    """

    def __init__(self, spelling: Spelling) -> None:
        """Start with an output that can be nothing."""
        self._spelling = spelling
        self._rules: list[str] = []
        self._answers: list[str] = []
        self._body: str | None = None
        self._before = ""

    def add_body(self, grammar: str) -> None:
        """Let the output be what `grammar` says."""
        self._body = grammar
        self._answers.append("@body")

    def add_calls(self, syntax: ToolSyntax, tools: Sequence[Tool], *, several: bool) -> None:
        """Let the output be calls of tools."""
        block = self._block(syntax, tools, several=several)
        more = ' ("\\n" block)*' if several and not syntax.lists and not syntax.bare else ""
        begin = "" if syntax.bare else self._begin(syntax)
        self._rules.append(f"block: {begin} {block}")
        self._answers.append(f"block{more}")

    def add_text_with_calls(
        self, syntax: ToolSyntax, tools: Sequence[Tool], *, several: bool
    ) -> None:
        """Let the output be any text, and hold the calls in it to their schemas."""
        block = self._block(syntax, tools, several=several)
        if syntax.bare:
            self._rules += [f"block: {block}", r"OTHER: /(\s*[^\s{](?s:.*))?/"]
            self._answers += ["block", "OTHER"]
            return
        self._rules += [_TEXT, f"block: {self._to(syntax.begin, 'lead')} {block}"]
        self._answers.append(f"block{'*' if several else '?'} TEXT")

    def add_reasoning(self, marks: Marks, *, inside: bool) -> None:
        """Let reasoning come before; `inside` says that the output begins inside of it."""
        self._rules += [_TEXT, f"thought: {self._to(marks.end, 'thinking')}"]
        self._before = "thought" if inside else f"({self._spelling(marks.begin)} thought)?"

    def whole(self) -> str:
        """Return the grammar, in the form of `Grammars.matcher`."""
        if self._body is not None and self._answers == ["@body"] and not self._before:
            return self._body
        rules = dict.fromkeys(self._rules)
        lark = "\n".join([f"start: {self._before} ({' | '.join(self._answers)})", *rules])
        grammars = [{"name": "whole", "lark_grammar": lark}]
        if self._body is not None:
            grammars.append({"name": "body", "lark_grammar": self._body})
        return json.dumps({"grammars": grammars}, ensure_ascii=False)

    def _begin(self, syntax: ToolSyntax) -> str:
        padding = f"{_quoted(syntax.padding)}?" if syntax.padding.strip("\n") else ""
        return f"{self._spelling(syntax.begin)} {padding}"

    def _block(self, syntax: ToolSyntax, tools: Sequence[Tool], *, several: bool) -> str:
        """Return what follows the first mark."""
        self._rules += [f"call_{at}: {_call(syntax, tool)}" for at, tool in enumerate(tools)]
        names = " | ".join(f"call_{at}" for at in range(len(tools)))
        self._rules.append(f"call: {names}")
        padding = _quoted(syntax.padding) if syntax.padding.startswith("\n") else ""
        more = '(", " call)*' if several else ""
        listed = f'"[" call {more} "]"' if syntax.lists else "call"
        end = f"{padding} {self._spelling(syntax.end)}" if syntax.end else ""
        return f"{padding} {listed} {end}"

    def _to(self, mark: str, name: str) -> str:
        """Return text up to a mark, and the mark."""
        spelled = self._spelling(mark)
        if spelled.startswith("<"):
            return f"TEXT {spelled}"
        self._rules.append(f"{name}[lazy]: TEXT {spelled}")
        return name


def _call(syntax: ToolSyntax, tool: Tool) -> str:
    head = f'{{"name": {json.dumps(tool.name, ensure_ascii=False)}, "{syntax.arguments}": '
    return f'{_quoted(head)} {_parameters(tool)} "}}"'


def _parameters(tool: Tool) -> str:
    if tool.strict:
        try:
            check_counts(dict(tool.parameters), "tools")
        except InvalidRequest as error:
            raise InvalidRequest(
                f"the parameters of {tool.name!r}: {error}", param="tools"
            ) from None
    return f"%json {_schema({'type': 'object', **tool.parameters}, lenient=not tool.strict)}"


def _schema(schema: Json, *, lenient: bool = False) -> str:
    """Return a schema with how it is to be read.

    Args:
        schema: The schema.
        lenient: Leave out what can't be held, instead of refusing it.
    """
    if isinstance(schema, dict):
        schema = {**schema, "x-guidance": {**_JSON_OPTIONS, "lenient": lenient}}
    return json.dumps(schema, ensure_ascii=False)


def _lark_of_regex(expression: str) -> str:
    """Return a regular expression as a grammar; it matches the whole output as it is."""
    try:
        grammars = json.loads(LLMatcher.grammar_from_regex(expression))["grammars"]
    except UnicodeEncodeError:
        return expression  # which is refused when it is tried
    lark: str = grammars[0]["lark_grammar"]
    return lark


def _loaded(constraint: Constraint) -> Json:
    try:
        value: Json = json.loads(constraint.source)
    except (ValueError, RecursionError):
        raise InvalidRequest("it is no valid JSON", param=constraint.param) from None
    if not isinstance(value, dict | bool):
        raise InvalidRequest("it is no JSON schema", param=constraint.param)
    return value


def _choices(constraint: Constraint) -> list[str]:
    try:
        choices = json.loads(constraint.source)
    except (ValueError, RecursionError):
        choices = None
    texts = [each for each in choices if isinstance(each, str)] if isinstance(choices, list) else []
    if not texts or texts != choices:
        raise InvalidRequest("it is no list of texts", param=constraint.param)
    return texts


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
