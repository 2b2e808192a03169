"""Fields of other routes and servers that would change the answer, and are not done here.

Unknown fields are ignored, as clients expect. These are known: whoever sends one of them and
is answered as if it were not there is answered wrongly. A route that declares a field never
meets it here, so one table does for all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pydantic import JsonValue

from headpond.errors import UnsupportedParameter

_OPENAI: Mapping[str, tuple[JsonValue, ...]] = {
    "access_programs": (),
    "audio": (),
    "background": (),
    "background_options": (),
    "best_of": (1,),
    "context_management": (),
    "conversation": (),
    "echo": (),
    "function_call": ("auto", "none"),
    "functions": (),
    "image": (),
    "include": (),
    "input": (),
    "instructions": (),
    "logprobs": (),
    "max_completion_tokens": (),
    "max_output_tokens": (),
    "max_tokens": (),
    "max_tool_calls": (),
    "messages": (),
    "modalities": (["text"],),
    "moderation": (),
    "n": (1,),
    "parallel_tool_calls": (True, False),
    "prediction": (),
    "previous_response_id": (),
    "prompt": (),
    "prompt_cache_options": (),
    "reasoning": (),
    "reasoning_effort": (),
    "response_format": ({"type": "text"},),
    "store": (),
    "suffix": (),
    "text": ({"format": {"type": "text"}},),
    "tool_choice": ("auto", "none"),
    "tools": (),
    "top_logprobs": (0,),
    "truncation": ("disabled",),
    "verbosity": ("medium",),
    "web_search_options": (),
}
_VLLM: Mapping[str, tuple[JsonValue, ...]] = {
    "add_generation_prompt": (True,),
    "add_special_tokens": (),
    "chat_template": (),  # a template is a program; the bundle's is the only one that runs
    "chat_template_kwargs": ({},),
    "continue_final_message": (),
    "documents": (),
    "ec_transfer_params": (),
    "enable_response_messages": (),
    "guided_whitespace_pattern": (),
    "include_reasoning": (True,),
    "kv_transfer_params": (),
    "logits_processors": (),
    "logprob_token_ids": (),
    "media_io_kwargs": ({},),
    "mm_payload": ("tensors",),
    "mm_processor_kwargs": ({},),
    "previous_input_messages": (),
    "prompt_embeds": (),
    "repetition_detection": (),
    "return_mm_kwargs": (),
    "return_prompt_text": (),
    "return_token_ids": (),
    "return_token_offsets": (),
    "routed_experts_prompt_start": (0,),
    "thinking_token_budget": (),
    "truncation_side": ("left",),
    "use_beam_search": (),
    "vllm_xargs": ({},),
    "watermarking": (),
}
_SGLANG: Mapping[str, tuple[JsonValue, ...]] = {
    "audio_data": (),
    "bootstrap_host": (),
    "bootstrap_port": (),
    "bootstrap_room": (),
    "custom_logit_processor": (),
    "custom_params": ({},),
    "ebnf": (),
    "extra_key": (),
    "image_data": (),
    "image_max_dynamic_patch": (),
    "input_embeds": (),
    "input_ids": (),
    "logprob_start_len": (-1,),
    "lora_path": (),
    "max_dynamic_patch": (),
    "max_new_tokens": (),
    "min_dynamic_patch": (),
    "min_new_tokens": (0,),
    "no_stop_trim": (),
    "regex": (),
    "return_cached_tokens_details": (),
    "return_hidden_states": (),
    "return_logprob": (),
    "return_meta_info": (),
    "return_prompt_token_ids": (),
    "return_routed_experts": (),
    "return_text_in_logprobs": (),
    "sampling_params": ({},),
    "separate_reasoning": (True,),
    "session_params": (),
    "stop_regex": (),
    "stream_reasoning": (True,),
    "token_ids_logprob": (),
    "top_logprobs_num": (0,),
    "use_audio_in_video": (),
    "video_data": (),
    "video_max_dynamic_patch": (),
}
_LLAMA_CPP: Mapping[str, tuple[JsonValue, ...]] = {
    "adaptive_target": (-1,),
    "chat_format": (0,),
    "dry_multiplier": (0,),
    "dynatemp_range": (0,),
    "grammar": (),
    "grammar_lazy": (),
    "grammar_triggers": (),
    "input_extra": (),
    "input_prefix": (),
    "input_suffix": (),
    "json_schema": (),
    "lora": (),
    "min_keep": (0,),
    "mirostat": (0,),
    "multimodal_data": (),
    "n_cmpl": (1,),
    "n_indent": (0,),
    "n_predict": (-1,),
    "n_probs": (0,),
    "parse_tool_calls": (True,),
    "penalize_nl": (),
    "post_sampling_probs": (),
    "preserved_tokens": (),
    "reasoning_format": ("auto", "deepseek"),
    "reasoning_in_content": (),
    "repeat_last_n": (64, -1),  # the penalties here look at all of the text
    "repeat_penalty": (1,),
    "response_fields": (),
    "return_progress": (),
    "return_tokens": (),
    "samplers": (),
    "system_prompt": (),
    "t_max_predict_ms": (0,),
    "t_max_prompt_ms": (0,),
    "tfs_z": (1,),
    "thinking_forced_open": (),
    "top_n_sigma": (-1,),
    "typical_p": (1,),
    "verbose": (),
    "xtc_probability": (0,),
}
FOREIGN: Mapping[str, tuple[JsonValue, ...]] = {**_OPENAI, **_VLLM, **_SGLANG, **_LLAMA_CPP}
"""Each field with the values that ask for nothing: false, where there is none. Null, an empty
text and an empty list never ask for anything."""

OF_PROMPTS: Mapping[str, tuple[JsonValue, ...]] = {
    **{
        name: FOREIGN[name]
        for name in (
            "chat_template",
            "documents",
            "functions",
            "input",
            "media_io_kwargs",
            "mm_processor_kwargs",
            "prompt_embeds",
            "reasoning_effort",
            "suffix",
        )
    },
    "add_special": (),
    "content": (),
    "parse_special": (True,),
    "truncate_prompt_tokens": (),
    "with_pieces": (),
}
"""Those that would change the tokens of a prompt, or how they are told."""

_LENGTH = ("max_output_tokens", "max_completion_tokens", "max_tokens")
_SAID = ("input", "messages", "prompt")

_INSTEAD: Mapping[str, tuple[str, ...]] = {
    "add_special": ("add_special_tokens",),
    "content": ("prompt",),
    "ebnf": ("guided_grammar",),
    "extra_key": ("cache_salt",),
    "function_call": ("tool_choice",),
    "functions": ("tools",),
    "grammar": ("guided_grammar",),
    "input": _SAID,
    "input_ids": ("prompt",),
    "json_schema": ("response_format", "text.format"),
    "lora": ("adapter",),
    "lora_path": ("adapter",),
    "max_completion_tokens": _LENGTH,
    "max_new_tokens": _LENGTH,
    "max_output_tokens": _LENGTH[1:],
    "max_tokens": _LENGTH,
    "messages": _SAID,
    "min_new_tokens": ("min_tokens",),
    "n_cmpl": ("n",),
    "n_predict": _LENGTH,
    "no_stop_trim": ("include_stop_str_in_output",),
    "prompt": _SAID,
    "reasoning": ("reasoning_effort",),
    "reasoning_effort": ("reasoning.effort",),
    "regex": ("guided_regex",),
    "repeat_penalty": ("repetition_penalty",),
    "response_format": ("text.format",),
    "text": ("response_format",),
    "top_logprobs_num": ("top_logprobs", "logprobs"),
    "truncation": ("truncate_prompt_tokens",),
    "verbosity": ("text.verbosity",),
    "with_pieces": ("return_token_strs",),
}
"""What does the same here: the first of these that the route has."""

_HINTS: Mapping[str, str] = {
    "chat_template": "the template is the bundle's; chat_template_kwargs sets its variables",
    "top_logprobs": "use logprobs, a number",
}
"""What is not said by a field's name alone; the same on every route."""


def check_foreign(
    unknown: Mapping[str, JsonValue],
    known: Collection[str],
    foreign: Mapping[str, tuple[JsonValue, ...]] = FOREIGN,
) -> None:
    """Refuse a request with fields of other routes or servers that ask for what is not done.

    Args:
        unknown: The fields of a request that its dialect does not know.
        known: The names of those that it does.
        foreign: The fields that are refused, each with the values that ask for nothing.

    Raises:
        UnsupportedParameter: Names the first such field.
    """
    for name, value in unknown.items():
        if name in foreign and asks(value, foreign[name]):
            raise UnsupportedParameter(_message(name, known), param=name)


def asks(value: JsonValue, harmless: Collection[JsonValue] = ()) -> bool:
    """Return whether a value asks for anything: none of those with which clients fill up.

    Args:
        value: What was sent.
        harmless: The values that ask for nothing, where false is not the one that does.
    """
    if value is None or value in ("", []):
        return False
    return value not in harmless if harmless else value is not False


def _message(name: str, known: Collection[str]) -> str:
    fits = (each for each in _INSTEAD.get(name, ()) if each.partition(".")[0] in known)
    instead = next(fits, None)
    if instead is not None:
        return f"{name} is not supported; use {instead}"
    hint = _HINTS.get(name)
    return f"{name} is not supported" if hint is None else f"{name} is not supported: {hint}"
