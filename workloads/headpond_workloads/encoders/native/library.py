"""The library of the native encoder."""

from __future__ import annotations

from ctypes import CDLL, POINTER, c_int32, c_void_p
from functools import cache
from pathlib import Path

from headpond_workloads.encoders.native.structures import Batch, Model
from headpond_workloads.native.library import load


@cache
def library() -> CDLL:
    """Return the loaded library, built when it is missing.

    Raises:
        NativeUnavailable: The CPU lacks instructions, or there is no compiler that works.
    """
    return load(
        Path(__file__).parent / "encoder.cpp",
        (
            ("encoder", c_void_p, (POINTER(Model),)),
            ("encoder_free", None, (c_void_p,)),
            ("encode", c_int32, (c_void_p, POINTER(Batch))),
        ),
    )
