"""Links of the documentation lead somewhere, and the site has every page."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from pages import PAGES, ROOT

DOCS = ROOT / "docs"
_CODE = re.compile(r"^ *```.*?^ *```$|`[^`\n]*`", re.M | re.S)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.*)$", re.M)


def _text(page: Path) -> str:
    return _CODE.sub("", page.read_text(encoding="utf-8"))


def _anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and the site make them."""
    headings = _HEADING.findall(page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", each.lower()).strip().replace(" ", "-") for each in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in _LINK.findall(_text(page)):
        if re.match(r"https?:|mailto:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in _anchors(target), link
        # The site has nothing else.
        assert page.parent == ROOT or target.is_relative_to(DOCS), link


def test_the_site_has_every_page_once() -> None:
    config = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))
    found = sorted(_listed(config["project"]["nav"]))
    assert found == sorted(str(page.relative_to(DOCS)) for page in PAGES if page.parent != ROOT)


def _listed(nav: object) -> Iterator[str]:
    match nav:
        case str(page):
            yield page
        case list(entries):
            for entry in entries:
                yield from _listed(entry)
        case dict(titled):
            for entry in titled.values():
                yield from _listed(entry)
