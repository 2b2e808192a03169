"""The playground's panels in Chromium: what is asked is answered before one's eyes."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import FilePayload, Page, Route, expect

from browsing import WAIT_MS, browsed, enter, opened, receipt
from testbed import KEY, Platform

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]


@pytest.fixture
async def page(platform: Platform) -> AsyncIterator[Page]:
    async with browsed() as page:
        await enter(page, platform)
        yield page


async def phases(page: Page, tab: str) -> list[str]:
    """Return the phases of the waterfall that a tab shows."""
    panel = page.get_by_role("tabpanel", name=tab, exact=True)
    rows = (await receipt(panel)).get_by_role("rowheader")
    return await rows.all_inner_texts()


async def test_a_conversation_is_written_while_it_is_made(page: Page) -> None:
    panel = await opened(page, "Generation")
    log = panel.get_by_role("log", name="Conversation")
    growing = await log.evaluate_handle(
        """(log) => {
            const lengths = [];
            new MutationObserver(() => lengths.push(log.querySelector(".assistant .said")?.textContent.length))
                .observe(log, { childList: true, characterData: true, subtree: true });
            return lengths;
        }"""
    )
    await panel.get_by_label("Temperature").fill("0")
    await panel.get_by_label("Most tokens").fill("24")
    await panel.get_by_label("Your message").fill("What is the capital of France?")
    await page.keyboard.press("Enter")
    assert await phases(page, "Generation") == [
        *("validate", "tokenize", "queue", "prefill", "decode", "release", "delivery")
    ]
    await expect(log).to_contain_text("Paris")
    lengths = [each for each in await growing.json_value() if each]
    assert len(set(lengths)) > 3, "the answer came in pieces"
    await expect(log).to_contain_text("tokens, ")
    await panel.get_by_role("button", name="New conversation").click()
    await expect(log).to_contain_text("Nothing was said yet")


async def test_a_conversation_can_be_stopped(page: Page) -> None:
    panel = await opened(page, "Generation")
    await panel.get_by_label("Most tokens").fill("2000")
    await panel.get_by_label("Your message").fill("Count from one to a thousand.")
    await panel.get_by_role("button", name="Send").click()
    await panel.get_by_role("button", name="Stop").click()
    await expect(panel.get_by_role("status")).to_have_text("Stopped.")
    await expect(panel.get_by_role("button", name="Send")).to_be_visible()


async def test_alike_texts_are_dark_and_lie_together(page: Page) -> None:
    panel = await opened(page, "Embedding")
    texts = ["a dog", "a puppy", "interest rates"]
    await panel.get_by_label("Texts, one a line").fill("\n".join(texts))
    await panel.get_by_role("button", name="Embed").click()
    await receipt(panel)
    cells = panel.get_by_role("table", name="Cosine similarity").get_by_role("cell")
    numbers = [each for each in await cells.all_inner_texts() if each]
    rows = [[float(each) for each in numbers[at : at + 3]] for at in (0, 3, 6)]
    assert [rows[at][at] for at in range(3)] == [1, 1, 1]
    assert rows[0][1] == rows[1][0] > rows[0][2]
    places = await panel.locator(".point circle").evaluate_all(
        "(points) => points.map((each) => [each.cx.baseVal.value, each.cy.baseVal.value])"
    )
    dog, puppy, rates = (complex(*place) for place in places)
    assert abs(dog - puppy) < min(abs(dog - rates), abs(puppy - rates))


async def test_what_is_refused_is_said_in_words(page: Page) -> None:
    panel = await opened(page, "Embedding")
    await panel.get_by_label("Dimensions").fill("100000")
    await panel.get_by_role("button", name="Embed").click()
    alert = panel.get_by_role("alert")
    await expect(alert).to_contain_text("The server can't do what was asked.")
    await expect(alert).to_contain_text("dimensions")
    panel = await opened(page, "Reranking")  # its errors are in Cohere's form
    # Typing thousands of lines takes a browser half a minute.
    await panel.get_by_label("Documents, one a line").evaluate(
        """(area) => {
            area.value = "a\\n".repeat(2049);
            area.dispatchEvent(new Event("input"));
        }"""
    )
    await expect(panel.get_by_role("listitem").last).to_have_text("and 1849 more")
    await panel.get_by_role("button", name="Rank").click()
    await expect(panel.get_by_role("alert")).to_contain_text("2048 are allowed")


async def test_cards_move_to_where_they_rank(page: Page) -> None:
    panel = await opened(page, "Reranking")
    await panel.get_by_label("Query").fill("a pet that barks")
    await panel.get_by_label("Documents, one a line").fill("a cat\na dog\na car")
    cards = panel.get_by_role("list", name="Documents, the best first").get_by_role("listitem")
    await expect(cards.first).to_contain_text("a cat")
    await panel.get_by_role("button", name="Rank").click()
    await expect(cards.first).to_contain_text("a dog", timeout=WAIT_MS)
    await expect(cards.first).to_contain_text("up 1")
    await expect(panel.get_by_role("status")).to_have_text("The best answer: a dog")


async def test_an_image_is_shown_as_the_model_saw_it(page: Page) -> None:
    panel = await opened(page, "Vision")
    saved = panel.get_by_role("link", name="Save the example")
    await expect(saved).to_have_attribute("download", "example.jpg")
    await panel.get_by_role("button", name="Try the example").click()
    await receipt(panel)
    best = panel.get_by_role("table", name="What the model sees").get_by_role("row").first
    await expect(best).to_contain_text("espresso")
    sizes = await panel.get_by_role("img").evaluate_all(
        "(images) => images.map((each) => [each.naturalWidth, each.naturalHeight])"
    )
    assert sizes == [[480, 320], [224, 224]]
    broken: FilePayload = {"name": "b.png", "mimeType": "image/png", "buffer": bytes(64)}
    await panel.get_by_label("Drop an image").set_input_files([broken])
    await expect(panel.get_by_role("alert")).to_contain_text("image")


async def test_pictures_are_painted_step_by_step_for_each_seed(page: Page) -> None:
    panel = await opened(page, "Diffusion")
    seen = await panel.evaluate_handle(
        """(panel) => {
            const seen = new Set();
            new MutationObserver(() => {
                for (const each of panel.querySelectorAll("figure")) seen.add(each.innerText);
            }).observe(panel, { childList: true, characterData: true, subtree: true });
            return seen;
        }"""
    )
    await panel.get_by_label("Pictures").fill("3")
    await panel.get_by_role("button", name="Paint").click()
    await receipt(panel)
    figures = panel.get_by_role("figure")
    assert [text.split("\n")[0] for text in await figures.all_inner_texts()] == [
        *("seed 7", "seed 8", "seed 9")
    ]
    said = await seen.evaluate("(seen) => [...seen]")
    assert any(text.startswith("step 1 of ") for text in said), said
    assert await figures.get_by_role("img").evaluate_all(
        "(images) => images.every((each) => each.naturalWidth === 32)"
    )
    await figures.nth(1).get_by_role("button", name="Keep seed").click()
    await expect(panel.get_by_label("First seed")).to_have_value("8")


async def test_a_batch_is_watched_until_its_results_are_there(page: Page) -> None:
    panel = await opened(page, "Batches")
    await panel.get_by_role("button", name="Run an example").click()
    job = panel.get_by_role("article").filter(has_text="24 of 24 records").first
    await expect(job).to_contain_text("completed", timeout=WAIT_MS)
    await job.get_by_role("button", name="Show results").click()
    await expect(job.get_by_label("First results")).to_contain_text("record-")
    bad: FilePayload = {"name": "bad.jsonl", "mimeType": "text/plain", "buffer": b"{\n"}
    await panel.get_by_label("Drop a file").set_input_files([bad])
    await expect(panel.get_by_role("article").first).to_contain_text("Line 1", timeout=WAIT_MS)


async def test_older_batches_stand_below_the_one_that_was_begun(page: Page) -> None:
    panel = await opened(page, "Batches")
    await panel.get_by_role("button", name="Run an example").click()
    await expect(panel.get_by_role("article").first).to_contain_text("batch_", timeout=WAIT_MS)
    older = await panel.get_by_role("article").first.locator("code").inner_text()
    begun = asyncio.Event()

    async def late(route: Route) -> None:
        await begun.wait()
        await route.continue_()

    await page.route("**/v1/batches?limit=*", late)
    await page.reload()
    panel = await opened(page, "Batches")
    await panel.get_by_role("button", name="Run an example").click()
    await expect(panel.get_by_role("article")).to_have_count(1)
    begun.set()
    await expect(panel.get_by_role("article").filter(has_text=older)).to_be_visible(timeout=WAIT_MS)
    await expect(panel.get_by_role("article").first).not_to_contain_text(older)
    await page.unroute_all()


async def test_the_overview_counts_what_is_done(page: Page) -> None:
    overview = await opened(page, "Overview")
    card = overview.get_by_role("article", name="minilm-maxsim")
    await expect(card.locator("dd").first).not_to_have_text("\u2013", timeout=WAIT_MS)
    ranking = await opened(page, "Reranking")
    await ranking.get_by_role("button", name="Rank").click()
    await receipt(ranking)
    await opened(page, "Overview")
    kept = card.locator("div", has=page.get_by_text("kept its bounds", exact=True)).locator("dd")
    await expect(kept.last).to_contain_text("%", timeout=WAIT_MS)
    await expect(card).not_to_contain_text("NaN")


async def test_a_workload_without_a_panel_has_its_routes_and_examples(page: Page) -> None:
    panel = await opened(page, "Echo")
    await panel.get_by_role("button", name="Send").click()
    await receipt(panel)
    await expect(panel.get_by_label("Answer")).to_contain_text("{")


@pytest.mark.parametrize("language", ["OpenAI", "Headpond"])
async def test_the_code_that_is_shown_does_the_same(
    page: Page, language: str, tmp_path: Path
) -> None:
    panel = await opened(page, "Embedding")
    await panel.get_by_role("button", name="Embed").click()
    shown = await receipt(panel)
    await shown.get_by_role("tab", name=language).click()
    code = await shown.get_by_role("tabpanel").inner_text()
    assert KEY not in code
    running = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", code),
        env={**os.environ, "HEADPOND_API_KEY": KEY},
        stdout=PIPE,
        stderr=PIPE,
        cwd=tmp_path,
    )
    said, wrong = await running.communicate()
    assert (said.split(), running.returncode) == ([b"8", b"384"], 0), wrong.decode()
