"""The C structures of `encoder.cpp`, field by field."""

from __future__ import annotations

from ctypes import POINTER, Structure, c_float, c_int32, c_void_p

from headpond_workloads.native.structures import Matrix


class Norm(Structure):
    """Weight and bias of a layer norm."""

    _fields_ = (("weight", c_void_p), ("bias", c_void_p))


class Layer(Structure):
    """One layer's weights."""

    _fields_ = (
        ("qkv", Matrix),
        ("output", Matrix),
        ("up", Matrix),
        ("down", Matrix),
        ("attention_norm", Norm),
        ("output_norm", Norm),
    )


class Model(Structure):
    """A whole encoder."""

    _fields_ = (
        ("layers", c_int32),
        ("hidden", c_int32),
        ("heads", c_int32),
        ("intermediate", c_int32),
        ("epsilon", c_float),
        ("words_bf16", c_int32),
        ("layer", POINTER(Layer)),
        ("words", c_void_p),
        ("positions", c_void_p),
        ("types", c_void_p),
        ("norm", Norm),
    )


class Batch(Structure):
    """Sequences that lie one after the other."""

    _fields_ = (
        ("rows", c_int32),
        ("sequences", c_int32),
        ("first_only", c_int32),
        ("tokens", c_void_p),
        ("types", c_void_p),
        ("starts", c_void_p),
        ("out", c_void_p),
    )
