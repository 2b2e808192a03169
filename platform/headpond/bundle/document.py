"""`bundle.yaml`: reading it, and writing it in one order that people can read."""

from __future__ import annotations

import os
from pathlib import Path

import yaml
from pydantic import JsonValue

from headpond.bundle.manifest import Manifest
from headpond.errors import BundleError

FILENAME = "bundle.yaml"
_MOST_BYTES = 16 * 2**20


def locate(location: str | os.PathLike[str]) -> Path:
    """Return the path of the `bundle.yaml` that a folder, or its own path, names.

    Raises:
        BundleError: There is none.
    """
    path = Path(location)
    path = path / FILENAME if path.is_dir() else path
    if not path.is_file():
        raise BundleError(f"there is no {FILENAME} in {Path(location).name!r}")
    return path


def read_document(path: Path) -> object:
    """Parse a YAML file without looking at what it means.

    Raises:
        BundleError: It is no YAML, or too large to be a manifest.
    """
    if path.stat().st_size > _MOST_BYTES:
        raise BundleError(f"{path.name} is larger than {_MOST_BYTES} bytes")
    try:
        document: object = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BundleError(f"{path.name} is not YAML: {_where(error)}") from error
    return document


def read_manifest(location: str | os.PathLike[str]) -> Manifest:
    """Read and check the manifest of a bundle.

    Raises:
        BundleError: Names the field at fault.
    """
    return Manifest.parse(read_document(locate(location)))


def render(document: dict[str, JsonValue]) -> str:
    """Return YAML in the document's order; lists of plain values on one line each."""
    return yaml.dump(
        document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100, indent=2
    )


def render_manifest(manifest: Manifest) -> str:
    """Return a manifest as `bundle.yaml` holds it; parsing it gives the same digest."""
    return render(manifest.model_dump(mode="json"))


class _Dumper(yaml.SafeDumper):
    """Token IDs and vectors read best on one line, mappings one key a line."""


def _represent_list(dumper: yaml.SafeDumper, items: list[object]) -> yaml.SequenceNode:
    plain = all(not isinstance(item, list | dict) for item in items)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=plain)


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # PyYAML writes these as they are, and reads them as line breaks; quoted, they are escaped.
    if any(break_ in text for break_ in "\r\x85\u2028\u2029"):
        style: str | None = '"'
    else:
        style = "|" if "\n" in text.strip("\n") else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(list, _represent_list)
_Dumper.add_representer(str, _represent_text)


def _where(error: yaml.YAMLError | UnicodeDecodeError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or "it is not UTF-8 text"
    return f"{problem} (line {mark.line + 1})" if isinstance(mark, yaml.Mark) else str(problem)
