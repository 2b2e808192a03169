"""Chat templates and control tokens as transformers handles them."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from headpond.errors import BundleError, InvalidRequest
from headpond_workloads.generation.engine import tokenizer as engine
from headpond_workloads.generation.engine.transformers_reading import tokenizer_reading_of
from headpond_workloads.generation.items import Message, Prompt
from workloads.generation.conftest import TEXTS

if TYPE_CHECKING:
    from workloads.generation.conftest import Tiny

TEMPLATES = {
    "blocks are trimmed": "{% for m in messages %}\n    {% if m.role == 'user' %}\n- {{ m.content }}\n"
    "    {% endif %}\n{% endfor %}",
    "what is learnt is marked": "{% for m in messages %}{% generation %}{{ m.content }}{% set x = 1 %}"
    "{% endgeneration %}{{ x is defined }}{% endfor %}",
    "loops can be left": "{% for m in messages %}{% if loop.index > 2 %}{% break %}{% endif %}"
    "{% if m.role == 'system' %}{% continue %}{% endif %}{{ m.content }}{% endfor %}",
    "namespaces": "{% set ns = namespace(found=false, self=1) %}{% for m in messages %}"
    "{% set ns.found = m.content %}{% endfor %}{{ ns.found }}{{ ns.self }}",
    "dictionaries": "{{ dict(a=1, b=messages[0].content) | tojson }}{{ dict.fromkeys(['k'], 'v') }}",
    "JSON": "{{ messages | tojson }}{{ messages | tojson(indent=2, ensure_ascii=true) }}"
    "{{ {'b': '<é&>', 'a': [1]} | tojson(sort_keys=true, separators=(',', ':')) }}",
    "special tokens": "{{ bos_token }}{{ eos_token }}{{ documents is none }}{{ tools is none }}",
    "cut texts": "{% for m in messages %}{{ m.content.split('|')[-1] }}{{ m.content[1:-1] }}"
    "{{ m.content | trim | upper }}{% if '<|im_end|>' in m.content %}!{% endif %}{% endfor %}",
    "added tokens": "{% for m in messages %}<tool>{{ m.content }}</tool>{% endfor %}",
}
PIECES = ["<|im_start|>", "<|im_end|>", "<tool>", "</tool>", "<|im_", "end|>", " ", "\n", "a", "é"]
PIECES += ["\U000f0000", "\U000f0001"]


def sentencepiece() -> PreTrainedTokenizerFast:
    """A tokenizer that puts a space before what begins a text."""
    backend = Tokenizer(models.BPE(byte_fallback=True))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    backend.decoder = decoders.Sequence(
        [decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="first")]
    )
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    special = ["<|im_start|>", "<|im_end|>", *byte_tokens]
    trainer = trainers.BpeTrainer(vocab_size=380, special_tokens=special, show_progress=False)
    backend.train_from_iterator(TEXTS, trainer)
    made = PreTrainedTokenizerFast(tokenizer_object=backend)  # type: ignore[no-untyped-call]
    made.add_special_tokens({"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"})
    return made


@pytest.fixture(scope="module", params=["byte level", "SentencePiece"])
def theirs(request: pytest.FixtureRequest, tiny: Tiny) -> PreTrainedTokenizerFast:
    made = sentencepiece() if request.param == "SentencePiece" else deepcopy(tiny.tokenizer)
    made.add_tokens([AddedToken("<tool>"), AddedToken("</tool>")])
    return made


def ours(theirs: PreTrainedTokenizerFast, template: str) -> engine.Tokenizer:
    reading = tokenizer_reading_of(theirs)
    return engine.Tokenizer(reading, vocab_tokens=1000, chat_template=template)


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES.keys())
@settings(
    deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    contents=st.lists(
        st.lists(st.sampled_from(PIECES), max_size=7).map("".join), min_size=1, max_size=3
    )
)
def test_tokens_are_those_of_transformers(
    theirs: PreTrainedTokenizerFast, template: str, contents: list[str]
) -> None:
    roles = ["system", "user", "assistant"]
    turns = tuple(
        Message(role=role, content=content) for role, content in zip(roles, contents, strict=False)
    )
    expected = theirs.apply_chat_template(
        [{"role": each.role, "content": each.content} for each in turns],
        chat_template=template,
        add_generation_prompt=True,
        sanitize_control_tokens=True,
        return_dict=False,
    )
    prompt = Prompt(messages=turns)
    if not expected:
        with pytest.raises(InvalidRequest, match="empty"):
            ours(theirs, template).encode(prompt)
    else:
        assert ours(theirs, template).encode(prompt) == expected


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ namespace(_secret=1) }}",
        "{% set ns = namespace() %}{% set ns._secret = 1 %}",
        "{{ dict.__class__ }}{{ dict.__init__.__globals__ }}",
        "{{ raise_exception('no') }}",
        "{{ messages | tojson(indent='x' * 3, separators=1) }}",
    ],
)
def test_what_a_template_must_not_do_is_refused(tiny: Tiny, template: str) -> None:
    prompt = Prompt(messages=(Message(role="user", content="hey"),), param="messages")
    with pytest.raises(InvalidRequest, match="refuses these messages") as refusal:
        ours(tiny.tokenizer, template).encode(prompt)
    assert refusal.value.param == "messages"


def test_what_is_no_template_is_refused_when_it_is_loaded(tiny: Tiny) -> None:
    with pytest.raises(BundleError, match="template") as refusal:
        ours(tiny.tokenizer, "{% for %}")
    assert refusal.value.param == "input.chat_template"
