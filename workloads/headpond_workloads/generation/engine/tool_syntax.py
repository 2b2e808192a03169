"""How families of models write calls of tools."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from secrets import choice, token_hex
from string import ascii_letters, digits

from headpond_workloads.generation.items import ToolCall

_SHORT_ID = 9
_ALPHANUMERIC = ascii_letters + digits


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolSyntax:
    """The syntax of a family. A call is a JSON object with its name and its arguments.

    Attributes:
        begin: The mark before calls; it may be a token or plain text.
        end: The mark behind them, or empty where the last bracket says enough.
        padding: What the model writes between a mark and the JSON.
        lists: Whether all calls of a turn come as one JSON list, else each between marks.
        bare: Whether calls may do without the mark where they begin the answer.
        single: Whether the model can't call several tools in a turn.
        arguments: The key of the arguments.
        short_ids: Whether the template takes identifiers of nine letters and digits only.
    """

    begin: str
    end: str = ""
    padding: str = ""
    lists: bool = False
    bare: bool = False
    single: bool = False
    arguments: str = "arguments"
    short_ids: bool = False

    def new_id(self) -> str:
        """Return an identifier for a call that no other call has."""
        if self.short_ids:
            return "".join(choice(_ALPHANUMERIC) for _ in range(_SHORT_ID))
        return f"call_{token_hex(12)}"

    def fitting_id(self, call_id: str) -> str:
        """Return a call's identifier in the form that the template takes."""
        if not self.short_ids or (len(call_id) == _SHORT_ID and call_id.isalnum()):
            return call_id
        return blake2b(call_id.encode(errors="replace"), digest_size=5).hexdigest()[:_SHORT_ID]

    def written(self, calls: Sequence[ToolCall]) -> str:
        """Return calls as the model writes them."""
        texts = [
            f'{{"name": {json.dumps(call.name, ensure_ascii=False)}, '
            f'"{self.arguments}": {call.arguments}}}'
            for call in calls
        ]
        if self.lists:
            texts = [f"[{', '.join(texts)}]"]
        begin = "" if self.bare else f"{self.begin}{self.padding}"
        end = f"{self.padding}{self.end}" if self.end else ""
        return ("; " if self.bare else "\n").join(f"{begin}{text}{end}" for text in texts)


SYNTAXES: Mapping[str, ToolSyntax] = {
    "hermes": ToolSyntax(begin="<tool_call>", end="</tool_call>", padding="\n"),
    "smollm": ToolSyntax(begin="<tool_call>", end="</tool_call>", lists=True),
    "mistral": ToolSyntax(begin="[TOOL_CALLS]", padding=" ", lists=True, short_ids=True),
    "llama3_json": ToolSyntax(
        begin="<|python_tag|>", bare=True, single=True, arguments="parameters"
    ),
}
"""By name: Qwen, Hermes and many fine-tunes; SmolLM2; Mistral; Llama 3."""
