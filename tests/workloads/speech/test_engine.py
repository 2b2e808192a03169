"""The engine with scripted ears: who hears what, when utterances end, what is said of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from headpond.engine import Quantum
from headpond.errors import EngineFailed, HeadpondError, InvalidRequest, PayloadTooLarge
from headpond_workloads.speech.items import (
    Clear,
    Commit,
    Committed,
    End,
    Endpointing,
    Final,
    Format,
    Listening,
    Partial,
    Reading,
    Recording,
    Retune,
    Sound,
    Started,
    Stopped,
    Stream,
)
from workloads.speech.conftest import (
    CHUNK_MS,
    Counter,
    Session,
    engine_with,
    loud,
    noise,
    quiet,
    transducer,
)

SERVER = Listening(endpointing=Endpointing(prefix_padding_ms=96, silence_ms=192))
MANUAL = Listening(endpointing=None)


def finals(readings: list[Reading]) -> list[str]:
    return [reading.text for reading in readings if isinstance(reading, Final)]


def kinds(readings: list[Reading]) -> list[str]:
    return [type(reading).__name__ for reading in readings]


def test_speech_between_silences_is_an_utterance_with_its_padding() -> None:
    session = Session(engine_with(Counter()), SERVER)
    heard = session.say(quiet(960), loud(480), quiet(960))
    heard += session.end()
    assert kinds(heard)[0] == "Started"
    assert kinds(heard)[-3:] == ["Stopped", "Committed", "Final"]
    assert heard[0] == Started(0, 960 - 96)
    assert heard[-3] == Stopped(0, 960 + 480 + 192)
    assert heard[-2] == Committed(0, 960 + 480 + 192)
    final = heard[-1]
    assert isinstance(final, Final)
    assert (final.start_ms, final.end_ms) == (960, 960 + 480)
    assert final.text == f"{96 + 480 + 192} ms"
    assert session.finished == session.units == 960 + 480 + 960


def test_partial_text_comes_while_it_is_spoken() -> None:
    session = Session(engine_with(Counter()), SERVER)
    heard = session.say(loud(960))
    partials = [reading for reading in heard if isinstance(reading, Partial)]
    assert len(partials) >= 8
    assert partials[-1].text == f"{partials[-1].end_ms} ms"
    assert session.finished is None


def test_a_slot_is_idle_until_a_whole_chunk_came() -> None:
    engine = engine_with(Counter())
    session = Session(engine, SERVER)
    for _ in range(3):
        session.say(loud(CHUNK_MS // 4))
        assert session.units == 0
    session.say(loud(CHUNK_MS // 4))
    assert session.units == CHUNK_MS


def test_a_stream_goes_on_as_soon_as_its_model_can(tmp_path: Path) -> None:
    recogniser = transducer(tmp_path)
    session = Session(engine_with(recogniser, chunk_ms=160), MANUAL)
    session.chunk_ms = 160
    fresh = recogniser.fresh(MANUAL, live=True)
    first_ms = recogniser.lacks(fresh) // 16 + 1
    session.say(noise(0.16, seed=1))
    session.say(quiet(first_ms - 160 - 1))
    assert session.units == 160
    session.say(quiet(1))
    assert session.units == first_ms


def test_the_last_chunks_of_an_utterance_take_a_step_each(tmp_path: Path) -> None:
    engine = engine_with(transducer(tmp_path), chunk_ms=160)
    session, other = (Session(engine, MANUAL) for _ in range(2))
    engine.feed(session.slot, [Sound(noise(0.5, seed=1).tobytes()), Commit()])
    heard: list[list[Reading]] = []
    others = 0
    while not heard or not finals(heard[-1]):
        engine.feed(other.slot, [Sound(noise(0.16, seed=2).tobytes())])
        progress, beside = engine.step(
            [Quantum(slot=each.slot, units=160) for each in (session, other)]
        )
        heard.append([*progress.outputs])
        assert progress.idle == bool(finals(heard[-1]))
        others += beside.units
    # Four for its sound, and at least two more for the silence behind it.
    assert len(heard) >= 6
    assert others == 160 * len(heard)  # nobody was held up


def test_silence_and_clicks_are_no_utterance() -> None:
    session = Session(engine_with(Counter()), SERVER)
    heard = session.say(quiet(960), loud(32), quiet(960)) + session.end()
    assert heard == []
    assert session.finished == 960 + 32 + 960


def test_where_the_caller_ends_utterances_all_speech_between_commits_is_one() -> None:
    session = Session(engine_with(Counter()), MANUAL)
    heard = session.say(loud(480), quiet(1920), loud(480))
    assert finals(heard) == []
    heard = session.give(Commit())
    assert kinds(heard) == ["Committed", "Final"]
    assert finals(heard)[0].count("ms") == 2  # two parts, the silence between was left out
    heard = session.say(loud(960)) + session.give(Commit())
    assert finals(heard) == ["960 ms"]
    assert [reading.utterance for reading in heard if isinstance(reading, Final)] == [1]


def test_a_commit_counts_for_the_sound_before_it_only() -> None:
    session = Session(engine_with(Counter()), MANUAL)
    sounds = [Sound(loud(ms).tobytes()) for ms in (500, 700)]
    heard = session.give(sounds[0], Commit(), sounds[1], Commit())
    assert finals(heard) == ["500 ms", "700 ms"]
    assert session.finished is None


def test_a_commit_of_silence_is_an_empty_final() -> None:
    session = Session(engine_with(Counter()), MANUAL)
    heard = session.say(quiet(480)) + session.give(Commit())
    assert finals(heard) == [""]


def test_a_commit_while_the_server_listens_ends_the_utterance_or_an_empty_one() -> None:
    session = Session(engine_with(Counter()), SERVER)
    assert finals(session.say(loud(480)) + session.give(Commit())) == ["480 ms"]
    heard = session.say(quiet(240)) + session.give(Commit())
    assert kinds(heard) == ["Committed", "Final"], "no speech began or stopped"
    assert finals(heard) == [""]
    assert heard[0] == Committed(1, 720)


def test_a_commit_hears_all_sound_before_it_and_nothing_of_it_later() -> None:
    form = Format(rate_hz=48_000)
    heard: list[list[Reading]] = []
    for commits in (True, False):
        session = Session(engine_with(Counter()), MANUAL, form)
        content = (np.repeat(loud(500), 3) * 32767).astype("<i2").tobytes()
        last = [Commit()] if commits else [End()]
        heard.append(session.give(Sound(content), *last))
        if commits:
            silent = session.give(Sound(bytes(48_000 * 2)), Commit())
            assert finals(silent) == [""]
            assert silent[0] == Committed(1, 1500)
    assert heard[0] == heard[1]
    assert finals(heard[0]) == ["500 ms"]


def test_what_the_resampler_keeps_back_is_cleared_too() -> None:
    session = Session(engine_with(Counter()), MANUAL, Format(rate_hz=48_000))
    content = (np.repeat(loud(500), 3) * 32767).astype("<i2").tobytes()
    heard = session.give(Sound(content + b"\1"), Clear(), Sound(bytes(48_000 * 2)), Commit())
    assert finals(heard) == [""]
    assert heard[0] == Committed(0, 1500)


def test_cleared_sound_is_never_heard() -> None:
    session = Session(engine_with(Counter()), MANUAL)
    sounds = [Sound(loud(ms).tobytes()) for ms in (480, 960)]
    heard = session.give(sounds[0], Clear(), sounds[1], Commit())
    assert finals(heard) == ["960 ms"]
    assert session.units == 480 + 960  # it counts as passed, though
    heard = session.end()
    assert session.finished == 480 + 960


def test_clearing_drops_an_utterance_that_has_begun_and_its_number() -> None:
    session = Session(engine_with(Counter()), SERVER)
    assert kinds(session.say(loud(480)))[0] == "Started"
    session.give(Clear())
    heard = session.say(quiet(480), loud(480), quiet(480))
    assert next(reading for reading in heard if isinstance(reading, Started)).utterance == 1
    assert len(finals(heard)) == 1


def test_retuning_holds_from_where_it_comes() -> None:
    session = Session(engine_with(Counter()), MANUAL)
    patient = Listening(endpointing=Endpointing(prefix_padding_ms=0, silence_ms=960))
    session.say(loud(480))
    session.give(Commit(), Retune(patient))
    heard = session.say(quiet(480), loud(480), quiet(480))
    assert finals(heard) == []
    assert len(finals(session.say(quiet(960)))) == 1


def test_the_end_gives_final_text_to_what_was_being_said() -> None:
    for listening in (SERVER, MANUAL):
        session = Session(engine_with(Counter()), listening)
        heard = session.say(loud(500)) + session.end()
        assert finals(heard) == ["500 ms"]
        assert session.finished == session.units == 500


def test_talk_without_end_is_cut_before_it_is_too_long() -> None:
    session = Session(engine_with(Counter(longest_ms=2000)), SERVER)
    heard = session.say(loud(7000)) + session.end()
    lengths = [int(text.split()[0]) for text in finals(heard)]
    assert len(lengths) >= 3
    assert max(lengths) <= 2000 + 2 * 32
    assert sum(lengths) == 7000  # nothing is lost or heard twice


def test_nothing_follows_the_end() -> None:
    engine = engine_with(Counter())
    session = Session(engine, SERVER)
    engine.feed(session.slot, [End()])
    with pytest.raises(InvalidRequest):
        engine.feed(session.slot, [Sound(b"\0\0")])


def test_a_session_that_is_too_long_ends_with_an_error() -> None:
    session = Session(engine_with(Counter(), most_ms=1000), SERVER)
    with pytest.raises(PayloadTooLarge):
        session.say(quiet(2000))


def test_a_poisoned_stream_fails_alone() -> None:
    engine = engine_with(Counter(poisoned=0.9))
    well, ill = (Session(engine, SERVER) for _ in range(2))
    engine.feed(well.slot, [Sound(loud(960).tobytes())])
    engine.feed(ill.slot, [Sound((1.9 * loud(960)).astype(np.float32).tobytes())])
    errors: list[HeadpondError | None] = []
    outputs: list[Reading] = []
    for _ in range(10):
        quanta = [Quantum(slot=each.slot, units=1) for each in (well, ill)]
        fine, broken = engine.step(quanta)
        outputs += fine.outputs
        assert fine.error is None
        errors.append(broken.error)
    assert any(isinstance(error, EngineFailed) for error in errors)
    assert [each for each in outputs if isinstance(each, Partial)]


def test_streams_share_one_forward() -> None:
    counter = Counter()
    engine = engine_with(counter)
    sessions = [Session(engine, SERVER) for _ in range(5)]
    for session in sessions:
        engine.feed(session.slot, [Sound(loud(CHUNK_MS).tobytes())])
    engine.step([Quantum(slot=session.slot, units=1) for session in sessions])
    assert counter.batches == [5]


def test_a_stream_is_planned_for_the_longest_session() -> None:
    plan = engine_with(Counter(), most_ms=1234).plan(Stream(Format(), SERVER), "")
    assert plan.fed
    assert plan.shape == {"audio_ms": 1234}


def test_an_empty_file_is_answered_while_planning() -> None:
    engine = engine_with(Counter())
    silence = (
        b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0\1\0\1\0\x80\x3e\0\0\0\x7d\0\0\2\0\x10\0data\0\0\0\0"
    )
    plan = engine.plan(Recording(silence, None, SERVER), "")
    assert plan.answer is not None


def test_what_was_said_is_counted() -> None:
    engine = engine_with(Counter())
    session = Session(engine, SERVER)
    session.say(loud(960), quiet(480))
    tallies = engine.tallies()
    assert tallies["utterances"] == 1
    assert tallies["partial_hypotheses"] > 1
