"""Shared libraries of C++: built once per machine, then loaded.

A library is compiled for the very CPU it runs on, in a few seconds, when it is first needed,
and kept in the cache under a name that covers sources, compiler and CPU.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from headpond.bundle.store import default_cache

logger = logging.getLogger(__name__)

Signature = tuple[str, type | None, tuple[type, ...]]
"""A function's name, and the C types of its result and of its arguments."""

_SHARED = Path(__file__).parent
_FLAGS = ("-O3", "-march=native", "-std=c++20", "-pthread", "-shared", "-fPIC", "-w")
_NEEDED = frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_bf16", "avx512_vnni"})
_COMPILE_S = 120.0


class NativeUnavailable(Exception):
    """This machine can't run what is written in C++; says why."""


def load(source: Path, signatures: Sequence[Signature]) -> ctypes.CDLL:
    """Load the library of one C++ file, built when it is missing.

    It may include the headers beside it and the shared ones of this package. Its functions
    release the interpreter's lock while they run.

    Raises:
        NativeUnavailable: The CPU lacks instructions, or there is no compiler that works.
    """
    flags = _cpu_flags()
    missing = _NEEDED - flags
    if missing:
        raise NativeUnavailable(f"the CPU lacks {', '.join(sorted(missing))}")
    loaded = ctypes.CDLL(str(_built(source, flags)))
    for name, result, arguments in signatures:
        function = getattr(loaded, f"headpond_{name}")
        function.restype, function.argtypes = result, arguments
    return loaded


@cache
def packing() -> ctypes.CDLL:
    """Return the library that packs weights.

    Raises:
        NativeUnavailable: As `load`.
    """
    c_int, c_long, pointer = ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p
    return load(
        _SHARED / "packing.cpp",
        (
            ("packed_bytes", c_long, (c_int, c_int, c_int)),
            ("pack", None, (c_int, pointer, c_int, c_int, c_int, pointer, pointer, pointer)),
        ),
    )


def _cpu_flags() -> frozenset[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise NativeUnavailable("it runs on Linux only") from error
    line = next((line for line in lines if line.startswith("flags")), "")
    return frozenset(line.partition(":")[2].split())


def _built(source: Path, cpu_flags: frozenset[str]) -> Path:
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        raise NativeUnavailable("there is no C++ compiler; install g++, or set CXX")
    name = f"{source.stem}-{_identity(source, compiler, cpu_flags)}.so"
    target = default_cache() / "native" / name
    if not target.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        logger.info("compiling %s, once for this machine", source.name)
        with tempfile.TemporaryDirectory(prefix=".part-", dir=target.parent) as folder:
            part = Path(folder) / target.name
            _compile(compiler, source, part)
            part.replace(target)
    return target


def _identity(source: Path, compiler: str, cpu_flags: frozenset[str]) -> str:
    """Return a digest of everything the library depends on."""
    digest = hashlib.sha256()
    for path in [source, *sorted({*_SHARED.glob("*.hpp"), *source.parent.glob("*.hpp")})]:
        digest.update(path.read_bytes())
    digest.update(_run([compiler, "--version"]).stdout)
    digest.update(" ".join([*_FLAGS, *sorted(cpu_flags)]).encode())
    return digest.hexdigest()[:20]


def _compile(compiler: str, source: Path, to: Path) -> None:
    done = _run([compiler, *_FLAGS, f"-I{_SHARED}", str(source), "-o", str(to)])
    if done.returncode:
        logger.debug("compiler: %s", done.stderr.decode(errors="replace"))
        raise NativeUnavailable(f"{compiler} can't compile it (see the log at debug level)")


def _run(command: list[str]) -> subprocess.CompletedProcess[bytes]:
    """Run the compiler that the operator installed or named."""
    try:
        return subprocess.run(command, capture_output=True, check=False, timeout=_COMPILE_S)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NativeUnavailable(f"{command[0]} does not run: {error}") from error
