"""The exact bytes of every token, for text and log-probabilities."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache
from typing import Any, Protocol

from tokenizers import Tokenizer as BackendTokenizer

from headpond.errors import BundleError

_NO_TEXT = "\ue000"
"""A private character, before a name."""

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class _Component(Protocol):
    def __getstate__(self) -> bytes: ...


class Vocabulary:
    """Token bytes by ID; joined over a sequence they are its text."""

    def __init__(self, tokenizer: BackendTokenizer) -> None:
        """Read the bytes of every token from the tokenizer's decoder.

        Raises:
            BundleError: The decoder is of a kind that has no exact bytes.
        """
        to_bytes = _token_decoder(tokenizer)
        added = tokenizer.get_added_tokens_decoder()
        self._bytes = [b""] * tokenizer.get_vocab_size(with_added_tokens=True)
        self._control: dict[int, str] = {}
        for token, token_id in tokenizer.get_vocab(with_added_tokens=True).items():
            if token_id >= len(self._bytes):
                self._bytes += [b""] * (token_id + 1 - len(self._bytes))
            if token_id not in added:
                self._bytes[token_id] = to_bytes(token)
            elif added[token_id].special:
                self._control[token_id] = token
            else:
                self._bytes[token_id] = token.encode()

    @property
    def longest_bytes(self) -> int:
        """The most bytes that one token stands for, or is spelled with."""
        control = (token.encode() for token in self._control.values())
        return max(map(len, (*self._bytes, *control)))

    @property
    def control(self) -> Collection[str]:
        """The spellings of all control tokens."""
        return self._control.values()

    def spelled(self, token_ids: Iterable[int]) -> str:
        """Return the text of tokens, with control tokens spelled out."""
        parts = (self.raw(each) or self.text(each).encode() for each in token_ids)
        return b"".join(parts).decode(errors="replace")

    def raw(self, token_id: int) -> bytes:
        """Return a token's bytes; none for control tokens and for unused IDs."""
        return self._bytes[token_id] if token_id < len(self._bytes) else b""

    def text(self, token_id: int) -> str:
        """Return what stands for a token alone: U+FFFD where it is no whole character."""
        control = self._control.get(token_id)
        return control if control is not None else self.raw(token_id).decode(errors="replace")


def longest_bytes(tokenizer: BackendTokenizer, vocabulary: Vocabulary) -> int | None:
    """Return the most bytes of text that become one token, or None when that is not known."""
    kinds = [each.get("type") for each in _parts(tokenizer.decoder, "decoders")]
    if "ByteLevel" not in kinds and not getattr(tokenizer.model, "byte_fallback", False):
        return None  # any text may become one unknown token
    shrinks = [_shrinks(each) for each in _parts(tokenizer.normalizer, "normalizers")]
    return None if 0 in shrinks else vocabulary.longest_bytes * math.prod(shrinks)


def spelled_out(tokenizer: str) -> str:
    """Return a tokenizer's JSON under which the names of control tokens are plain text.

    The tokens stay, under the same IDs and names that no text has. The unknown token keeps
    its own, for the model part of the tokenizer refers to it.
    """
    state: dict[str, Any] = json.loads(tokenizer)
    model = state["model"]
    new: dict[str, str] = {}
    for token in state["added_tokens"]:
        if token["special"] and token["content"] != model.get("unk_token"):
            new[token["content"]] = token["content"] = _NO_TEXT + token["content"]
    vocab = model["vocab"]
    if isinstance(vocab, dict):
        model["vocab"] = {new.get(name, name): token_id for name, token_id in vocab.items()}
    else:
        model["vocab"] = [[new.get(name, name), *rest] for name, *rest in vocab]
    state["post_processor"] = None  # which adds tokens by their names
    return json.dumps(state, ensure_ascii=False)


def _parts(component: _Component | None, key: str) -> list[dict[str, Any]]:
    """Return the settings of a part of a tokenizer, or of those that it is a sequence of."""
    if component is None:
        return []
    state: dict[str, Any] = json.loads(component.__getstate__())
    parts: list[dict[str, Any]] = state.get(key, [state])
    return parts


def _shrinks(normalizer: Mapping[str, Any]) -> int:
    """Return by how much a normalizer makes UTF-8 text shorter at the most; 0 for any."""
    if normalizer["type"] == "NFC":
        return 4
    if normalizer["type"] == "Prepend":
        return 1
    pattern = normalizer.get("pattern", {}).get("String")
    if normalizer["type"] == "Replace" and pattern is not None:
        return int(len(normalizer["content"].encode()) >= len(pattern.encode()))
    return 0


def _token_decoder(tokenizer: BackendTokenizer) -> Callable[[str], bytes]:
    """Return the function from a token's spelling to its bytes."""
    kinds = [part.get("type") for part in _parts(tokenizer.decoder, "decoders")]
    if "ByteLevel" in kinds:
        return _byte_level
    if "ByteFallback" in kinds or "Metaspace" in kinds:
        return _byte_fallback
    raise BundleError(
        f"the tokenizer's decoder ({', '.join(map(str, kinds))}) has no exact bytes; "
        "byte-level BPE and SentencePiece with byte fallback do",
        param="input.tokenizer",
    )


@cache
def _byte_of() -> dict[str, int]:
    """Return GPT-2's map of printable characters to bytes, inverted.

    Source: https://github.com/openai/gpt-2/blob/master/src/encoder.py, bytes_to_unicode.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    named = {chr(byte): byte for byte in printable}
    return named | {chr(256 + at): byte for at, byte in enumerate(others)}


def _byte_level(token: str) -> bytes:
    byte_of = _byte_of()
    if all(char in byte_of for char in token):
        return bytes(byte_of[char] for char in token)
    return token.encode()


def _byte_fallback(token: str) -> bytes:
    byte = _BYTE_TOKEN.fullmatch(token)
    return bytes([int(byte[1], 16)]) if byte else token.replace("\u2581", " ").encode()
