"""Vision's HTTP routes, each in the dialect that its clients speak."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence

from headpond.call import Failed, Output
from headpond.dialect import Ask, Exchange, Heading, ItemEvent, Route
from headpond.encoded import file_bytes
from headpond.errors import HeadpondError, InvalidRequest
from headpond.units import Work
from headpond_workloads.oip.routes import oip_routes
from headpond_workloads.vision.items import Classification, ImageItem, Rejected, Selection
from headpond_workloads.vision.schema import (
    CLASSIFICATIONS_PATH,
    ClassificationList,
    ClassificationRequest,
    ClassificationUsage,
    ImageClass,
    ImageClasses,
    ImageError,
)
from headpond_workloads.vision.tensors import adapter

Answer = Classification | HeadpondError


class ClassificationExchange(Exchange):
    """Some images, and the classes of each.

    One image that fails, fails the call. Of several, each has its classes or its error, and
    the call fails only when all do.
    """

    def __init__(self, request: ClassificationRequest) -> None:
        """Read a request of the right types."""
        self._request = request
        self._several = len(request.image) > 1

    def ask(self) -> Ask:
        """Return one item for each image.

        Raises:
            InvalidRequest: An image is no base64; names it, e.g. `image.2`.
        """
        request = self._request
        selection = Selection(top_k=request.top_k, labels=request.labels)
        items = tuple(
            ImageItem(
                data=file_bytes(given, self._param(at), "image"),
                selection=selection,
                optional=self._several,
                shown=bool(request.return_input),
                param=self._param(at),
            )
            for at, given in enumerate(request.image)
        )
        return Ask(model=request.model, items=items)

    def body(self, heading: Heading, events: Sequence[ItemEvent], work: Work) -> ClassificationList:
        """Return each image's classes, in the order of the request.

        Raises:
            HeadpondError: The only image, or every image, failed.
        """
        answers = [self._answer(event) for event in sorted(_ends(events), key=_item)]
        classified = [answer for answer in answers if isinstance(answer, Classification)]
        if not classified:
            raise next(answer for answer in answers if isinstance(answer, HeadpondError))
        return ClassificationList(
            created=heading.created_s,
            model=heading.model,
            data=[_entry(at, answer) for at, answer in enumerate(answers)],
            usage=ClassificationUsage(
                images=len(classified), pixels=sum(each.pixels for each in classified)
            ),
        )

    def _answer(self, event: Output | Failed) -> Answer:
        if isinstance(event, Output):
            if isinstance(event.payload, Classification):
                return event.payload
            if not isinstance(event.payload, Rejected):
                raise TypeError(f"classes are no {type(event.payload).__name__}")
            return event.payload.error
        if event.error.param is None and isinstance(event.error, InvalidRequest):
            event.error.param = self._param(event.item)
        return event.error

    def _param(self, at: int) -> str:
        return f"image.{at}" if self._several else "image"


def _ends(events: Sequence[ItemEvent]) -> list[Output | Failed]:
    """Return the one event of each item that says what became of it."""
    return [event for event in events if isinstance(event, Output | Failed)]


def _item(event: Output | Failed) -> int:
    return event.item


def _entry(at: int, answer: Answer) -> ImageClasses:
    if isinstance(answer, HeadpondError):
        error = ImageError(
            message=answer.message, type=answer.kind, param=answer.param, code=answer.code
        )
        return ImageClasses(index=at, error=error)
    classes = [
        ImageClass(label=each.label, index=each.index, score=each.score) for each in answer.classes
    ]
    seen = (
        None if answer.seen is None else f"data:image/png;base64,{b64encode(answer.seen).decode()}"
    )
    return ImageClasses(index=at, classes=classes, input=seen)


_EXAMPLE = (
    # A PNG of 2 by 2 pixels.
    "iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAIAAAD91JpzAAAAEklEQVR4nGP4z8DAAMIM/4EAAB/uBfsL2WiLAAAA"
    "AElFTkSuQmCC"
)

routes: tuple[Route, ...] = (
    Route.json(
        CLASSIFICATIONS_PATH,
        "Say what images show.",
        request=ClassificationRequest,
        exchange=ClassificationExchange,
        response=ClassificationList,
        form=True,
        example={"image": _EXAMPLE, "top_k": 3},
    ),
    *oip_routes(adapter),
)
