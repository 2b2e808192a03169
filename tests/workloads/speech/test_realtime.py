"""`/v1/realtime?intent=transcription` as a client and an engine see it, without a socket."""

from __future__ import annotations

import json
from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from headpond.call import Failed, Output
from headpond.conversation import Handshake, HangUp, Say
from headpond.errors import (
    DeadlineExceeded,
    EngineFailed,
    HeadpondError,
    InvalidRequest,
    ModelNotFound,
    NotReady,
    Overloaded,
    PayloadTooLarge,
    RateLimited,
    WorkerLost,
)
from headpond_workloads.speech.dialect_realtime import (
    BEHIND_MS,
    TOO_LATE_MS,
    RealtimeConversation,
)
from headpond_workloads.speech.items import (
    Clear,
    Commit,
    Committed,
    Encoding,
    Endpointing,
    Final,
    Format,
    Listening,
    Partial,
    Retune,
    Started,
    Stopped,
    Stream,
    Word,
)
from workloads.speech.talk import MS, Event, Talk

DELTA = "conversation.item.input_audio_transcription.delta"
COMPLETED = "conversation.item.input_audio_transcription.completed"
FAILED = "conversation.item.input_audio_transcription.failed"


def kinds(events: list[Event]) -> list[str]:
    return [event["type"] for event in events]


def error(events: list[Event]) -> Event:
    (event,) = events
    assert event["type"] == "error"
    found: Event = event["error"]
    return found


def talking(*, manual: bool = False, **query: str) -> Talk:
    """Return a talk whose call is open."""
    talk = Talk(**query)
    if manual:
        talk.update(turn_detection=None)
    talk.events()
    talk.append()
    talk.admit()
    return talk


def test_the_session_begins() -> None:
    (created,) = Talk(model="ears", intent="transcription").events()
    assert created["type"] == "session.created"
    session = created["session"]
    assert session["id"] == "sess_1"
    assert session["object"] == "realtime.transcription_session"
    assert session["resume"] == {"window_s": 30.0}
    assert session["audio"]["input"] == {
        "format": {"type": "audio/pcm", "rate": 24000},
        "transcription": {},
        "turn_detection": {
            "type": "server_vad",
            "threshold": 0.5,
            "prefix_padding_ms": 300,
            "silence_duration_ms": 500,
        },
    }


def test_other_intents_are_refused() -> None:
    with pytest.raises(InvalidRequest) as refusal:
        RealtimeConversation(Handshake(session_id="s", query={"intent": "conversation"}))
    assert refusal.value.param == "intent"


def _only_ears(model: str) -> None:
    if model != "ears":
        raise ModelNotFound(f"no {model}", param="model")


def test_models_that_are_not_there_are_refused_where_they_are_named() -> None:
    with pytest.raises(ModelNotFound) as refusal:
        RealtimeConversation(
            Handshake(session_id="s", query={"model": "nose"}, check_model=_only_ears)
        )
    assert refusal.value.param == "model"
    handshake = Handshake(session_id="s", query={"model": "ears"}, check_model=_only_ears)
    talk = Talk(handshake)
    talk.events()
    refused = error(talk.update(transcription={"model": "nose"}))
    assert refused["code"] == "model_not_found"
    assert refused["param"] == "session.audio.input.transcription.model"
    talk.append()
    assert [model for model, _ in talk.opened] == ["ears"]


def test_a_call_begins_with_the_first_sound() -> None:
    talk = Talk(model="ears")
    talk.update(transcription={"language": "en"})
    assert not talk.opened
    assert talk.append(b"") == talk.events() == []
    assert not talk.opened
    talk.append(MS * 20)
    talk.append(MS * 5)
    listening = Listening(language="en", words=True)
    assert talk.opened == [("ears", Stream(Format(), listening))]
    assert [feed.units for feed in talk.fed] == [20, 5]


@given(st.lists(st.binary(max_size=200), max_size=30))
def test_units_add_up_however_small_the_pieces(pieces: list[bytes]) -> None:
    talk = Talk()
    for piece in pieces:
        talk.append(piece)
    assert sum(feed.units for feed in talk.fed) == sum(map(len, pieces)) * 1000 // 48_000
    assert talk.sound() == b"".join(pieces)


def test_an_utterance_from_beginning_to_end() -> None:
    talk = talking()
    found = talk.give(Started(0, 10))
    found += talk.give(Partial(0, "hello fair", 5, 200))
    found += talk.give(Partial(0, "hello fair", 5, 300))  # nothing new
    found += talk.give(Partial(0, "hello there", 6, 400))
    talk.append(MS * 980)
    found += talk.give(
        Stopped(0, 900),
        Committed(0, 900),
        Final(0, "hello there", 10, 640, (Word("hello", 10, 300, 0.5),), 0.75, "en"),
    )
    assert kinds(found) == [
        "input_audio_buffer.speech_started",
        DELTA,
        DELTA,
        "input_audio_buffer.speech_stopped",
        "input_audio_buffer.committed",
        "conversation.item.added",
        "conversation.item.done",
        DELTA,
        COMPLETED,
        "input_audio_buffer.acknowledged",
    ]
    names = {event["item_id"] for event in found if "item_id" in event}
    assert len(names) == 1
    deltas = [(event["delta"], event["revisable"]) for event in found if event["type"] == DELTA]
    assert deltas == [("hello", " fair"), (" ", "there"), ("there", "")]
    completed = found[-2]
    assert completed["transcript"] == "hello there"
    assert completed["usage"] == {"type": "duration", "seconds": 0.9}
    assert completed["words"] == [{"word": "hello", "start": 0.01, "end": 0.3, "confidence": 0.5}]
    assert (completed["confidence"], completed["language"]) == (0.75, "en")
    assert found[-1]["sequence"] == 1  # the second append goes on beyond 900 ms
    assert found[-1]["audio_end_ms"] == 900


def test_items_are_a_chain_and_usage_is_all_of_the_sound() -> None:
    talk = talking()
    talk.append(MS * 1980)
    first = talk.give(Committed(0, 700), Final(0, "one", 0, 700))
    second = talk.give(Committed(1, 2000), Final(1, "", 900, 1500))
    one, two = first[0], second[0]
    assert (one["previous_item_id"], two["previous_item_id"]) == (None, one["item_id"])
    assert one["item_id"] != two["item_id"]
    usages = [e["usage"]["seconds"] for e in first + second if e["type"] == COMPLETED]
    assert usages == [0.7, 1.3]
    assert [e["sequence"] for e in second if "sequence" in e] == [2]


def test_a_manual_commit() -> None:
    talk = talking(manual=True)
    talk.heard()
    assert "buffer too small" in error(talk.send("input_audio_buffer.commit"))["message"]
    talk.append(MS * 80)
    assert talk.send("input_audio_buffer.commit", event_id="c1") == []
    assert isinstance(talk.heard()[-1], Commit)
    refused = error(talk.send("input_audio_buffer.commit", event_id="c2"))
    assert refused["code"] == "input_audio_buffer_commit_empty"
    assert refused["event_id"] == "c2"
    assert "0.00ms" in refused["message"]
    assert talk.heard() == []
    found = talk.give(Committed(0, 100), Final(0, "hi", 0, 100))
    assert found[-1]["sequence"] == 2
    talk.append(MS * 100)  # the session goes on
    assert talk.send("input_audio_buffer.commit") == []


def test_a_commit_before_any_sound_is_an_error() -> None:
    talk = Talk()
    talk.events()
    assert error(talk.send("input_audio_buffer.commit"))["code"].endswith("commit_empty")


def test_a_last_commit_after_the_server_has_committed_is_answered_and_harmless() -> None:
    talk = talking()
    talk.append(MS * 980)
    talk.give(Committed(0, 1000), Final(0, "hi", 0, 800))
    talk.heard()
    refused = error(talk.send("input_audio_buffer.commit", event_id="last"))
    assert (refused["code"], refused["event_id"]) == ("input_audio_buffer_commit_empty", "last")
    assert talk.heard() == []
    talk.append(MS * 150)
    assert talk.send("input_audio_buffer.commit") == []
    assert isinstance(talk.heard()[-1], Commit)


def test_clearing() -> None:
    talk = talking(manual=True)
    talk.append(MS * 200)
    talk.give(Partial(0, "never mind", 0, 200))
    assert kinds(talk.send("input_audio_buffer.clear")) == ["input_audio_buffer.cleared"]
    assert isinstance(talk.heard()[-1], Clear)
    assert error(talk.send("input_audio_buffer.commit"))["code"].endswith("commit_empty")
    assert talk.give(Partial(0, "never mind that", 5, 220)) == []
    talk.append(MS * 200)
    assert kinds(talk.give(Partial(1, "now", 3, 400))) == [DELTA]
    idle = Talk()
    idle.events()
    assert kinds(idle.send("input_audio_buffer.clear")) == ["input_audio_buffer.cleared"]
    assert idle.heard() == []


@pytest.mark.parametrize(
    ("written", "form"),
    [
        ({"type": "audio/pcm", "rate": 24000}, Format()),
        ({"type": "audio/pcm", "rate": 16000}, Format(rate_hz=16_000)),
        ({"rate": 48000, "channels": 2}, Format(rate_hz=48_000, channels=2)),
        ({"encoding": "float32"}, Format(Encoding.FLOAT32)),
        ({"type": "audio/pcmu"}, Format(Encoding.ULAW, 8_000)),
        ({"type": "audio/pcma", "rate": 8000}, Format(Encoding.ALAW, 8_000)),
    ],
)
def test_formats(written: dict[str, JsonValue], form: Format) -> None:
    talk = Talk()
    talk.update(format=written)
    talk.append(bytes(form.frame_bytes * form.rate_hz // 100))
    assert talk.opened[0][1].format == form
    assert talk.fed[0].units == 10


def test_settings_change_piece_by_piece() -> None:
    talk = Talk()
    talk.update(turn_detection={"threshold": 0.7}, transcription={"model": "ears"})
    talk.update(turn_detection={"silence_duration_ms": 300}, transcription={"prompt": "Pond"})
    (updated,) = talk.update(transcription={"language": "en", "prompt": None})
    sound = updated["session"]["audio"]["input"]
    assert sound["transcription"] == {"model": "ears", "language": "en"}
    assert sound["turn_detection"]["threshold"] == 0.7
    assert sound["turn_detection"]["silence_duration_ms"] == 300
    (updated,) = talk.update(turn_detection=None)
    assert updated["session"]["audio"]["input"]["turn_detection"] is None
    (updated,) = talk.update(turn_detection={"type": "server_vad"})
    assert updated["session"]["audio"]["input"]["turn_detection"]["threshold"] == 0.5
    (updated,) = talk.send("session.update", session={})
    assert updated["session"]["audio"]["input"]["turn_detection"]["threshold"] == 0.5
    talk.update(format={"type": "audio/pcmu"})
    talk.append()
    assert talk.opened == [
        ("ears", Stream(Format(Encoding.ULAW, 8_000), talk.opened[0][1].listening))
    ]


def test_settings_change_while_sound_is_heard() -> None:
    talk = talking()
    talk.heard()
    assert kinds(talk.update(transcription={"language": "de"})) == ["session.updated"]
    assert kinds(talk.update(turn_detection=None)) == ["session.updated"]
    assert talk.heard() == [
        Retune(Listening(language="de", words=True)),
        Retune(Listening(language="de", words=True, endpointing=None)),
    ]
    assert kinds(talk.update(turn_detection=None)) == ["session.updated"]
    assert talk.heard() == []
    assert error(talk.update(format={"type": "audio/pcmu"}))["param"].endswith("input.format")
    assert error(talk.update(transcription={"model": "x"}))["param"].endswith("model")


@pytest.mark.parametrize(
    ("sound", "param"),
    [
        ({"noise_reduction": {"type": "near_field"}}, "noise_reduction"),
        ({"noise_reduction": []}, "noise_reduction"),
        ({"noise_reduction": {}}, "noise_reduction"),
        ({"transcription": {"delay": False}}, "transcription.delay"),
        ({"transcription": {"keywords": ""}}, "transcription.keywords"),
        ({"turn_detection": {"eagerness": 0}}, "turn_detection.eagerness"),
        ({"transcription": {"delay": "low"}}, "transcription.delay"),
        ({"transcription": {"keywords": ["a"]}}, "transcription.keywords"),
        ({"transcription": {"languages": ["a"]}}, "transcription.languages"),
        ({"turn_detection": {"type": "semantic_vad"}}, "turn_detection.type"),
        ({"turn_detection": {"idle_timeout_ms": 6000}}, "turn_detection.idle_timeout_ms"),
        ({"turn_detection": {"threshold": 2}}, "turn_detection.threshold"),
        ({"turn_detection": {"threshold": "0.5"}}, "turn_detection.threshold"),
        ({"turn_detection": {"silence_duration_ms": -1}}, "turn_detection.silence_duration_ms"),
        ({"turn_detection": 7}, "turn_detection"),
        ({"turn_detection": []}, "turn_detection"),
        ({"format": {"type": "audio/mp3"}}, "format.type"),
        ({"format": {"rate": 1}}, "format.rate"),
        ({"format": {"type": "audio/pcmu", "rate": 16000}}, "format"),
        ({"format": "pcm16"}, "format"),
        ({"transcription": {"language": "English"}}, "transcription.language"),
    ],
)
def test_wrong_settings_are_named_and_change_nothing(
    sound: dict[str, JsonValue], param: str
) -> None:
    talk = Talk()
    (created,) = talk.events()
    found = error(talk.update(**sound))
    assert found["param"] == f"session.audio.input.{param}"
    (updated,) = talk.send("session.update", session={})
    assert updated["session"] == created["session"]


@pytest.mark.parametrize(
    ("session", "param"),
    [
        ({"type": "realtime"}, "session.type"),
        ({"include": ["item.input_audio_transcription.logprobs"]}, "session.include"),
        ({"audio": None, "type": 5}, "session.type"),
        ("all", "session"),
    ],
)
def test_wrong_sessions(session: JsonValue, param: str) -> None:
    talk = Talk()
    talk.events()
    assert error(talk.send("session.update", session=session, event_id="u1"))["param"] == param


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("input_audio_format", "audio.input.format"),
        ("input_audio_transcription", "audio.input.transcription"),
        ("turn_detection", "audio.input.turn_detection"),
    ],
)
def test_fields_of_the_beta_in_an_update_of_today(old: str, new: str) -> None:
    talk = Talk()
    talk.events()
    refused = error(talk.send("session.update", session={old: "g711_ulaw"}))
    assert refused["param"] == f"session.{old}"
    assert new in refused["message"]


def test_a_gap_is_told_while_no_call_runs() -> None:
    talk = Talk()
    talk.events()
    talk.append(MS * 20, sequence=2)
    assert not talk.opened
    talk.now_s += 1.5
    gap = error(talk.tick())
    assert (gap["code"], gap["expected_sequence"], gap["next_sequence"]) == ("sequence_gap", 1, 2)
    assert talk.sound() == MS * 20


def test_the_update_of_the_beta() -> None:
    talk = Talk()
    (updated,) = talk.send(
        "transcription_session.update",
        session={
            "input_audio_format": "g711_ulaw",
            "input_audio_transcription": {"model": "ears", "language": "en"},
            "turn_detection": {"type": "server_vad", "threshold": 0.25},
        },
    )[1:]
    assert updated["type"] == "session.updated"
    talk.append()
    listening = Listening(language="en", endpointing=Endpointing(threshold=0.25), words=True)
    assert talk.opened == [("ears", Stream(Format(Encoding.ULAW, 8_000), listening))]


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ("not json", None),
        ("[]", None),
        ("null", None),
        ("{}", "type"),
        ('{"type": 5}', "type"),
        ('{"type": "response.create"}', "type"),
        ('{"type": "conversation.item.create", "item": {}}', "type"),
        ('{"type": "input_audio_buffer.append"}', "audio"),
        ('{"type": "input_audio_buffer.append", "audio": 5}', "audio"),
        ('{"type": "input_audio_buffer.append", "audio": "A"}', "audio"),
        ('{"type": "input_audio_buffer.append", "audio": "AA A="}', "audio"),
        ('{"type": "input_audio_buffer.append", "audio": "\\u00e9"}', "audio"),
        ('{"type": "input_audio_buffer.append", "audio": "AAAA", "sequence": 0}', "sequence"),
        ('{"type": "input_audio_buffer.append", "audio": "AAAA", "sequence": "1"}', "sequence"),
        ('{"type": "session.update"}', "session"),
        ("[" * 100_000, None),
        (b"\0\1", None),
    ],
)
def test_wrong_messages_are_said_and_the_session_lives(
    message: str | bytes, param: str | None
) -> None:
    talk = Talk()
    talk.events()
    found = error(talk.raw(message))
    assert (found["type"], found["param"]) == ("invalid_request_error", param)
    talk.append()
    assert len(talk.opened) == 1


def test_errors_name_the_event_that_was_at_fault() -> None:
    talk = Talk()
    talk.events()
    for event_id, named in (("mine-1", "mine-1"), (5, None), ("x" * 600, None)):
        found = error(talk.raw(json.dumps({"type": "nothing", "event_id": event_id})))
        assert found["event_id"] == named


def test_who_lost_a_replica_waits_for_its_successor() -> None:
    talk = Talk()
    for sequence in (1, 2, 3):
        talk.append(MS * 200, sequence=sequence)
    talk.admit()
    talk.give(Started(0, 0), Committed(0, 400), Final(0, "hello", 0, 390))
    assert error(talk.fail(WorkerLost()))["acknowledged_sequence"] == 2
    talk.append(MS * 200, sequence=3)
    found = error(talk.fail(NotReady("soon", retry_after_s=1.0)))
    assert (found["code"], found["resumable"]) == ("model_not_ready", True)
    assert (found["acknowledged_sequence"], found["retry_after_ms"]) == (2, 1000)
    talk.heard()
    talk.append(MS * 200, sequence=4)
    assert talk.heard() == [], "it waits for the one that was not heard"
    talk.append(MS * 200, sequence=3)
    assert talk.sound() == MS * 200
    assert talk.hung_up is None


def test_sound_that_is_too_long_for_one_append() -> None:
    talk = Talk()
    talk.events()
    audio = b64encode(bytes(15 * 2**20 + 3)).decode()
    assert error(talk.send("input_audio_buffer.append", audio=audio))["param"] == "audio"
    assert not talk.opened


@pytest.mark.parametrize("refusal", [Overloaded, RateLimited, NotReady])
def test_a_call_that_is_not_admitted_ends_the_session(refusal: type[HeadpondError]) -> None:
    talk = Talk()
    talk.events()
    talk.append()
    found = error(talk.fail(refusal("full", retry_after_s=2.5)))
    assert (found["code"], found["retry_after_ms"]) == (refusal.code, 2500)
    assert talk.hung_up is not None
    assert talk.hung_up.code == 1013


@pytest.mark.parametrize("refusal", [ModelNotFound(), InvalidRequest("no", param="language")])
def test_settings_that_are_refused_can_be_changed(refusal: HeadpondError) -> None:
    talk = Talk()
    talk.events()
    talk.append()
    assert error(talk.fail(refusal))["code"] == refusal.code
    talk.heard()
    assert talk.append() == []  # not refused again and again
    assert talk.heard() == []
    assert error(talk.send("input_audio_buffer.commit"))["code"] == refusal.code
    talk.update(transcription={"model": "other"})
    talk.append()
    assert [model for model, _ in talk.opened] == [None, "other"]


def test_a_lost_worker_and_a_client_that_sends_again() -> None:
    talk = Talk()
    talk.events()
    for number in range(1, 6):
        talk.append(bytes([number]) * 4800, sequence=number)
    talk.admit()
    talk.give(Committed(0, 250), Final(0, "two", 0, 200), Started(1, 260), Partial(1, "th", 2, 280))
    talk.heard()
    lost, said = talk.fail(WorkerLost())
    assert lost["type"] == FAILED
    assert lost["item_id"].endswith("_2")
    assert said["error"]["code"] == "worker_lost"
    assert said["error"]["resumable"] is True
    assert said["error"]["acknowledged_sequence"] == 2
    assert talk.append(b"\6" * 4800, sequence=6) == []  # was on its way
    assert talk.heard() == []
    for number in range(3, 7):
        talk.append(bytes([number]) * 4800, sequence=number)
    assert len(talk.opened) == 2
    assert talk.sound() == b"".join(bytes([number]) * 4800 for number in range(3, 7))
    talk.admit()
    found = talk.give(Started(0, 10), Committed(0, 400), Final(0, "more", 10, 390))
    assert found[0]["audio_start_ms"] == 250 + 10
    assert found[0]["item_id"].endswith("_3")
    assert found[-1] == found[-1] | {"sequence": 6, "audio_end_ms": 650}


def test_a_lost_worker_and_a_client_that_does_not_number() -> None:
    talk = talking()
    talk.append(MS * 480)
    (said,) = talk.fail(EngineFailed())
    assert said["error"]["acknowledged_sequence"] == 0
    talk.heard()
    talk.append(MS * 100)
    talk.admit()
    assert len(talk.opened) == 2
    assert talk.sound() == MS * 100
    (started,) = talk.give(Started(0, 5))
    assert started["audio_start_ms"] == 505


def test_an_item_that_failed_ends_its_call_once() -> None:
    talk = talking()
    talk._take(talk.conversation.given([Failed(0, EngineFailed("NaN"))]))
    assert error(talk.events())["code"] == "engine_failed"
    talk.heard()
    assert talk.append() == []
    assert talk.heard() == []
    assert talk.end() == []
    talk.append()
    assert len(talk.opened) == 2


def test_a_call_that_ends_well_is_followed_by_another() -> None:
    talk = talking()
    assert talk.end() == []
    talk.append()
    talk.admit()
    (started,) = talk.give(Started(0, 5))
    assert started["audio_start_ms"] == 25


@pytest.mark.parametrize("speaking", [True, False])
def test_a_session_whose_time_is_over(speaking: bool) -> None:
    talk = talking() if speaking else Talk()
    talk.events()
    found = error(talk.fail(DeadlineExceeded("it lasted an hour")))
    assert (found["code"], found["message"]) == ("session_expired", "it lasted an hour")
    assert found["acknowledged_sequence"] == 0
    assert talk.hung_up is not None
    assert (talk.hung_up.code, talk.hung_up.reason) == (1001, "session_expired")


def test_a_session_that_was_sent_all_it_may_be() -> None:
    talk = talking()
    talk.give(Started(0, 0))
    talk.conversation.given([Output(0, Partial(0, "half", 4, 10))])
    effects = talk.conversation.given([Failed(0, PayloadTooLarge("2 hours"))])
    said = [json.loads(each.text) for each in effects if isinstance(each, Say)]
    assert kinds(said) == [FAILED, "error"]
    assert said[1]["error"]["code"] == "session_expired"
    assert isinstance(effects[-1], HangUp)


@pytest.mark.parametrize("piece_ms", [1, 20, 40, 99, 100, 250])
def test_who_is_heard_at_once_is_never_behind_however_small_the_pieces(piece_ms: int) -> None:
    talk = talking()
    for _ in range(30_000 // piece_ms):
        talk.now_s += piece_ms / 1000
        assert talk.append(MS * piece_ms) == []
        assert talk.tick(400) == []
    assert talk.hung_up is None


def test_who_falls_behind_is_warned_and_then_cut_off() -> None:
    talk = talking()
    talk.append(MS * 980)
    assert talk.tick(1000) == []
    talk.now_s += 1.5
    (behind,) = talk.tick(1000)
    assert behind["type"] == "transcription.behind"
    assert behind["lag_ms"] >= BEHIND_MS
    talk.now_s += 1
    assert talk.tick(1000) == []  # not every second
    assert talk.tick(0) == []
    talk.now_s += TOO_LATE_MS / 1000
    assert talk.tick(0) == []
    talk.append(MS * 1000)
    talk.now_s += TOO_LATE_MS / 1000 + 2
    assert error(talk.tick(1000))["code"] == "overloaded"
    assert talk.hung_up is not None
    assert talk.hung_up.code == 1013


def test_who_sends_faster_than_live_is_not_behind() -> None:
    talk = talking()
    for _ in range(60):
        talk.append(MS * 1000)
    talk.now_s += 8
    assert talk.tick(50_000) == []


def test_who_comes_back_is_told_where_to_go_on() -> None:
    talk = Talk()
    talk.events()
    for number in (1, 2, 3, 5):
        talk.append(sequence=number)
    (resumed,) = talk.resume()
    assert resumed["type"] == "session.resumed"
    assert (resumed["session_id"], resumed["next_sequence"]) == ("sess_1", 4)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
KINDS = st.sampled_from(
    [
        "session.update",
        "transcription_session.update",
        "input_audio_buffer.append",
        "input_audio_buffer.commit",
        "input_audio_buffer.clear",
    ]
)
SHAPES = st.fixed_dictionaries(
    {"type": KINDS},
    optional={
        "session": st.fixed_dictionaries(
            {},
            optional={
                "type": JSON,
                "include": JSON,
                "input_audio_format": JSON,
                "audio": JSON
                | st.fixed_dictionaries(
                    {},
                    optional={
                        "input": st.fixed_dictionaries(
                            {},
                            optional={
                                "format": JSON,
                                "turn_detection": JSON,
                                "transcription": JSON,
                                "noise_reduction": JSON,
                            },
                        )
                    },
                ),
            },
        )
        | JSON,
        "audio": JSON | st.just("AAAA"),
        "sequence": JSON,
        "event_id": JSON,
    },
)


@given(st.lists(SHAPES | JSON, max_size=6))
def test_no_message_breaks_a_session(messages: list[JsonValue]) -> None:
    talk = Talk()
    for message in messages:
        for event in talk.raw(json.dumps(message)):
            assert event["type"] in (
                "error",
                "session.created",
                "session.updated",
                "input_audio_buffer.cleared",
            )
            if event["type"] == "error":
                assert event["error"]["type"] == "invalid_request_error"
