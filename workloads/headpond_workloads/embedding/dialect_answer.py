"""What embedding gave, as the parts that every dialect writes its answer from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from headpond.call import Failed, Output
from headpond.dialect import ItemEvent, Raw
from headpond.errors import EngineFailed
from headpond_workloads.embedding.items import Embedding
from headpond_workloads.embedding.vectors import is_finite


def embeddings(events: Sequence[ItemEvent], params: Sequence[str]) -> list[Embedding]:
    """Return what each text came to, in the order of the request.

    Args:
        events: Of the finished call.
        params: The request's field of each text.

    Raises:
        HeadpondError: A text failed; it names the field. The dialects have no place for one
            failed text among others.
    """
    found: dict[int, Embedding] = {}
    for event in events:
        if isinstance(event, Failed):
            raise event.error.named(params[event.item])
        if isinstance(event, Output):
            found[event.item] = _embedding(event.payload, params[event.item])
    return [found[item] for item in range(len(params))]


def _embedding(payload: object, param: str) -> Embedding:
    if not isinstance(payload, Embedding):
        raise TypeError(f"embedding gives Embedding, not {type(payload).__name__}")
    if not is_finite(payload.vectors):
        raise EngineFailed("the vector is not finite", param=param)
    return payload


def tokens(found: Iterable[Embedding]) -> int:
    """Return the tokens that were computed."""
    return sum(embedding.tokens for embedding in found)


def json_list(entries: Iterable[str]) -> str:
    """Return a JSON array of what is JSON already."""
    return f"[{','.join(entries)}]"


def json_object(fields: Mapping[str, str]) -> str:
    """Return a JSON object of what is JSON already; the names need no escapes."""
    inside = ",".join(f'"{name}":{value}' for name, value in fields.items())
    return f"{{{inside}}}"


def raw_json(text: str) -> Raw:
    """Return an answer whose JSON was written by hand.

    As Python floats each float32 would be shown in the 17 digits of a double.
    """
    return Raw(content=text.encode(), media_type="application/json")
