"""Takes the pictures of the playground's tabs, `docs/images/playground-*.webp`.

python docs/screenshots.py http://127.0.0.1:8000

It asks each workload once, on a platform with the demo's models, and needs a Chromium (`$CHROMIUM`).
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.async_api import Page, async_playwright

IMAGES = Path(__file__).parent / "images"
WIDTH_PX, HEIGHT_PX, QUALITY = 1180, 1250, 85
SETTLED_MS = 2500
"""How long cards move, and pictures are decoded."""
QUESTION = "What is the capital of France?"
PRESSED = {
    "Generation": QUESTION,
    "Embedding": "Embed",
    "Reranking": "Rank",
    "Speech": "Try the example",
    "Vision": "Try the example",
    "Diffusion": "Paint",
    "Batches": "Run an example of 24 records",
    "Overview": None,  # last, when there is something to see
}


async def take(page: Page, tab: str, pressed: str | None) -> None:
    """Use a tab as a person would, and keep what it then looks like."""
    await page.get_by_role("tab", name=tab, exact=True).click()
    panel = page.get_by_role("tabpanel", name=tab, exact=True)
    await panel.get_by_role("heading", name=tab, exact=True).wait_for()
    if tab == "Generation":
        await panel.get_by_label("Temperature").fill("0")
    if pressed is not None:
        await panel.get_by_role("button", name=pressed, exact=True).click()
        await panel.get_by_role("tab", name="curl").wait_for()
    if tab == "Batches":
        newest = panel.get_by_role("article").first
        await newest.get_by_role("button", name="Show results").click()
    await page.wait_for_timeout(SETTLED_MS)
    await page.evaluate("scrollTo(0, 0)")
    picture = Image.open(BytesIO(await page.screenshot()))
    picture.convert("RGB").save(IMAGES / f"playground-{tab.lower()}.webp", quality=QUALITY)


async def main(base_url: str) -> None:
    """Take the picture of each tab."""
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = await browser.new_page(viewport={"width": WIDTH_PX, "height": HEIGHT_PX})
        await page.goto(base_url)
        for tab, pressed in PRESSED.items():
            await take(page, tab, pressed)
        await browser.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
