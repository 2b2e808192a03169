"""The library of the native decoder."""

from __future__ import annotations

from ctypes import CDLL, POINTER, c_int32, c_void_p
from functools import cache
from pathlib import Path

from headpond_workloads.generation.engine.native.structures import Adapter, Choice, Model, Step
from headpond_workloads.native.library import load


@cache
def library() -> CDLL:
    """Return the loaded library, built when it is missing.

    Raises:
        NativeUnavailable: The CPU lacks instructions, or there is no compiler that works.
    """
    return load(
        Path(__file__).parent / "decoder.cpp",
        (
            ("draw", None, (c_void_p, c_int32, c_int32, POINTER(Choice), c_void_p)),
            ("decoder", c_void_p, (POINTER(Model), c_int32)),
            ("adapters", None, (c_void_p, POINTER(Adapter), c_int32)),
            ("decoder_free", None, (c_void_p,)),
            ("forward", c_int32, (c_void_p, POINTER(Step))),
        ),
    )
