"""Chat templates, rendered as transformers renders them, without it.

Templates come from wherever the model does, and are code: they run in jinja's sandbox, and
see nothing but JSON values and a few functions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime

from jinja2 import TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from headpond.engine import Json


class _Generation(Extension):
    """`{% generation %}`, by which templates mark what a model learns from; it says nothing here."""

    tags = {"generation"}  # noqa: RUF012 - declared so by jinja

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


class _Dict:
    """`dict` for templates, without a way to the class itself."""

    def __call__(self, *values: Mapping[str, Json], **named: Json) -> dict[str, Json]:
        return dict(*values, **named)

    def fromkeys(self, keys: Sequence[str], value: Json = None) -> dict[str, Json]:
        return dict.fromkeys(keys, value)


class _Namespace(Namespace):
    """`namespace` for templates, whose attributes can't reach into the interpreter."""

    def __init__(*args: Namespace, **named: Json) -> None:
        namespace, *values = args
        for name in dict(*values, **named):
            _check_name(name)
        Namespace.__init__(namespace, *values, **named)

    def __setitem__(self, name: str, value: Json) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: str) -> None:
    if name.startswith("_"):
        raise SecurityError(f"a template can't keep anything under the name {name!r}")


class ChatTemplate:
    """One template, compiled."""

    def __init__(self, source: str) -> None:
        """Compile a template.

        Raises:
            TemplateError: It is none.
        """
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
        )
        environment.filters["tojson"] = _to_json
        environment.globals |= {
            "raise_exception": _raise,
            "strftime_now": _now,
            "dict": _Dict(),
            "namespace": _Namespace,
        }
        self.source = source
        self._template = environment.from_string(source)
        self.literals = _literals(environment.parse(source))

    def render(self, variables: Mapping[str, Json]) -> str:
        """Return the text for some variables.

        Raises:
            TemplateError: The template refuses them.
            ValueError, TypeError: It can't use them.
        """
        return self._template.render(variables)


def _literals(tree: nodes.Template) -> frozenset[str]:
    """Return the texts that a template holds."""
    data = (node.data for node in tree.find_all(nodes.TemplateData))
    constants = (node.value for node in tree.find_all(nodes.Const))
    return frozenset([*data, *(each for each in constants if isinstance(each, str))])


def _to_json(
    value: Json,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Write a value as JSON, which is not for a web page: nothing in it is escaped."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise(message: str) -> None:
    raise TemplateError(message)


def _now(form: str) -> str:
    return datetime.now().strftime(form)  # noqa: DTZ005 - the date where the server stands
