"""Every code block of the documentation is what it looks like; `tests/e2e/test_pages.py` runs them."""

from __future__ import annotations

import ast
import importlib
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from typer.main import get_command

from headpond.cli import app as command_line
from pages import PAGES, ROOT, Block, blocks, simple_commands
from yaml_parts import check_yaml

BLOCKS = [block for page in PAGES for block in blocks(page)]
SHOWN = frozenset({"js", "text"})
"""Languages whose blocks are not checked here: the panel has a test, texts have none."""
NEEDED = {
    "a cluster",
    "a microphone",
    "Docker",
    "a Ray of its own",
    "folders that the config names",
    "a vector store",
    "a GPU",
    "the Hugging Face Hub",
    "a server of the other kind",
    "a checkout",
}
MARKED = 20
SHELL = frozenset({"mkdir", "cat", "echo", "export", "jq", "git", "printf", "cut", "grep", "sleep"})
FILES, FOLDERS = ("in.jsonl", "seven.png", "spoken.wav"), ("loud", "bundles/my-chat")
"""What earlier commands of the pages have made."""
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def written_in(*languages: str) -> pytest.MarkDecorator:
    """Give a test every block in these languages."""
    found = [block for block in BLOCKS if block.language in languages]
    assert found, languages
    return pytest.mark.parametrize("block", found, ids=str)


def test_every_block_says_what_it_is_and_what_it_needs() -> None:
    known = SHOWN | {"console", "python", "toml", "yaml"}
    assert [str(block) for block in BLOCKS if block.language not in known] == []
    marked = {block.needed for block in BLOCKS if block.needed is not None}
    assert marked <= NEEDED
    # The others are run; who marks one more says so here.
    assert sum(block.needed is not None for block in BLOCKS) == MARKED


@written_in("python")
def test_python(block: Block) -> None:
    tree = ast.parse(_whole(block), filename=str(block))
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module), names=names) if not _shown(module):
                found = importlib.import_module(module)
                for name in names:
                    assert hasattr(found, name.name), f"{module}.{name.name}"
            case ast.Import(names=names):
                for name in names:
                    importlib.import_module(name.name)


def _whole(block: Block) -> str:
    """Return a program; the reference shows what a call takes as `name(field: type) -> type`."""
    called = block.page.parent.name == "reference" and re.match(r"\w+\(.*[:)*]", block.text, re.S)
    return f"def {block.text.rstrip()}: ..." if called else block.text


def _shown(module: str) -> bool:
    return module.partition(".")[0] == "shouting"  # `docs/add-a-workload.md` has it itself


@written_in("yaml")
def test_yaml(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in re.findall(r"_env: (\w+)", block.text):
        monkeypatch.setenv(name, "sk-of-the-environment")
    if block.title is None:  # whole files have tests of their own
        check_yaml(block.text, block.page, tmp_path)


@written_in("toml")
def test_toml(block: Block) -> None:
    groups = tomllib.loads(block.text)["project"]["entry-points"]
    assert groups.keys() <= PROJECT["entry-points"].keys()


def _headpond(words: Sequence[str]) -> None:
    """Parse a command line as the program does, and do nothing."""
    if words == ["--install-completion"]:
        return
    command, words = get_command(command_line), list(words)
    context = command.make_context("headpond", words)
    while hasattr(command, "resolve_command"):
        name, command, words = command.resolve_command(
            context, [*context._protected_args, *context.args]
        )
        assert command is not None
        context = command.make_context(name, words, parent=context)


def _make(words: Sequence[str]) -> None:
    target = next(word for word in words if "=" not in word)
    rules = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(rf"^{target}:", rules, re.M)


def _pip(words: Sequence[str]) -> None:
    verb, what = words
    assert verb == "install"
    found = re.fullmatch(r"headpond(?:\[(\w+)\])?", what)
    assert found
    assert found[1] is None or found[1] in PROJECT["optional-dependencies"]


def _python(words: Sequence[str]) -> None:
    assert (ROOT / words[0]).is_file()


def _curl(words: Sequence[str]) -> None:
    assert any(word.startswith("http://127.0.0.1:8000/") for word in words)


PARSERS: Mapping[str, Callable[[Sequence[str]], None]] = {
    "curl": _curl,
    "headpond": _headpond,
    "make": _make,
    "pip": _pip,
    "python": _python,
}


@written_in("console")
def test_commands(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in FILES:
        (tmp_path / name).touch()
    for name in FOLDERS:
        (tmp_path / name).mkdir(parents=True)
    for path in (*ROOT.glob("bundles/*"), *ROOT.glob("deployments/*")):
        copy = tmp_path / path.relative_to(ROOT)
        copy.parent.mkdir(exist_ok=True)
        copy.symlink_to(path)
    monkeypatch.chdir(tmp_path)
    assert block.commands
    for command in block.commands:
        for program, *words in simple_commands(command):
            if program in PARSERS:
                PARSERS[program](words)
            else:
                assert program in SHELL or block.needed, program
