"""What exchanges do with calls that went wrong."""

from __future__ import annotations

import json

import pytest

from headpond.call import Done, Failed
from headpond.dialect import Exchange, Heading, Incoming
from headpond.errors import EngineFailed, NotReady, UnsupportedParameter
from headpond.units import Work
from headpond_workloads.oip.about import AboutExchange, ready
from headpond_workloads.oip.adapter import WantedOutput
from headpond_workloads.oip.errors import oip_error
from headpond_workloads.oip.infer import InferExchange
from headpond_workloads.oip.naming import Served
from headpond_workloads.oip.writing import write_answer
from workloads.oip.toy import AboutItem, adapter

HEADING = Heading(request_id="r", created_s=1, model="m", fingerprint="parrot@1.2+0123")
INCOMING = Incoming(body=json.dumps(adapter.example).encode(), path={"model": "copy"})


@pytest.mark.parametrize(
    "exchange", [InferExchange(adapter, INCOMING), AboutExchange(AboutItem(), ready, INCOMING)]
)
def test_a_failure_is_raised_and_nothing_streams(exchange: Exchange) -> None:
    with pytest.raises(EngineFailed, match="broke"):
        exchange.body(HEADING, [Failed(0, EngineFailed("it broke"))], Work())
    with pytest.raises(UnsupportedParameter):
        exchange.stream(HEADING)


def test_an_engine_that_says_nothing_is_not_ready() -> None:
    exchange = AboutExchange(AboutItem(), ready, INCOMING)
    assert exchange.ask().items == (AboutItem(),)
    with pytest.raises(EngineFailed, match="did not say"):
        exchange.body(HEADING, [Done(0, Work())], Work())


def test_an_output_that_the_model_did_not_give() -> None:
    with pytest.raises(EngineFailed, match="no output `y`"):
        write_answer(Served("copy", "1"), None, [], [WantedOutput(name="y")])


def test_an_error_is_one_bounded_text_with_its_own_status() -> None:
    answer = oip_error(NotReady("is loading", param="model"))
    assert (answer.status, answer.body) == (503, {"error": "model: is loading"})
    assert len(str(oip_error(EngineFailed("x" * 9000)).body["error"])) == 2000
