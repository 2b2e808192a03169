"""The exact bytes of every token, for text and log-probabilities."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache

from tokenizers import Tokenizer as BackendTokenizer

from headpond.errors import BundleError

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


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

    def raw(self, token_id: int) -> bytes:
        """Return a token's bytes; none for control tokens and for unused IDs."""
        return self._bytes[token_id] if token_id < len(self._bytes) else b""

    def text(self, token_id: int) -> str:
        """Return what stands for a token alone: U+FFFD where it is no whole character."""
        control = self._control.get(token_id)
        return control if control is not None else self.raw(token_id).decode(errors="replace")


def _token_decoder(tokenizer: BackendTokenizer) -> Callable[[str], bytes]:
    """Return the function from a token's spelling to its bytes."""
    state = json.loads(tokenizer.decoder.__getstate__()) if tokenizer.decoder else {}
    kinds = [part.get("type") for part in state.get("decoders", [state])]
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
