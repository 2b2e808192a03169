"""Writes `docs/reference/client.md` from the docstrings of the Python client.

python docs/reference.py           writes it
python docs/reference.py --check   fails when it is not what would be written
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import griffe
from generated import keep

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/reference/client.md"
TITLE = """# The Python client, call by call

Written by `docs/reference.py` from the docstrings; [how it is used](../client.md) comes first.
`AsyncClient` and its parts are the same with `await`, and not listed again. Types of answers are
those of the routes, as `/openapi.json` has them.
"""
PARTS: dict[str, tuple[str, ...]] = {
    "headpond_workloads.client": ("Client",),
    "headpond.client.options": ("CallOptions",),
    "headpond_workloads.generation.client": ("ChatCompletions", "Completions"),
    "headpond_workloads.generation.client_responses": ("Responses",),
    "headpond_workloads.generation.params": ("SamplingParams", "ChatParams", "CompletionParams"),
    "headpond_workloads.embedding.client": ("Embeddings",),
    "headpond_workloads.embedding.client_params": ("EmbeddingParams",),
    "headpond_workloads.reranking.client_params": ("RerankParams",),
    "headpond_workloads.vision.client": ("Classifications", "ClassificationParams"),
    "headpond_workloads.speech.client": ("Transcriptions", "TranscriptionParams"),
    "headpond_workloads.speech.client_realtime": ("Realtime",),
    "headpond_workloads.speech.client_realtime_session": ("RealtimeSession",),
    "headpond_workloads.speech.client_realtime_params": ("RealtimeParams", "TurnParams"),
    "headpond_workloads.speech.microphone": ("Microphone",),
    "headpond_workloads.diffusion.client": ("Images",),
    "headpond_workloads.diffusion.client_params": ("GenerateParams", "EditParams"),
    "headpond.client.files": ("Files",),
    "headpond.client.batches": ("Batches",),
    "headpond.client.usage": ("Usage",),
    "headpond.client.page": ("Page",),
    "headpond.client.catalogue": ("Models", "Workload"),
    "headpond.client.stream": ("Stream",),
    "headpond.errors": ("HeadpondError", "Received"),
    "headpond.client.errors": (
        "BatchFailed",
        "ConnectionFailed",
        "ConnectionTimedOut",
        "ResponseInvalid",
        "StreamTruncated",
    ),
}


def rendered() -> str:
    """Return the page."""
    sources = [ROOT / "platform", ROOT / "workloads"]
    loader = griffe.GriffeLoader(search_paths=sources, docstring_parser="google")
    lines = [TITLE.strip()]
    for module, names in PARTS.items():
        found = loader.load(module)
        for name in names:
            one = found[name]
            if not isinstance(one, griffe.Class):
                raise TypeError(f"{module}.{name} is no class")
            lines += ["", f"## {name}", "", f"`{module}`", *_class(one)]
    return "\n".join(lines) + "\n"


def _class(one: griffe.Class) -> Iterator[str]:
    yield from _text(one)
    table = list(_fields(one))
    if table:
        yield from ["", "| | |", "|---|---|", *table]
    for name, member in one.members.items():
        if isinstance(member, griffe.Function) and (name == "__init__" or name[0] != "_"):
            yield from _method(one, member)


def _fields(one: griffe.Class) -> Iterator[str]:
    """Yield a row for each attribute and property."""
    told = {
        entry.name: entry.description.replace("\n", " ")
        for section in _sections(one)
        if section.kind is griffe.DocstringSectionKind.attributes
        for entry in section.value
    }
    for name, member in one.members.items():
        if not isinstance(member, griffe.Attribute) or name.startswith("_"):
            continue
        text = told.get(name) or (member.docstring.value if member.docstring else "")
        kind = str(member.annotation or "").replace("NotRequired[", "").replace("Required[", "")
        kind = kind.removesuffix("]") if "Required[" in str(member.annotation) else kind
        kind = kind.replace("|", "\\|")
        if kind or text:
            yield f"| `{name}`{f': `{kind}`' if kind else ''} | {text} |"


def _method(one: griffe.Class, method: griffe.Function) -> Iterator[str]:
    name = one.name if method.name == "__init__" else method.name
    if name == one.name and [each.name for each in method.parameters] in (
        ["self", "transport"],
        ["self", "socket"],
    ):
        return  # made by the client
    yield from ["", f"### {name}", "", "```python"]
    for shown in one.overloads.get(method.name) or [method]:
        yield _signature(name, shown)
    yield "```"
    yield from _text(method)
    for section in _sections(method):
        if section.kind is griffe.DocstringSectionKind.parameters:
            yield ""
            for entry in section.value:
                yield f"- `{entry.name}`: {_line(entry.description)}"
        elif section.kind is griffe.DocstringSectionKind.raises:
            yield ""
            for entry in section.value:
                yield f"- raises `{entry.annotation}`: {_line(entry.description)}"


def _signature(name: str, method: griffe.Function) -> str:
    shown, keywords = [], False
    for each in method.parameters:
        if each.name == "self":
            continue
        star = {
            griffe.ParameterKind.var_positional: "*",
            griffe.ParameterKind.var_keyword: "**",
        }.get(each.kind, "")
        if each.kind is griffe.ParameterKind.keyword_only and not keywords:
            shown.append("*")
            keywords = True
        kind = f": {each.annotation}" if each.annotation else ""
        default = f" = {each.default}" if each.default and not star else ""
        shown.append(f"{star}{each.name}{kind}{default}")
    returns = "" if method.name == "__init__" else f" -> {method.returns}"
    line = f"{name}({', '.join(shown)}){returns}"
    if len(line) <= 100:
        return line
    return "\n".join([f"{name}(", *(f"    {each}," for each in shown), f"){returns}"])


def _text(one: griffe.Object) -> Iterator[str]:
    for section in _sections(one):
        if section.kind is griffe.DocstringSectionKind.text:
            for paragraph in section.value.split("\n\n"):
                yield from ["", _example(paragraph) if paragraph[:3] == ">>>" else paragraph]


def _example(paragraph: str) -> str:
    lines = [line[4:] for line in paragraph.replace("  # doctest: +SKIP", "").splitlines()]
    return "\n".join(["```python", *lines, "```"])


def _sections(one: griffe.Object) -> Sequence[griffe.DocstringSection]:
    return one.docstring.parsed if one.docstring else ()


def _line(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    keep(PAGE, rendered())
