"""The C structures of `structures.hpp` and of what it includes, field by field."""

from __future__ import annotations

from ctypes import POINTER, Structure, c_double, c_float, c_int32, c_int64, c_void_p

from headpond_workloads.native.structures import Matrix


class Layer(Structure):
    """One layer's weights."""

    _fields_ = (
        ("attention_norm", c_void_p),
        ("mlp_norm", c_void_p),
        ("query_norm", c_void_p),
        ("key_norm", c_void_p),
        ("qkv", Matrix),
        ("output", Matrix),
        ("gate_up", Matrix),
        ("down", Matrix),
        ("window", c_int32),
    )


class Cache(Structure):
    """The paged KV cache; see `attention.hpp`."""

    _fields_ = (
        ("memory", c_void_p),
        ("blocks", c_int64),
        ("block_tokens", c_int32),
        ("kv_heads", c_int32),
        ("width", c_int32),
        ("bf16", c_int32),
    )


class Model(Structure):
    """A whole model and its cache."""

    _fields_ = (
        ("layers", c_int32),
        ("hidden", c_int32),
        ("heads", c_int32),
        ("kv_heads", c_int32),
        ("width", c_int32),
        ("intermediate", c_int32),
        ("vocabulary", c_int32),
        ("epsilon", c_float),
        ("scaling", c_float),
        ("layer", POINTER(Layer)),
        ("embedding", c_void_p),
        ("embedding_bf16", c_int32),
        ("final_norm", c_void_p),
        ("head", Matrix),
        ("cosines", c_void_p),
        ("sines", c_void_p),
        ("cache", Cache),
    )


class SpanRows(Structure):
    """The rows of one sequence in a step."""

    _fields_ = (
        ("row", c_int32),
        ("count", c_int32),
        ("start", c_int32),
        ("adapter", c_int32),
        ("blocks", c_void_p),
    )


class Step(Structure):
    """One step."""

    _fields_ = (
        ("rows", c_int32),
        ("spans", c_int32),
        ("wanted", c_int32),
        ("tokens", c_void_p),
        ("span", POINTER(SpanRows)),
        ("wanted_rows", c_void_p),
        ("logits", c_void_p),
    )


class LowRank(Structure):
    """A low-rank addition to one product."""

    _fields_ = (("down", Matrix), ("up", Matrix))


class Adapter(Structure):
    """A LoRA adapter: four additions for each layer."""

    _fields_ = (("layer", POINTER(LowRank)), ("rank", c_int32))


class Choice(Structure):
    """How one row's token is drawn; see `sampling.hpp`."""

    _fields_ = (
        ("temperature", c_float),
        ("top_p", c_float),
        ("min_p", c_float),
        ("top_k", c_int32),
        ("uniform", c_double),
    )
