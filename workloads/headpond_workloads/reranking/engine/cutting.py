"""Which of a document's tokens count."""

from __future__ import annotations

from headpond.errors import ContextLengthExceeded, InvalidRequest
from headpond_workloads.reranking.items import PairItem


def check_query(tokens: int, most: int) -> None:
    """Refuse a query that leaves no room for a document; queries are never cut.

    Args:
        tokens: Of the query, with all special ones of the sequence it is in.
        most: The most there may be beside a document.

    Raises:
        ContextLengthExceeded: With both numbers.
    """
    if tokens > most:
        raise ContextLengthExceeded(
            f"the query takes {tokens} tokens, special ones included, and {most} are allowed; "
            "shorten it",
            param="query",
        )


def cut(token_ids: list[int], item: PairItem, *, taken: int, most: int) -> list[int]:
    """Return the tokens that count of a document, or of a text that is scored alone.

    Args:
        token_ids: All of its tokens.
        item: Says whether and where it is cut.
        taken: Tokens beside it: the query's, where the two share a sequence, and special ones.
        most: The most tokens of the sequence; more than are taken.

    Raises:
        InvalidRequest: No token is to count.
        ContextLengthExceeded: It is too long and not to be cut; says both numbers.
    """
    asked, room = item.max_document_tokens, most - taken
    if asked is not None:
        if asked < 1:
            raise InvalidRequest("at least one token of a document must count", param=item.param)
        token_ids = _kept(token_ids, asked, item)
    if len(token_ids) > room and not item.truncate:
        raise ContextLengthExceeded(
            f"the text has {taken + len(token_ids)} tokens, special ones and the query it is read "
            f"with included, and {most} are allowed; shorten it",
            param=item.param,
        )
    return _kept(token_ids, room, item)


def _kept(token_ids: list[int], count: int, item: PairItem) -> list[int]:
    return token_ids[:count] if item.keep_start else token_ids[-count:]
