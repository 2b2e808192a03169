"""Writes `docs/reference/api.md` from the OpenAPI document that a server shows.

python docs/api.py           writes it
python docs/api.py --check   fails when it is not what would be written
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

from generated import keep

from headpond.http.openapi import document
from headpond.registry import workloads

PAGE = Path(__file__).parent / "reference/api.md"
TITLE = """# The HTTP API, route by route

Written by `docs/api.py` from the OpenAPI document, which a server shows at `/openapi.json`. Every
route but `/healthz`, `/readyz`, `/openapi.json` and the like wants a key where there are keys; the
routes of a model stand below `/models/{alias}`, too.
"""
Node = Mapping[str, object]


def rendered() -> str:
    """Return the page."""
    doc = cast("Node", document(tuple(workloads().values()), secured=True, jobs=True, usage=True))
    lines = [TITLE]
    seen = ""
    for path, item in _node(doc, "paths").items():
        shared = cast("list[Node]", cast("Node", item).get("parameters", []))
        for method in ("get", "post", "delete"):
            operation = _node(cast("Node", item), method)
            if not operation:
                continue
            tag = next(iter(cast("list[str]", operation.get("tags", []))), "platform")
            if tag != seen:
                lines += [f"## {tag.capitalize()}", ""]
                seen = tag
            lines += _operation(f"{method.upper()} {path}", operation, shared)
    lines += ["## Bodies", ""]
    for name, schema in _node(_node(doc, "components"), "schemas").items():
        lines += _schema(name, cast("Node", schema))
    return "\n".join(lines).rstrip() + "\n"


def _operation(title: str, operation: Node, shared: list[Node]) -> Iterator[str]:
    yield from [f"### {title}", "", str(operation.get("summary", "")), ""]
    for given in (*shared, *cast("list[Node]", operation.get("parameters", []))):
        if given.get("in", "header") != "header":
            yield f"- `{given['name']}` ({given['in']}): {_type(_node(given, 'schema'))}"
    for media, content in _node(_node(operation, "requestBody"), "content").items():
        yield f"- takes {media}: {_type(_node(cast('Node', content), 'schema'))}"
    for status, answer in _node(operation, "responses").items():
        for media, content in _node(cast("Node", answer), "content").items():
            if status.startswith("2"):
                yield f"- {status} {media}: {_type(_node(cast('Node', content), 'schema'))}"
    failures = [status for status in _node(operation, "responses") if status[0] in "45"]
    yield from [f"- fails with {', '.join(sorted(failures))}", ""] if failures else [""]


def _schema(name: str, schema: Node) -> Iterator[str]:
    yield from [f"### {name}", ""]
    if about := schema.get("description"):
        yield from [str(about).split("\n\nAttributes:")[0], ""]
    fields = _node(schema, "properties")
    if not fields:
        yield from [_type({**schema, "title": ""}), ""]
        return
    needed = cast("list[str]", schema.get("required", []))
    yield from ["| field | type | |", "|---|---|---|"]
    for field, of in fields.items():
        about = str(cast("Node", of).get("description", "")).replace("\n", " ").replace("|", "\\|")
        must = "required. " if field in needed else ""
        yield f"| `{field}` | {_type(cast('Node', of))} | {f'{must}{about}'.strip()} |"
    yield ""


def _type(schema: Node) -> str:
    """Return a type in one line, with links to the bodies that it names."""
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            kinds = [_type(each) for each in cast("list[Node]", schema[key])]
            return " or ".join(dict.fromkeys(kinds))
    if "const" in schema or "enum" in schema:
        values = cast("list[object]", schema.get("enum", [schema.get("const")]))
        return ", ".join(f"`{value}`" for value in values)
    if schema.get("type") == "array":
        return f"list of {_type(_node(schema, 'items'))}"
    return _bounded(str(schema.get("type", "any")), schema)


def _bounded(kind: str, schema: Node) -> str:
    bounds = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    said = [f"{sign} {schema[key]}" for key, sign in bounds.items() if key in schema]
    return " ".join([kind, *said])


def _node(parent: Node, key: str) -> Node:
    return cast("Node", parent.get(key, {}))


if __name__ == "__main__":
    keep(PAGE, rendered())
