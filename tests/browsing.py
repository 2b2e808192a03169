"""A browser for the tests of the playground, on whose pages nothing may go wrong."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvicorn
from playwright.async_api import ConsoleMessage, Locator, Page, async_playwright, expect

from headpond.http.app import ASGIApp
from testbed import KEY, Platform

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium")
NO_BROWSER = (
    "NO BROWSER, so the playground is NOT tested: `apt-get install chromium`, or name one "
    "in $CHROMIUM"
)
WAIT_MS = 60_000
MOST_SHIFT = 0.1
"""The cumulative layout shift up to which web vitals call a page good."""

_WATCH = """
    window.shifts = [];
    window.violations = [];
    window.chosen = -Infinity;
    // A file that is chosen is a person's doing, which the browser doesn't take for input.
    document.addEventListener("change", (event) => {
        if (event.target.type === "file") window.chosen = event.timeStamp;
    }, true);
    new PerformanceObserver((list) => {
        for (const { value, hadRecentInput, sources, startTime } of list.getEntries()) {
            if (hadRecentInput || startTime - window.chosen < 500) continue;
            // What went wrong may push aside what stands below it.
            if (document.querySelector("[role=alert]:not(:empty)")) continue;
            const moved = sources.map(({ node }) => node?.outerHTML?.slice(0, 120));
            window.shifts.push({ value, moved });
        }
    }).observe({ type: "layout-shift", buffered: true });
    document.addEventListener("securitypolicyviolation", (event) =>
        window.violations.push(`${event.violatedDirective}: ${event.blockedURI}`));
"""


@asynccontextmanager
async def browsed(microphone: Path | None = None) -> AsyncIterator[Page]:
    """Open a page that hears a file, once, as its microphone.

    Afterwards its console has told no error, little on it has moved by itself, and its
    content-security policy has refused nothing. What servers refuse with 400 and 401 is no error.
    """
    if CHROMIUM is None:
        pytest.skip(NO_BROWSER)
    arguments = [
        "--no-sandbox",
        "--use-fake-ui-for-media-stream",
        "--use-fake-device-for-media-stream",
        "--autoplay-policy=no-user-gesture-required",
    ]
    if microphone is not None:
        arguments.append(f"--use-file-for-fake-audio-capture={microphone}%noloop")
    wrong: list[str] = []

    def note(message: ConsoleMessage) -> None:
        expected = any(f" {status} " in message.text for status in (400, 401))
        if message.type in ("error", "warning") and not expected:
            wrong.append(message.text)

    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        try:
            page = await started.new_page()
            page.on("pageerror", lambda error: wrong.append(str(error)))
            page.on("console", note)
            await page.add_init_script(_WATCH)
            yield page
            shifts, violations = await page.evaluate("[window.shifts, window.violations]")
            assert sum(shift["value"] for shift in shifts) < MOST_SHIFT, shifts
            assert violations == [], violations
        finally:
            await started.close()
    assert wrong == [], wrong


@asynccontextmanager
async def served(app: ASGIApp) -> AsyncIterator[str]:
    """Serve an app on this loop; yields its address."""
    config = uvicorn.Config(app, log_level="error", lifespan="off")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(config)
        running = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            await running


async def enter(page: Page, platform: Platform, path: str = "/") -> None:
    """Open the page, and show the key that it asks for."""
    await page.goto(f"{platform.base_url}{path}")
    await page.get_by_label("API key").fill(KEY)
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("tab").first).to_be_visible(timeout=WAIT_MS)


async def opened(page: Page, tab: str) -> Locator:
    """Choose a tab, and return its panel when it is there."""
    await page.get_by_role("tab", name=tab, exact=True).click()
    panel = page.get_by_role("tabpanel", name=tab, exact=True)
    await expect(panel.get_by_role("heading", name=tab, exact=True)).to_be_visible()
    return panel


async def receipt(panel: Locator) -> Locator:
    """Return what a panel tells of the last call, when that is over."""
    found = panel.get_by_role("region", name="What was just done")
    await expect(found.get_by_role("tab", name="curl")).to_be_visible(timeout=WAIT_MS)
    return found
