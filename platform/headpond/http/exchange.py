"""A request's body into what it asks, and the events of its call into what it gets.

The same for a request that comes by itself and for one record of a batch.
"""

from __future__ import annotations

from pydantic import ValidationError

from headpond.call import Answer, Ended, Event
from headpond.dialect import Ask, Exchange, Incoming, ItemEvent, Route
from headpond.errors import InvalidRequest, UnsupportedParameter, WorkerLost
from headpond.form import is_urlencoded
from headpond.http.errors import invalid_request


def read_exchange(route: Route, incoming: Incoming) -> tuple[Exchange, Ask]:
    """Parse a request once, and say what it asks.

    Raises:
        InvalidRequest: A field is wrong; names it.
        UnsupportedParameter: It asks for a stream, and the route has none.
    """
    try:
        exchange = route.read(incoming)
    except ValidationError as error:
        if is_urlencoded(incoming.body, incoming.content_type):
            wanted = "JSON, or multipart/form-data" if route.form else "JSON"
            raise InvalidRequest(f"The body is a urlencoded form; send {wanted}.") from None
        raise invalid_request(error, incoming.body) from None
    ask = exchange.ask()
    if ask.stream and route.chunk is None:
        raise UnsupportedParameter(f"{route.path} does not stream.", param="stream")
    return exchange, ask


async def whole_events(answer: Answer) -> tuple[list[ItemEvent], Ended]:
    """Collect every event of a call.

    Raises:
        HeadpondError: The call as a whole failed.
        WorkerLost: The events stopped before the last.
    """
    events: list[Event] = []
    async for batch in answer.batches():
        events += batch
    ended = events.pop() if events else None
    if not isinstance(ended, Ended):
        raise WorkerLost
    return [event for event in events if not isinstance(event, Ended)], ended
