"""The C structures of `products.hpp`, field by field."""

from __future__ import annotations

from ctypes import Structure, c_int32, c_void_p


class Matrix(Structure):
    """Packed weights of one product."""

    _fields_ = (
        ("format", c_int32),
        ("columns", c_int32),
        ("depth", c_int32),
        ("packed", c_void_p),
        ("scales", c_void_p),
        ("least", c_void_p),
        ("bias", c_void_p),
    )
