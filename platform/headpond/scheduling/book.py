"""The book of calls: who is not over yet, whose time is up, and what there is to deliver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from headpond.call import Done, Ended, Failed
from headpond.errors import DeadlineExceeded, HeadpondError
from headpond.scheduling.deadlines import Deadlines
from headpond.scheduling.sequence import Delivery, Item, LiveCall, Stage


class CallBook:
    """Keeps calls from their admission to their last delivery, for either scheduler.

    Attributes:
        finished: Calls that are over, by outcome.
    """

    def __init__(self) -> None:
        """Start empty."""
        self.finished: Counter[str] = Counter()
        self._calls: dict[LiveCall, None] = {}
        self._deadlines = Deadlines()
        self._cancelled: dict[LiveCall, HeadpondError] = {}
        self._touched: dict[LiveCall, None] = {}

    @property
    def calls(self) -> Mapping[LiveCall, None]:
        """The calls that are not over."""
        return self._calls

    def admit(
        self,
        call: LiveCall,
        now_s: float,
        enqueue: Callable[[LiveCall, Sequence[Item], float], None],
    ) -> Delivery | None:
        """Take in a call; what planning has answered of it is answered.

        Args:
            call: Planned.
            now_s: When.
            enqueue: Lets the items wait that planning has not answered, or raises.

        Returns:
            The whole call, when planning has answered all of it.

        Raises:
            DeadlineExceeded: Its time is up already.
        """
        if call.deadline_at_s <= now_s:
            raise DeadlineExceeded
        asked = call.asked
        if asked:
            enqueue(call, asked, now_s)
        for item in call.items:
            if item.plan.answer is not None:
                item.answer(item.plan.answer)
        call.open = len(asked)
        self._calls[call] = None
        if not call.open:
            return self._finish(call, now_s)
        self._deadlines.add(call)
        if call.pending:
            self._touched[call] = None
        return None

    def cancel(self, call: LiveCall, error: HeadpondError) -> None:
        """End a call at the next chance: nobody reads it any more, for the reason `error`."""
        if call in self._calls:
            self._cancelled.setdefault(call, error)

    def ending(self, now_s: float) -> list[tuple[LiveCall, HeadpondError]]:
        """Take out the calls to be ended now: those whose time is up, and the cancelled."""
        late = [(call, DeadlineExceeded()) for call in self._deadlines.due(now_s)]
        cancelled, self._cancelled = self._cancelled, {}
        return [*late, *cancelled.items()]

    def end(self, call: LiveCall, error: HeadpondError) -> list[Item]:
        """Let a call end as a whole; what it had not delivered will be dropped.

        Returns:
            Its items that are not over, which have to be closed.
        """
        if call not in self._calls or call.failure is not None:
            return []
        call.failure = error
        return [item for item in call.items if item.stage is not Stage.OVER]

    def give(self, item: Item, outputs: tuple[object, ...], now_s: float) -> None:
        """Pass outputs on to a call."""
        item.give(outputs, now_s)
        self._touched[item.call] = None

    def done(self, item: Item) -> None:
        """Note that an item has all its outputs; its work is what it came to."""
        item.call.pending.append(Done(item.index, item.work))

    def fail(self, item: Item, error: HeadpondError) -> None:
        """Note that one item ends with an error; the others of its call go on."""
        item.call.item_error = item.call.item_error or error
        item.call.pending.append(Failed(item.index, error))

    def released(self, item: Item) -> None:
        """Note that an item holds nothing any more."""
        item.call.open -= 1
        self._touched[item.call] = None

    @property
    def next_deadline_s(self) -> float | None:
        """When the next call's time is up; None when no call has to be watched."""
        return self._deadlines.next_s

    @property
    def has_news(self) -> bool:
        """Whether there may be something to collect."""
        return bool(self._touched)

    def collect(self, now_s: float) -> list[Delivery]:
        """Hand out what there is for each call: for streams at once, else at the end."""
        deliveries = []
        touched, self._touched = self._touched, {}
        for call in touched:
            if call.open == 0:
                deliveries.append(self._finish(call, now_s))
            elif call.call.stream and call.pending:
                deliveries.append(Delivery(call, call.pending))
                call.pending = []
        return deliveries

    def _finish(self, call: LiveCall, now_s: float) -> Delivery:
        del self._calls[call]
        self._deadlines.forget(call)
        call.failure = call.failure or self._cancelled.pop(call, None)
        report = call.report(now_s)
        self.finished[report.outcome] += 1
        if call.failure is not None:
            return Delivery(call, (), call.failure, report)
        call.pending.append(Ended(report.work, report.phases_s))
        return Delivery(call, call.pending, None, report)
