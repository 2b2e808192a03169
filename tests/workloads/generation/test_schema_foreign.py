"""Every field that clients of others know is done, refused, or said to be harmless."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from openai.types import completion_create_params
from openai.types.chat import completion_create_params as chat_create_params
from openai.types.responses import response_create_params

from headpond_workloads.generation.schema_chat import ChatCompletionRequest
from headpond_workloads.generation.schema_completions import CompletionRequest
from headpond_workloads.generation.schema_foreign import FOREIGN, OF_PROMPTS
from headpond_workloads.generation.schema_responses import ResponseRequest
from headpond_workloads.generation.schema_tokenize import TokenizeRequest

DIALECT = Path(__file__).parents[3] / "docs/dialect.md"


def named(names: str) -> set[str]:
    return set(names.split())


OPENAI = (
    chat_create_params.CompletionCreateParamsNonStreaming.__annotations__.keys()
    | completion_create_params.CompletionCreateParamsNonStreaming.__annotations__.keys()
    | response_create_params.ResponseCreateParamsNonStreaming.__annotations__.keys()
)
VLLM = named(
    """add_generation_prompt add_special_tokens allowed_token_ids bad_words cache_salt
    chat_template chat_template_kwargs continue_final_message documents echo ec_transfer_params
    enable_response_messages ignore_eos include_reasoning include_stop_str_in_output
    kv_transfer_params length_penalty logprob_token_ids media_io_kwargs min_p min_tokens
    mm_payload mm_processor_kwargs previous_input_messages priority prompt_embeds
    prompt_logprobs repetition_detection repetition_penalty request_id return_mm_kwargs
    return_prompt_text return_token_ids return_token_offsets return_tokens_as_token_ids
    routed_experts_prompt_start session_id skip_special_tokens spaces_between_special_tokens
    stop_token_ids stream_interval structured_outputs thinking_token_budget top_k
    truncate_prompt_tokens truncation_side use_beam_search vllm_xargs watermarking"""
)
SGLANG = named(
    """bootstrap_host bootstrap_port bootstrap_room custom_logit_processor custom_params
    data_parallel_rank disagg_prefill_dp_rank ebnf extra_key image_max_dynamic_patch input_embeds
    input_ids json_schema log_metrics lora_path max_dynamic_patch min_dynamic_patch no_stop_trim
    regex return_cached_tokens_details return_hidden_states return_meta_info
    return_prompt_token_ids return_routed_experts rid routed_dp_rank separate_reasoning
    session_params stop_regex stream_reasoning use_audio_in_video video_max_dynamic_patch"""
)
LLAMA_CPP = named(
    """adaptive_decay adaptive_target backend_sampling cache_prompt chat_format
    dry_allowed_length dry_base dry_multiplier dry_penalty_last_n dry_sequence_breakers
    dynatemp_exponent dynatemp_range grammar grammar_lazy grammar_triggers id_slot json_schema
    lora min_keep mirostat mirostat_eta mirostat_tau multimodal_data n_cache_reuse n_cmpl
    n_discard n_indent n_keep n_predict n_probs parse_tool_calls post_sampling_probs
    preserved_tokens reasoning_format reasoning_in_content repeat_last_n repeat_penalty
    response_fields return_progress return_tokens samplers speculative.n_max speculative.n_min
    speculative.p_min sse_ping_interval t_max_predict_ms t_max_prompt_ms thinking_forced_open
    timings_per_token top_n_sigma typical_p verbose xtc_probability xtc_threshold"""
)
KNOWN = OPENAI | VLLM | SGLANG | LLAMA_CPP


def described(title: str) -> set[str]:
    """Return the names in the first column of the table that follows a sentence in the docs."""
    _, _, rest = DIALECT.read_text(encoding="utf-8").partition(f"\n{title}")
    table = re.search(r"(?:^\|.*\n)+", rest, re.MULTILINE)
    assert table is not None
    cells = [row.split("|")[1] for row in table[0].splitlines()[2:]]
    return {name.split(":")[0] for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


@pytest.mark.parametrize(
    "request_type", [ChatCompletionRequest, CompletionRequest, ResponseRequest]
)
def test_no_field_of_others_is_dropped(
    request_type: type[ChatCompletionRequest | CompletionRequest | ResponseRequest],
) -> None:
    declared = request_type.model_fields.keys()
    assert KNOWN - declared - FOREIGN.keys() - described("Accepted, and without") == set()


def test_the_docs_name_what_is_refused() -> None:
    refused = described("Refused, unless the value")
    ours = described("Done, in chat")
    assert FOREIGN.keys() - OPENAI - refused - ours == set()


def test_what_would_change_the_tokens_is_no_field_that_is_done() -> None:
    assert OF_PROMPTS.keys() & TokenizeRequest.model_fields.keys() == set()
