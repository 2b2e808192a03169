"""Speakers who leave, stammer, hurry, dawdle, or lose their replica, on a running platform."""

from __future__ import annotations

import asyncio
import random

import httpx2
import psutil
import pytest
from websockets.exceptions import ConnectionClosed

from speakers import (
    ACKNOWLEDGED,
    AUTH,
    BYTES_PER_MS,
    COMPLETED,
    FAILED,
    Speaker,
    as_wav,
    gauge,
    pieces,
    speaker,
    speech,
)
from testbed import RESUME_S, WORDS, Platform

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

SENTENCE = "go forward ten meters"
ROUTER = "router"


async def spoken(person: Speaker, sound: bytes, sizes: list[int]) -> str:
    """Speak in pieces of these sizes, in bytes, over and over; return the final text."""
    at = number = 0
    while at < len(sound):
        size = sizes[number % len(sizes)]
        await person.say(sound[at : at + size])
        at, number = at + size, number + 1
    text: str = (await person.until(COMPLETED))["transcript"]
    return text


async def rests(platform: Platform) -> None:
    """Wait until no session is kept and no stream is heard any more."""
    async with asyncio.timeout(RESUME_S + 20):
        while await gauge(platform, "headpond_sessions") or await gauge(  # noqa: ASYNC110
            platform, "headpond_running", model=WORDS
        ):
            await asyncio.sleep(0.1)


async def test_200_speakers_who_are_cut_off_leave_nothing_behind(platform: Platform) -> None:
    turns = asyncio.Semaphore(8)

    async def speak_and_go(number: int) -> None:
        async with turns, speaker(platform, WORDS) as person:
            for piece in list(pieces(speech(), 160))[: 1 + number % 6]:
                await person.say(piece)
            if number % 6 == 5:
                heard = await person.until("input_audio_buffer.speech_started", "error")
                assert heard["type"] != "error" or heard["error"]["code"] == "overloaded"
            person.cut()

    async def cycles(count: int) -> None:
        await asyncio.gather(*(speak_and_go(number) for number in range(count)))
        await rests(platform)

    processes = [*platform.replicas(WORDS), *platform.replicas(ROUTER)]
    await cycles(40)  # what they keep once they have worked
    before = memory(processes)
    await cycles(200)
    grown = [after - early for after, early in zip(memory(processes), before, strict=True)]
    assert max(grown) < 24 * 2**20, grown
    async with speaker(platform, WORDS) as person:
        assert await spoken(person, speech(), [1280]) == SENTENCE


def memory(processes: list[psutil.Process]) -> list[int]:
    return [process.memory_info().rss for process in processes]


async def test_who_is_there_gets_the_place_of_who_was_cut_off(platform: Platform) -> None:
    gone: list[Speaker] = []
    for _ in range(20):  # there are 16 places
        async with speaker(platform, WORDS) as person:
            await person.say(speech()[: 900 * BYTES_PER_MS])
            await person.until("input_audio_buffer.speech_started")
            person.cut()
        gone.append(person)
    async with speaker(platform, WORDS) as person:
        assert await spoken(person, speech(), [1280]) == SENTENCE
    await rests(platform)


@pytest.mark.parametrize("door", ["routed", "direct"])
async def test_sound_may_be_split_anywhere(platform: Platform, door: str) -> None:
    chance = random.Random(5)  # noqa: S311 - no secret
    longest = 1000 * BYTES_PER_MS
    sizes = [
        [1280],
        [1, 2, 3, 1, 1, 1, 5, longest],
        [chance.randint(1, longest) for _ in range(50)],
        [2 * chance.randint(0, 700) + 1 for _ in range(50)],
    ]

    async def speak(each: list[int]) -> str:
        async with speaker(platform, WORDS, door=door) as person:
            return await spoken(person, speech(), each)

    assert await asyncio.gather(*map(speak, sizes)) == [SENTENCE] * len(sizes)


async def test_numbered_sound_is_put_in_order_and_gaps_are_named(platform: Platform) -> None:
    numbered = list(enumerate(pieces(speech(), 80), 1))
    chance = random.Random(3)  # noqa: S311 - no secret
    async with speaker(platform, WORDS) as person:
        for at in range(0, len(numbered), 6):
            window = numbered[at : at + 6]
            chance.shuffle(window)
            for sequence, piece in [*window, window[0]]:
                await person.say(piece, sequence)
        assert (await person.until(COMPLETED))["transcript"] == SENTENCE
        behind = numbered[-1][0]
        # Three never come; so many follow that they are not waited for.
        for sequence, piece in numbered:
            await person.say(piece, behind + 3 + sequence)
        error = (await person.until("error"))["error"]
        assert error["code"] == "sequence_gap"
        assert (error["expected_sequence"], error["next_sequence"]) == (behind + 1, behind + 4)
        assert (await person.until(COMPLETED))["transcript"] == SENTENCE


async def test_who_hurries_or_reads_nothing_harms_nobody_else(platform: Platform) -> None:
    """8 times as fast as sound is spoken, for 40 s of it, beside one who speaks in time."""
    hurried = speech() * 10

    async def hurry(person: Speaker) -> None:
        for piece in pieces(hurried, 160):
            await person.say(piece)
            await asyncio.sleep(0.02)

    async with (
        speaker(platform, WORDS) as hasty,
        speaker(platform, WORDS) as deaf,
        speaker(platform, WORDS) as calm,
    ):
        hurrying = asyncio.create_task(hurry(hasty))
        dawdling = asyncio.create_task(hurry(deaf))  # and never reads
        for piece in pieces(speech()):
            await calm.say(piece)
            await asyncio.sleep(0.04)
        assert (await calm.until(COMPLETED))["transcript"] == SENTENCE
        await hurrying
        while len(hasty.finals) < 10:
            await hasty.until(COMPLETED)
        await dawdling
        deaf.cut()
    assert " ".join(hasty.finals) == await written_down(platform, hurried)
    for person in (calm, hasty):
        assert not [each for each in person.events if each["type"] in ("error", FAILED)]
        assert "transcription.behind" not in {each["type"] for each in person.events}


async def written_down(platform: Platform, sound: bytes) -> str:
    """Return the text of sound as a file: so a stream of it has to be heard, however it comes."""
    async with httpx2.AsyncClient(timeout=60) as client:
        answer = await client.post(
            f"{platform.base_url}/v1/audio/transcriptions",
            data={"model": WORDS, "response_format": "text"},
            files={"file": ("a.wav", as_wav(sound))},
            headers=AUTH,
        )
    assert answer.status_code == 200, answer.text
    return answer.text.strip()


async def test_who_pauses_amid_a_word_is_waited_for(platform: Platform) -> None:
    """Sound too short for a step waits for more, and is not late."""
    sound = speech()
    cut = 710 * BYTES_PER_MS
    async with speaker(platform, WORDS) as person:
        await person.say(sound[:cut])
        await person.until("input_audio_buffer.speech_started")
        await asyncio.sleep(3)
        assert await spoken(person, sound[cut:], [1280]) == SENTENCE
    assert "transcription.behind" not in {each["type"] for each in person.events}


async def test_who_comes_back_misses_nothing(platform: Platform) -> None:
    numbered = list(enumerate(pieces(speech()), 1))
    half = len(numbered) // 3
    async with speaker(platform, WORDS) as person:
        session = person.events[0]["session"]["id"]
        for sequence, piece in numbered[:half]:
            await person.say(piece, sequence)
        await person.until("input_audio_buffer.speech_started")
        person.cut()
    last = person.events[-1]["event_id"].removeprefix("event_")
    async with speaker(platform, WORDS, session=session, last_event=last) as again:
        resumed = await again.until("session.resumed")
        for sequence, piece in numbered[resumed["next_sequence"] - 1 :]:
            await again.say(piece, sequence)
        await again.until(ACKNOWLEDGED)
    heard = [*person.events, *again.events]
    assert [*person.finals, *again.finals] == [SENTENCE]
    assert [each["event_id"] for each in heard] == [f"event_{at + 1}" for at in range(len(heard))]


async def test_a_killed_replica_costs_no_word_and_gives_none_twice(platform: Platform) -> None:
    numbered = list(enumerate(pieces(speech() + speech(1) + speech()), 1))
    acknowledged = 0
    async with speaker(platform, WORDS) as person:
        first = len(speech()) // (40 * BYTES_PER_MS) + 15  # amid the second sentence
        for sequence, piece in numbered[:first]:
            await person.say(piece, sequence)
        acknowledged = (await person.until(ACKNOWLEDGED))["sequence"]
        assert acknowledged
        (victim,) = platform.replicas(WORDS)
        victim.kill()
        error = (await person.until("error"))["error"]
        assert (error["code"], error["resumable"]) == ("worker_lost", True)
        assert error["acknowledged_sequence"] == acknowledged
        await speak_from(person, numbered, acknowledged)
    assert person.finals == [SENTENCE, "ten of clubs", SENTENCE]
    (successor,) = platform.replicas(WORDS)
    assert successor.pid != victim.pid


async def speak_from(person: Speaker, numbered: list[tuple[int, bytes]], acknowledged: int) -> None:
    """Send all that is behind an append, again and again until a replica hears it to the end."""
    async with asyncio.timeout(120):
        while len(person.finals) < 3:
            for sequence, piece in numbered[acknowledged:]:
                await person.say(piece, sequence)
            while len(person.finals) < 3:
                event = await person.until(COMPLETED, ACKNOWLEDGED, "error")
                if event["type"] == ACKNOWLEDGED:
                    acknowledged = event["sequence"]
                elif event["type"] == "error":
                    assert event["error"]["code"] in ("worker_lost", "model_not_ready")
                    await asyncio.sleep(0.5)
                    break


async def test_a_message_that_is_too_long_is_refused_by_name(platform: Platform) -> None:
    async with speaker(platform, WORDS) as person:
        await person.socket.send("x" * (5 * 2**20))
        with pytest.raises(ConnectionClosed) as closed:
            await person.until("nothing")
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1009
