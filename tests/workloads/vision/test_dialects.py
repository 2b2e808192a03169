"""`POST /v1/images/classifications`: JSON and forms in, classes and errors out."""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import replace

import pytest
from pydantic import ValidationError

from headpond.call import Done, Failed, Output
from headpond.dialect import Exchange, Heading, Incoming, ItemEvent
from headpond.errors import EngineFailed, HeadpondError, InvalidRequest, PayloadTooLarge
from headpond.http.errors import invalid_request
from headpond.units import Work
from headpond_workloads.images.decoder import decode
from headpond_workloads.vision.dialects import routes
from headpond_workloads.vision.items import (
    Classification,
    ClassScore,
    ImageItem,
    Rejected,
    Selection,
)
from headpond_workloads.vision.schema import MAX_IMAGES, ClassificationList
from workloads.images.pictures import saved, scene

ROUTE = routes[0]
HEADING = Heading(request_id="r-1", created_s=17, model="eyes", fingerprint="m@1+abc")
PNG = saved(scene(), "PNG")
TEXT = b64encode(PNG).decode()
SEEN = Classification(classes=(ClassScore("cat", 3, 0.75), ClassScore("dog", 1, 0.125)), pixels=12)


def read(**fields: object) -> Exchange:
    body = json.dumps({"model": "eyes", **fields}).encode()
    return ROUTE.read(Incoming(body=body, content_type="application/json"))


def form(*parts: tuple[str, str | bytes]) -> Exchange:
    body = b""
    for name, value in (("model", "eyes"), *parts):
        file = '; filename="x.png"' if isinstance(value, bytes) else ""
        head = f'--edge\r\nContent-Disposition: form-data; name="{name}"{file}\r\n\r\n'
        body += head.encode() + (value if isinstance(value, bytes) else value.encode()) + b"\r\n"
    return ROUTE.read(
        Incoming(body=body + b"--edge--\r\n", content_type="multipart/form-data; boundary=edge")
    )


def items(exchange: Exchange) -> list[ImageItem]:
    found = []
    for item in exchange.ask().items:
        assert isinstance(item, ImageItem)
        found.append(item)
    return found


def answer(exchange: Exchange, *events: ItemEvent) -> ClassificationList:
    body = exchange.body(HEADING, events, Work())
    assert isinstance(body, ClassificationList)
    return body


@pytest.mark.parametrize(
    "exchange", [read(image=TEXT), form(("image", PNG)), form(("image", TEXT))]
)
def test_one_image(exchange: Exchange) -> None:
    ask = exchange.ask()
    assert (ask.model, ask.stream) == ("eyes", False)
    assert items(exchange) == [ImageItem(data=PNG, selection=Selection(), param="image")]


def test_several_images_are_optional_and_named() -> None:
    for exchange in (
        read(image=[TEXT, TEXT]),
        form(("image", PNG), ("image", PNG)),
        form(("image[]", PNG), ("image[]", TEXT)),
    ):
        assert [(item.param, item.optional, item.data) for item in items(exchange)] == [
            ("image.0", True, PNG),
            ("image.1", True, PNG),
        ]


def test_a_list_of_one_is_one_image() -> None:
    for exchange in (read(image=[TEXT]), form(("image[]", PNG))):
        assert items(exchange) == [ImageItem(data=PNG, param="image")]


@pytest.mark.parametrize(
    "exchange",
    [
        read(image=TEXT, top_k=3, labels=["cat", "dog"]),
        form(("image", PNG), ("top_k", "3"), ("labels", "cat"), ("labels", "dog")),
    ],
)
def test_a_selection(exchange: Exchange) -> None:
    (item,) = items(exchange)
    assert item.selection == Selection(top_k=3, labels=("cat", "dog"))


@pytest.mark.parametrize(
    "exchange",
    [read(image=TEXT, return_input=True), form(("image", PNG), ("return_input", "true"))],
)
def test_the_image_as_the_model_saw_it_is_a_url(exchange: Exchange) -> None:
    assert [item.shown for item in items(exchange)] == [True]
    (plain,) = answer(exchange, Output(0, SEEN)).data
    (shown,) = answer(exchange, Output(0, replace(SEEN, seen=b"png"))).data
    assert (plain.input, shown.input) == (None, "data:image/png;base64,cG5n")


def test_one_label_needs_no_list_and_null_is_absent() -> None:
    assert items(read(image=TEXT, labels="cat"))[0].selection == Selection(labels=("cat",))
    assert items(read(image=TEXT, labels=None, top_k=None))[0].selection == Selection()


@pytest.mark.parametrize(
    "text",
    [
        f"data:image/png;base64,{TEXT}",
        f"DATA:image/png;charset=utf-8;Base64,{TEXT}",
        f"data:;base64,{TEXT}",
        TEXT.rstrip("="),
        "\n".join(TEXT[at : at + 76] for at in range(0, len(TEXT), 76)) + "\n",
    ],
)
def test_images_as_texts(text: str) -> None:
    assert items(read(image=text))[0].data == PNG


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("http://example.org/cat.png", "http: URLs are not fetched"),
        ("https://example.org/cat.png", "https: URLs are not fetched"),
        ("file:///etc/passwd", "file: URLs are not fetched"),
        ("s3://bucket/cat.png", "s3: URLs are not fetched"),
        ("data:image/png,abc", "must read data:<type>"),
        ("data:image/png;base64", "must read data:<type>"),
        ("data:image/png;base64,", "empty"),
        ("", "empty"),
        ("====", "empty"),
        ("not base64!", "not valid base64"),
        ("abcde", "not valid base64"),
        ("ab=cd", "not valid base64"),
        ("_-_-", "not valid base64"),
        ("ü" * 40, "not valid base64"),
    ],
)
def test_what_is_no_image_is_refused_by_name(text: str, message: str) -> None:
    for images, param in ((text, "image"), ([TEXT, text], "image.1")):
        with pytest.raises(InvalidRequest, match=message) as refusal:
            read(image=images).ask()
        assert refusal.value.param == param
        assert len(refusal.value.message) < 200


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "image"),
        ({"image": []}, "image"),
        ({"image": None}, "image"),
        ({"image": 3}, "image"),
        ({"image": [TEXT, 3]}, "image.1"),
        ({"image": ["x"] * (MAX_IMAGES + 1)}, "image"),
        ({"image": TEXT, "top_k": 0}, "top_k"),
        ({"image": TEXT, "top_k": -1}, "top_k"),
        ({"image": TEXT, "top_k": "3"}, "top_k"),
        ({"image": TEXT, "top_k": 1.5}, "top_k"),
        ({"image": TEXT, "top_k": True}, "top_k"),
        ({"image": TEXT, "return_input": 1}, "return_input"),
        ({"image": TEXT, "labels": []}, "labels"),
        ({"image": TEXT, "labels": [""]}, "labels.0"),
        ({"image": TEXT, "labels": [3]}, "labels.0"),
        ({"image": TEXT, "model": ""}, "model"),
    ],
)
def test_wrong_fields_are_named(fields: dict[str, object], param: str) -> None:
    body = json.dumps({"model": "eyes", **fields}).encode()
    with pytest.raises(ValidationError) as refusal:
        read(**fields)
    assert invalid_request(refusal.value, body).param == param
    assert refusal.value.error_count() <= 2


@pytest.mark.parametrize("given", [3, {"url": "x"}, [TEXT, 3], [None]])
def test_what_can_be_no_image_is_told_what_an_image_is(given: object) -> None:
    with pytest.raises(ValidationError, match="as a string: base64, or a data: URL"):
        read(image=given)


@pytest.mark.parametrize("number", ["", "x", "-1", "0", "1.5", "9" * 5000, "³"])
def test_a_number_of_a_form_must_be_one(number: str) -> None:
    with pytest.raises(ValidationError):
        form(("image", PNG), ("top_k", number))


def test_a_number_that_is_too_large_is_called_so() -> None:
    with pytest.raises(ValidationError, match="less than or equal to 100000"):
        form(("image", PNG), ("top_k", "100000000"))


def test_the_answer() -> None:
    body = answer(read(image=TEXT), Output(0, SEEN), Done(0, Work()))
    assert json.loads(body.model_dump_json(exclude_none=True)) == {
        "object": "list",
        "created": 17,
        "model": "eyes",
        "data": [
            {
                "index": 0,
                "classes": [
                    {"label": "cat", "index": 3, "score": 0.75},
                    {"label": "dog", "index": 1, "score": 0.125},
                ],
            }
        ],
        "usage": {"images": 1, "pixels": 12},
    }


BROKEN = Rejected(error=PayloadTooLarge("too large", param="image.1"))


def test_of_several_images_each_has_classes_or_an_error_in_order() -> None:
    body = answer(
        read(image=[TEXT] * 3),
        Failed(2, EngineFailed()),
        Output(1, BROKEN),
        Done(1, Work()),
        Output(0, SEEN),
        Done(0, Work()),
    )
    first, second, third = body.data
    assert [first.index, second.index, third.index] == [0, 1, 2]
    assert first.classes is not None
    assert first.error is None
    assert second.classes is None
    assert second.error is not None
    assert second.error.model_dump() == {
        "message": "too large",
        "type": "invalid_request_error",
        "param": "image.1",
        "code": "request_too_large",
    }
    assert third.error is not None
    assert third.error.type == "server_error"
    assert body.usage.images == 1


@pytest.mark.parametrize(
    ("images", "events", "error"),
    [
        (1, [Failed(0, EngineFailed())], EngineFailed),
        (2, [Output(0, BROKEN), Failed(1, EngineFailed())], PayloadTooLarge),
        (2, [Failed(1, InvalidRequest("no")), Failed(0, EngineFailed())], EngineFailed),
    ],
)
def test_the_call_fails_when_nothing_was_classified(
    images: int, events: list[ItemEvent], error: type[HeadpondError]
) -> None:
    with pytest.raises(error):
        answer(read(image=[TEXT] * images), *events)


def test_the_example_is_an_image() -> None:
    example = ROUTE.example
    (item,) = items(read(**{key: value for key, value in example.items() if key != "model"}))
    assert decode(item.data, max_pixels=10, needed=2, param="image").pixels == 4
