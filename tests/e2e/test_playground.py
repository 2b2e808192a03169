"""The playground in Chromium, with a recording as the microphone."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import pytest
from playwright.async_api import (
    BrowserContext,
    ConsoleMessage,
    FilePayload,
    Page,
    async_playwright,
    expect,
)

from speakers import RATE_HZ, as_wav, speech
from testbed import KEY, WHISPER, WORDS, Platform

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium")
if CHROMIUM is None:
    pytest.skip(
        "NO BROWSER, so the playground is NOT tested: `apt-get install chromium`, or name one "
        "in $CHROMIUM",
        allow_module_level=True,
    )

SENTENCE = "go forward ten meters"
WAIT_MS = 60_000


@asynccontextmanager
async def browser(microphone: Path) -> AsyncIterator[BrowserContext]:
    """Start a browser that hears a file, once, as its microphone."""
    arguments = [
        "--no-sandbox",
        "--use-fake-ui-for-media-stream",
        "--use-fake-device-for-media-stream",
        f"--use-file-for-fake-audio-capture={microphone}%noloop",
        "--autoplay-policy=no-user-gesture-required",
    ]
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        try:
            yield await started.new_context()
        finally:
            await started.close()


@pytest.fixture
async def page(tmp_path: Path) -> AsyncIterator[Page]:
    """Return a page on which nothing may go wrong that the console would tell."""
    path = tmp_path / "spoken.wav"
    path.write_bytes(as_wav(bytes(2 * RATE_HZ) + speech(rest_ms=3000)))
    wrong: list[str] = []

    def note(message: ConsoleMessage) -> None:
        if message.type == "error":
            wrong.append(message.text)

    async with browser(path) as context:
        opened = await context.new_page()
        opened.on("pageerror", lambda error: wrong.append(str(error)))
        opened.on("console", note)
        yield opened
    assert [each for each in wrong if " 401 " not in each and " 400 " not in each] == []


async def enter(page: Page, platform: Platform, prefix: str = "") -> None:
    """Open the page, and show the key that it asks for."""
    await page.goto(f"{platform.base_url}{prefix}/playground")
    await page.get_by_label("API key").fill(KEY)
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("tab", name="Speech")).to_be_visible(timeout=WAIT_MS)


@pytest.mark.parametrize("model", [WORDS, WHISPER])
async def test_a_microphone_is_written_down_while_it_speaks(
    page: Page, platform: Platform, model: str, tmp_path: Path
) -> None:
    await enter(page, platform)
    await page.get_by_label("Model").select_option(model)
    partial = page.locator(".partial")
    seen = await page.evaluate_handle(
        """() => {
            const seen = [];
            const partial = document.querySelector(".partial");
            const look = () => seen.push({
                stable: partial.querySelector(".stable").textContent,
                revisable: partial.querySelector(".revisable").textContent,
            });
            new MutationObserver(look).observe(
                partial, { childList: true, characterData: true, subtree: true });
            return seen;
        }"""
    )
    await page.get_by_role("button", name="Start microphone").focus()
    await page.keyboard.press("Enter")
    stop = page.get_by_role("button", name="Stop microphone")
    await expect(stop).to_be_visible(timeout=WAIT_MS)
    await expect(partial).to_contain_text("orward", timeout=WAIT_MS)
    await page.screenshot(path=tmp_path / "partial.png")
    final = page.get_by_role("log", name="What was said")
    # A busy machine plays its fake microphone with gaps, so not every word need be right.
    said = final.get_by_role("listitem").locator("span")
    await expect(said).to_contain_text("orward", timeout=WAIT_MS)
    await expect(partial).to_have_text("")
    await page.screenshot(path=tmp_path / "final.png")
    text = await said.inner_text()
    await stop.click()
    await expect(page.get_by_role("button", name="Start microphone")).to_be_enabled(timeout=WAIT_MS)
    await expect(page.locator(".error")).to_have_text("")
    texts = [each for each in await seen.json_value() if each["stable"] or each["revisable"]]
    assert len(texts) > 1
    assert texts[-1] == {"stable": text, "revisable": ""}, "the last partial text turned final"
    # A chunked model revises; of a streaming one nothing ever changes.
    assert any(each["revisable"] for each in texts) == (model == WHISPER)


async def test_a_file_is_written_down_and_a_broken_one_is_named(
    page: Page, platform: Platform
) -> None:
    await enter(page, platform, f"/models/{WORDS}")
    pick = page.get_by_label("Or a file")
    spoken: FilePayload = {"name": "a.wav", "mimeType": "audio/wav", "buffer": as_wav(speech())}
    await pick.set_input_files([spoken])
    final = page.get_by_role("log", name="What was said")
    await expect(final).to_contain_text(SENTENCE, timeout=WAIT_MS)
    assert await page.locator(".wave").evaluate(
        """(canvas) => canvas.getContext("2d")
            .getImageData(0, 0, canvas.width, canvas.height).data.some((byte) => byte)"""
    ), "the waveform is drawn"
    broken: FilePayload = {"name": "b.wav", "mimeType": "audio/wav", "buffer": b"RIFF" + bytes(64)}
    await pick.set_input_files([broken])
    await expect(page.get_by_role("alert")).to_contain_text("sound", timeout=WAIT_MS)
    await expect(final.get_by_role("listitem")).to_have_count(1)


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_text_can_be_read_and_fits_a_phone(
    page: Page, platform: Platform, scheme: Literal["light", "dark"], tmp_path: Path
) -> None:
    await page.emulate_media(color_scheme=scheme)
    await page.set_viewport_size({"width": 360, "height": 700})
    await enter(page, platform)
    await expect(page.get_by_role("button", name="Start microphone")).to_be_visible()
    colours = await page.evaluate(
        """() => [document.body, document.querySelector(".state"),
            document.querySelector(".revisable"), document.querySelector(".toggle")]
            .map((each) => [getComputedStyle(each).color, ground(each)])
        function ground(each) {
            for (; each; each = each.parentElement) {
                const colour = getComputedStyle(each).backgroundColor;
                if (colour !== "rgba(0, 0, 0, 0)") return colour;
            }
        }"""
    )
    assert min(contrast(*pair) for pair in colours) >= 4.5, colours
    await page.screenshot(path=tmp_path / "phone.png")
    edges = await page.evaluate(
        """() => [...document.querySelectorAll("main *")]
            .map((each) => each.getBoundingClientRect().right)"""
    )
    assert max(edges) <= 340, "nothing is wider than the page's text"


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of WCAG."""
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def luminance(colour: str) -> float:
    """Return the relative luminance of `rgb(r, g, b)`."""
    parts = [int(each) / 255 for each in colour.removeprefix("rgb(").removesuffix(")").split(",")]
    red, green, blue = (
        each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
