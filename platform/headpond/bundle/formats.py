"""Which files may be loaded: safetensors, ONNX, GGUF and plain text, by name and content.

Pickles run code when they are read, and remote code is code: both are refused, whatever
they are called.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open

from headpond.errors import BundleError

_PICKLED = "is a pickle, which runs code when loaded; convert it to .safetensors"
_SCRIPT = "is code; use an architecture that the engine knows instead"
REFUSED: Mapping[str, str] = {
    **dict.fromkeys((".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib"), _PICKLED),
    **dict.fromkeys((".npy", ".npz", ".h5", ".keras", ".msgpack", ".pb"), "has no safe loader"
    " here; convert it to .safetensors or .onnx"),
    **dict.fromkeys((".py", ".pyc", ".so", ".dll", ".sh"), _SCRIPT),
    ".model": "is a binary vocabulary; convert it to tokenizer.json",
}  # fmt: skip
"""Suffixes that are refused unread, and what to do about each."""

_TEXT_SUFFIXES = (".json", ".yaml", ".yml", ".txt", ".jinja", ".md", ".merges", ".vocab")
_MOST_TEXT_BYTES = 256 * 2**20
_ONNX_IR_VERSIONS = range(3, 32)


def check_suffix(name: str, suffix: str) -> None:
    """Refuse a name that is not one of a loadable file, before anything is fetched.

    Raises:
        BundleError: Says what to convert it to.
    """
    suffix, param = suffix.lower(), f"artifacts.{name}.source"
    if suffix in REFUSED:
        raise BundleError(f"artifact {name!r} ({suffix}) {REFUSED[suffix]}", param=param)
    if suffix not in _CHECKS:
        known = ", ".join(sorted(_CHECKS))
        raise BundleError(
            f"artifact {name!r} ends in {suffix!r}; loadable are {known}", param=param
        )


def check_content(name: str, path: Path, suffix: str) -> None:
    """Refuse a file whose content is not what its suffix says.

    Args:
        name: The artifact's name, for errors.
        path: Where it lies now.
        suffix: The ending of its name at its source, one that `check_suffix` lets pass.

    Raises:
        BundleError: Says what the content is instead.
    """
    problem = _CHECKS[suffix.lower()](path)
    if problem is not None:
        raise BundleError(
            f"artifact {name!r} ({suffix.lower()}) {problem}", param=f"artifacts.{name}.source"
        )


def _safetensors(path: Path) -> str | None:
    try:
        with safe_open(path, framework="np"):
            return None
    except SafetensorError:
        return f"is not safetensors: it {_diagnose(path)}"


def _gguf(path: Path) -> str | None:
    head = _head(path)
    version = int.from_bytes(head[4:8], "little")
    if head.startswith(b"GGUF") and version in (2, 3):
        return None
    return f"is not GGUF version 2 or 3: it {_diagnose(path)}"


def _onnx(path: Path) -> str | None:
    """Look for the field `ir_version`, which every exporter writes first."""
    head = _head(path)
    if len(head) > 1 and head[0] == 0x08 and head[1] in _ONNX_IR_VERSIONS:
        return None
    return f"is not ONNX: it {_diagnose(path)}"


def _text(path: Path) -> str | None:
    if path.stat().st_size > _MOST_TEXT_BYTES:
        return f"is larger than {_MOST_TEXT_BYTES} bytes, too much for a text"
    content = path.read_bytes()
    if b"\0" in content or _decode(content) is None:
        return f"is not UTF-8 text: it {_diagnose(path)}"
    return None


def _json(path: Path) -> str | None:
    problem = _text(path)
    if problem is not None:
        return problem
    try:
        document: object = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else "it is nested too deep"
        return f"is not JSON: {reason}"
    if _names_remote_code(document):
        return "asks for remote code (auto_map); remove the key and use a built-in architecture"
    return None


def _names_remote_code(document: object) -> bool:
    """Whether some section maps classes to code; a vocabulary may hold the word itself."""
    pending = [document]
    while pending:
        section = pending.pop()
        if isinstance(section, dict):
            if isinstance(section.get("auto_map"), dict | list | str):
                return True
            pending.extend(section.values())
        elif isinstance(section, list):
            pending.extend(section)
    return False


def _decode(content: bytes) -> str | None:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(64)


def _diagnose(path: Path) -> str:
    """Say what the content looks like instead."""
    head = _head(path)
    if head.startswith(b"PK\x03\x04"):
        return f"is a zip archive, as torch.save writes, and so {_PICKLED}"
    if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return _PICKLED
    if head.startswith(b"GGUF"):
        return "is GGUF; call it .gguf"
    if head.startswith(b"version https://git-lfs"):
        return "is a Git LFS pointer; fetch the file it points to"
    return "holds something else"


_CHECKS: Mapping[str, Callable[[Path], str | None]] = {
    ".safetensors": _safetensors,
    ".gguf": _gguf,
    ".onnx": _onnx,
    **dict.fromkeys(_TEXT_SUFFIXES, _text),
    ".json": _json,
}
