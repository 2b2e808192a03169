"""The playground's microphone in Chromium, with a recording as what it hears."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import FilePayload, Page, expect

from browsing import WAIT_MS, browsed, enter, opened
from speakers import RATE_HZ, as_wav, speech
from testbed import WHISPER, WORDS, Platform

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

SENTENCE = "go forward ten meters"


@pytest.fixture
async def page(tmp_path: Path) -> AsyncIterator[Page]:
    path = tmp_path / "spoken.wav"
    path.write_bytes(as_wav(bytes(2 * RATE_HZ) + speech(rest_ms=3000)))
    async with browsed(path) as page:
        yield page


@pytest.mark.parametrize("model", [WORDS, WHISPER])
async def test_a_microphone_is_written_down_while_it_speaks(
    page: Page, platform: Platform, model: str, tmp_path: Path
) -> None:
    await enter(page, platform, "/playground")
    panel = await opened(page, "Speech")
    await panel.get_by_label("Model").select_option(model)
    partial = panel.locator(".partial")
    seen = await partial.evaluate_handle(
        """(partial) => {
            const seen = [];
            const look = () => seen.push({
                stable: partial.querySelector(".stable").textContent,
                revisable: partial.querySelector(".revisable").textContent,
            });
            new MutationObserver(look).observe(
                partial, { childList: true, characterData: true, subtree: true });
            return seen;
        }"""
    )
    await panel.get_by_role("button", name="Start microphone").focus()
    await page.keyboard.press("Enter")
    stop = panel.get_by_role("button", name="Stop microphone")
    await expect(stop).to_be_visible(timeout=WAIT_MS)
    await expect(partial).to_contain_text("orward", timeout=WAIT_MS)
    await page.screenshot(path=tmp_path / "partial.png")
    final = panel.get_by_role("log", name="What was said")
    # A busy machine plays its fake microphone with gaps, so not every word need be right.
    said = final.get_by_role("listitem").locator("span")
    await expect(said).to_contain_text("orward", timeout=WAIT_MS)
    await expect(partial).to_have_text("")
    await page.screenshot(path=tmp_path / "final.png")
    text = await said.inner_text()
    await stop.click()
    start = panel.get_by_role("button", name="Start microphone")
    await expect(start).to_be_enabled(timeout=WAIT_MS)
    await expect(panel.locator(".alert")).to_have_text("")
    texts = [each for each in await seen.json_value() if each["stable"] or each["revisable"]]
    assert len(texts) > 1
    assert texts[-1] == {"stable": text, "revisable": ""}, "the last partial text turned final"
    # A chunked model revises; of a streaming one nothing ever changes.
    assert any(each["revisable"] for each in texts) == (model == WHISPER)


async def test_a_file_is_written_down_and_a_broken_one_is_named(
    page: Page, platform: Platform
) -> None:
    await enter(page, platform, f"/models/{WORDS}/playground#speech")
    panel = page.get_by_role("tabpanel", name="Speech")
    pick = panel.get_by_label("Or drop a file")
    spoken: FilePayload = {"name": "a.wav", "mimeType": "audio/wav", "buffer": as_wav(speech())}
    await pick.set_input_files([spoken])
    final = panel.get_by_role("log", name="What was said")
    await expect(final).to_contain_text(SENTENCE, timeout=WAIT_MS)
    assert await panel.locator(".wave").evaluate(
        """(canvas) => canvas.getContext("2d")
            .getImageData(0, 0, canvas.width, canvas.height).data.some((byte) => byte)"""
    ), "the waveform is drawn"
    broken: FilePayload = {"name": "b.wav", "mimeType": "audio/wav", "buffer": b"RIFF" + bytes(64)}
    await pick.set_input_files([broken])
    await expect(panel.get_by_role("alert")).to_contain_text("sound", timeout=WAIT_MS)
    await expect(final.get_by_role("listitem")).to_have_count(1)
