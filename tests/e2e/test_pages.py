"""What the documentation shows, run page by page on a running platform.

First a page's commands, then its programs as one: later blocks go on where earlier ones ended.
`tests/docs/test_blocks.py` reads the blocks that need something which no test has, and commands
that start a platform, change it or take long; those have tests of their own. All pages take ten
minutes, so `make test` runs the two that most people begin with, and `make pages` every one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from base64 import b64decode
from pathlib import Path

import pytest

from headpond.bundle.store import open_bundle
from pages import PAGES, ROOT, URL, Block, blocks, simple_commands
from speakers import as_wav, speech
from testbed import KEY, Platform

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

ELSEWHERE = {"alias", "apply", "bench", "demo", "down", "env", "top", "up"}
"""Commands of ours with tests of their own, as `bundle export` and `key revoke` have."""
UNUSED_KEY = "unused-without-keys"
"""What the pages call a key where there is none."""
SAID = {
    "client.md": ("Paris", "(2, 384)", "Go forward 10 meters.", "go forward ten meters", "1 200"),
    "cli.md": ("The capital of France is Paris.", "0.6738  2  a dog", "seven.png  seed 7", "384"),
}


def runs(command: str) -> bool:
    """Say whether a command is run here."""
    return not any(
        program in ("make", "pip")
        or (program == "headpond" and (words[0] in ELSEWHERE or words[0].startswith("-")))
        or words[:2] in (["bundle", "export"], ["key", "revoke"])
        or "--microphone" in words
        or words == ["chat"]  # a conversation wants a terminal
        for program, *words in simple_commands(command)
    )


def tried(page: Path, language: str) -> list[Block]:
    """Return the blocks of a page that are run."""
    return [
        block
        for block in blocks(page)
        if block.language == language and block.title is None and block.needed is None
    ]


def commands(page: Path) -> list[str]:
    return [each for block in tried(page, "console") for each in block.commands if runs(each)]


RUN = [
    page
    for page in PAGES
    if page.parent.name != "reference"
    and page.name != "add-a-workload.md"
    and (commands(page) or tried(page, "python"))
]


FIRST = ("README.md", "client.md")
"""What `make test` runs."""


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.stem, marks=() if page.name in FIRST else pytest.mark.pages)
        for page in RUN
    ],
)
def test_what_a_page_shows(page: Path, platform: Platform, tmp_path: Path) -> None:
    (tmp_path / "spoken.wav").write_bytes(as_wav(speech(rest_ms=0)))
    (tmp_path / "photo.jpg").write_bytes(_photo())
    (tmp_path / "bundles").mkdir()
    for bundle in (ROOT / "bundles").iterdir():
        (tmp_path / "bundles" / bundle.name).symlink_to(bundle)
    (tmp_path / ".curlrc").write_text(f'header = "authorization: Bearer {KEY}"\nfail-with-body\n')
    for made in (["git", "init", "-q"], ["git", "add", "-N", "photo.jpg", "spoken.wav"]):
        subprocess.run(made, cwd=tmp_path, check=True)
    said = ""
    if shown := commands(page):
        said += _run(["bash", "-euo", "pipefail", "-c", "\n".join(shown)], platform, tmp_path)
    if programs := tried(page, "python"):
        (tmp_path / "page.py").write_text(
            _placed("\n".join(block.text for block in programs), platform)
        )
        said += _run([sys.executable, "page.py"], platform, tmp_path)
    for expected in SAID.get(page.name, ()):
        assert expected in said


def _photo() -> bytes:
    given = open_bundle(ROOT / "bundles/efficientnet-lite0").manifest.fixtures[0].given["image"]
    assert isinstance(given, str)
    return b64decode(given)


def _run(command: list[str], platform: Platform, folder: Path) -> str:
    done = subprocess.run(
        [_placed(part, platform) for part in command],
        cwd=folder,
        env={
            **os.environ,
            "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])),
            "PYTHONWARNINGS": "error",
            "CURL_HOME": str(folder),
            "HEADPOND_BASE_URL": platform.base_url,
            "HEADPOND_API_KEY": KEY,
            "HEADPOND_CACHE": os.environ.get("HEADPOND_CACHE", str(folder / "cache")),
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _placed(text: str, platform: Platform) -> str:
    """Return a text of a page with our platform, and a key for it, where the page has its own."""
    theirs, ours = URL.removeprefix("http://"), platform.base_url.removeprefix("http://")
    return text.replace(theirs, ours).replace(UNUSED_KEY, KEY)
