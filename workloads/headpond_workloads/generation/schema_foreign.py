"""Fields of other servers that would change the answer, and are not done here.

Unknown fields are ignored, as clients expect. These are known: whoever sends one of them and
is answered as if it were not there is answered wrongly.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue

from headpond.errors import UnsupportedParameter

_VLLM: Mapping[str, tuple[JsonValue, ...]] = {
    "chat_template": (),  # a template is a program; the bundle's is the only one that runs
    "guided_whitespace_pattern": (),
    "include_reasoning": (True,),
    "kv_transfer_params": (),
    "logits_processors": (),
    "mm_processor_kwargs": ({},),
    "return_token_ids": (),
    "thinking_token_budget": (),
    "use_beam_search": (),
    "vllm_xargs": ({},),
}
_SGLANG: Mapping[str, tuple[JsonValue, ...]] = {
    "custom_logit_processor": (),
    "ebnf": (),
    "input_ids": (),
    "lora_path": (),
    "max_new_tokens": (),
    "min_new_tokens": (0,),
    "no_stop_trim": (),
    "regex": (),
    "return_hidden_states": (),
    "separate_reasoning": (True,),
    "session_params": (),
    "stop_regex": (),
}
_LLAMA_CPP: Mapping[str, tuple[JsonValue, ...]] = {
    "dry_multiplier": (0,),
    "dynatemp_range": (0,),
    "grammar": (),
    "json_schema": (),
    "lora": (),
    "mirostat": (0,),
    "n_predict": (-1,),
    "n_probs": (0,),
    "repeat_penalty": (1,),
    "samplers": (),
    "t_max_predict_ms": (0,),
    "top_n_sigma": (-1,),
    "typical_p": (1,),
    "xtc_probability": (0,),
}
FOREIGN: Mapping[str, tuple[JsonValue, ...]] = {**_VLLM, **_SGLANG, **_LLAMA_CPP}
"""Each field with the values that ask for nothing: false, where there is none. Null, an empty
text and an empty list never ask for anything."""

INSTEAD: Mapping[str, str] = {
    "chat_template": "the template is the bundle's; chat_template_kwargs sets its variables",
    "ebnf": "use guided_grammar",
    "grammar": "use guided_grammar",
    "json_schema": "use response_format",
    "lora": "use adapter",
    "lora_path": "use adapter",
    "max_new_tokens": "use max_tokens",
    "min_new_tokens": "use min_tokens",
    "n_predict": "use max_tokens",
    "n_probs": "use logprobs",
    "no_stop_trim": "use include_stop_str_in_output",
    "regex": "use guided_regex",
    "repeat_penalty": "use repetition_penalty",
}
"""What does the same here."""


def check_foreign(unknown: Mapping[str, JsonValue]) -> None:
    """Refuse a request with fields of other servers that ask for what is not done.

    Args:
        unknown: The fields of a request that its dialect does not know.

    Raises:
        UnsupportedParameter: Names the first such field.
    """
    for name, value in unknown.items():
        if name not in FOREIGN or value is None or value in ("", []):
            continue
        if value in (FOREIGN[name] or (False,)):
            continue
        hint = INSTEAD.get(name)
        message = f"{name} is not supported" if hint is None else f"{name}: {hint}"
        raise UnsupportedParameter(message, param=name)
