"""A bundle's fixtures as items: greedy generation from a fixed input."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, ValidationError

from headpond.engine import Json
from headpond.errors import BundleError
from headpond_workloads.generation.items import GenerationItem, Message, Prompt, Sampling


class _Turn(BaseModel):
    model_config = ConfigDict(extra="forbid")

    role: str
    content: str
    name: str | None = None


class _Given(BaseModel):
    model_config = ConfigDict(extra="forbid")

    messages: list[_Turn] | None = None
    text: str | None = None
    token_ids: list[int] | None = None
    max_tokens: int = 16


def item_of_fixture(given: Mapping[str, Json]) -> GenerationItem:
    """Return the item that a fixture's input asks for.

    Raises:
        BundleError: It is not exactly one of `messages`, `text` and `token_ids`, with an
            optional `max_tokens`.
    """
    try:
        fixture = _Given.model_validate(given)
    except ValidationError as error:
        fields = ", ".join(".".join(map(str, each["loc"])) for each in error.errors())
        raise BundleError(f"a fixture's input is not valid: {fields}", param="fixtures") from None
    inputs = (fixture.messages, fixture.text, fixture.token_ids)
    if sum(each is not None for each in inputs) != 1:
        raise BundleError(
            "a fixture needs exactly one of messages, text and token_ids", param="fixtures"
        )
    return GenerationItem(
        prompt=Prompt(
            messages=_messages(fixture.messages),
            text=fixture.text,
            token_ids=None if fixture.token_ids is None else tuple(fixture.token_ids),
            param="fixtures",
        ),
        max_output_tokens=fixture.max_tokens,
        sampling=Sampling(temperature=0.0),
    )


def _messages(turns: list[_Turn] | None) -> tuple[Message, ...] | None:
    if turns is None:
        return None
    return tuple(Message(role=turn.role, content=turn.content, name=turn.name) for turn in turns)
