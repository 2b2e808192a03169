"""The playground as a page: for keyboards, screen readers, phones, and whoever has no key."""

from __future__ import annotations

from importlib.resources import files
from typing import Literal

import pytest
from playwright.async_api import Page, expect

from browsing import browsed, enter, opened, receipt
from testbed import KEY, OTHER_KEY, Platform

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

AXE = files("axe_playwright_python").joinpath("axe.min.js").read_text()
DONE = {
    "Generation": "What is the capital of France?",
    "Embedding": "Embed",
    "Reranking": "Rank",
    "Vision": "Try the example",
    "Speech": "Try the example",
    "Diffusion": "Paint",
    "Batches": "Run an example",
}
"""What is pressed in each tab, so that it shows all it has."""


async def axe(page: Page) -> list[str]:
    """Return what axe finds to be in anybody's way."""
    found = await page.evaluate(
        """async () => (await axe.run()).violations.flatMap(({ id, nodes }) =>
            nodes.map(({ html, failureSummary }) => `${id}: ${html}: ${failureSummary}`))"""
    )
    assert isinstance(found, list)
    return found


async def wider_than_the_page(page: Page) -> list[str]:
    """Return the elements that stick out of the page, but those that can be scrolled to."""
    found = await page.evaluate(
        """() => [...document.querySelectorAll("main *")]
            .filter((each) => !each.closest("pre, .scroll, .unseen, svg"))
            .filter((each) => each.getBoundingClientRect().right > innerWidth)
            .map((each) => each.outerHTML.slice(0, 200))"""
    )
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_everybody_can_use_every_tab(
    platform: Platform, scheme: Literal["light", "dark"]
) -> None:
    async with browsed() as page:
        await page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        await enter(page, platform)
        await page.evaluate(AXE)
        assert await axe(page) == []
        for tab, button in DONE.items():
            panel = await opened(page, tab)
            assert await axe(page) == [], f"{tab}, before anything is done"
            await panel.get_by_role("button", name=button, exact=tab != "Batches").click()
            await receipt(panel)
            assert await axe(page) == [], f"{tab}, when something is done"
            await page.set_viewport_size({"width": 360, "height": 740})
            assert await wider_than_the_page(page) == [], tab
            await page.set_viewport_size({"width": 1280, "height": 900})


async def test_tabs_are_walked_with_the_keyboard_and_named_by_the_address(
    platform: Platform,
) -> None:
    async with browsed() as page:
        await enter(page, platform)
        names = (
            await page.get_by_role("tablist", name="Workloads").get_by_role("tab").all_inner_texts()
        )
        assert names == ["Overview", *sorted(names[1:-1]), "Batches"]
        assert {"Echo", *DONE} <= set(names)
        await page.get_by_role("tab", name="Overview").focus()
        await page.keyboard.press("ArrowDown")
        await page.keyboard.press("ArrowRight")
        third = page.get_by_role("tab", name=names[2])
        await expect(third).to_be_focused()
        await expect(third).to_have_attribute("aria-selected", "true")
        assert page.url.endswith(f"/#{names[2].lower()}")
        await page.keyboard.press("Home")
        await page.keyboard.press("ArrowUp")
        await expect(page.get_by_role("tab", name="Batches")).to_be_focused()
        await page.goto(f"{platform.base_url}/#reranking")
        await expect(page.get_by_role("tabpanel", name="Reranking")).to_be_visible()


async def test_a_key_stays_in_its_tab_and_can_be_changed(platform: Platform) -> None:
    async with browsed() as page:
        await page.goto(f"{platform.base_url}/")
        field = page.get_by_label("API key")
        await field.fill("sk-wrong")
        await page.get_by_role("button", name="Open").click()
        told = page.get_by_role("status").first
        await expect(told).to_contain_text("This key is not known here")
        await expect(told).to_have_class("alert")
        await field.fill(KEY)
        await page.keyboard.press("Enter")
        tabs = page.get_by_role("tab", name="Overview")
        await expect(tabs).to_be_visible()
        await page.reload()
        await expect(tabs).to_be_visible()
        kept = await page.evaluate(
            "[Object.values(sessionStorage), Object.values(localStorage), document.cookie]"
        )
        assert kept == [[KEY], [], ""]
        assert KEY not in await page.content()
        await page.get_by_role("button", name="Change key").click()
        await expect(tabs).to_have_count(0)
        assert await page.evaluate("sessionStorage.length") == 0
        await field.fill(OTHER_KEY)
        await page.keyboard.press("Enter")
        await expect(tabs).to_be_visible()


async def test_colours_are_chosen_by_a_button(platform: Platform) -> None:
    async with browsed() as page:
        await page.emulate_media(color_scheme="light")
        await enter(page, platform)
        ground = "getComputedStyle(document.body).backgroundColor"
        light = await page.evaluate(ground)
        await page.get_by_role("button", name="Switch to dark colours").click()
        dark = await page.evaluate(ground)
        assert dark != light
        await page.reload()
        assert await page.evaluate(ground) == dark
        await page.get_by_role("button", name="Switch to light colours").click()
        assert await page.evaluate(ground) == light
