"""`headpond key`: keys are made, listed and revoked in a file, and shown once."""

from __future__ import annotations

import json
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headpond.api_key import hash_key, key_id, read_keys
from headpond.cli import app

runner = CliRunner()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.yaml"


def run(path: Path, *arguments: str, code: int = 0) -> str:
    """Run `headpond key`; return what it says to scripts."""
    result = runner.invoke(app, ["key", *arguments, "--file", str(path)])
    assert result.exit_code == code, result.output
    return result.stdout


def test_a_new_key_is_printed_and_only_its_hash_is_kept(path: Path) -> None:
    key = run(path, "new", "--tenant", "acme").strip()
    assert len(key) > 40
    assert key not in path.read_text()
    (kept,) = read_keys(path)
    assert (kept.key_sha256, kept.tenant, kept.models) == (hash_key(key), "acme", ("*",))
    assert stat.S_IMODE(path.stat().st_mode) & stat.S_IROTH == 0
    assert run(path, "new", "--tenant", "acme").strip() != key


def test_a_key_says_what_it_opens(path: Path) -> None:
    run(
        path,
        "new",
        *("--tenant", "acme", "--models", "chat", "--models", "smol*"),
        *("--workloads", "generation", "--expires", "90d", "--metrics"),
    )
    run(path, "new", "--tenant", "ops", "--admin", "--expires", "2031-01-31")
    first, second = read_keys(path)
    assert (first.models, first.workloads) == (("chat", "smol*"), ("generation",))
    assert first.expires is not None
    left = first.expires - datetime.now(UTC)
    assert timedelta(days=89) < left <= timedelta(days=90)
    assert (first.metrics, first.admin, second.admin) == (True, False, True)
    assert second.expires == datetime(2031, 1, 31, tzinfo=UTC)


def test_keys_are_listed_without_their_hashes(path: Path) -> None:
    key = run(path, "new", "--tenant", "acme", "--expires", "1m").strip()
    run(path, "new", "--tenant", "brook")
    listed = json.loads(run(path, "list", "--json"))
    assert [each["tenant"] for each in listed] == ["acme", "brook"]
    assert listed[0]["id"] == key_id(hash_key(key))
    shown = run(path, "list")
    assert "brook" in shown
    assert "never" in shown
    assert hash_key(key) not in shown + json.dumps(listed)


def test_a_revoked_key_is_gone_and_the_others_stay_as_they_were(path: Path) -> None:
    path.write_text("- {key: sk-plain, tenant: plain}\n- {key_env: HOME, tenant: env}\n")
    key = run(path, "new", "--tenant", "acme").strip()
    run(path, "revoke", key_id(hash_key("sk-plain")))
    assert [kept.tenant for kept in read_keys(path)] == ["env", "acme"]
    assert "key_env: HOME" in path.read_text()
    run(path, "revoke", hash_key(key))
    assert [kept.tenant for kept in read_keys(path)] == ["env"]


@pytest.mark.parametrize("identifier", ["", "0", "ffffffff"])
def test_what_names_no_key_revokes_none(path: Path, identifier: str) -> None:
    run(path, "new", "--tenant", "acme")
    run(path, "revoke", identifier, code=1)
    assert len(read_keys(path)) == 1


def test_a_file_that_is_wrong_is_left_alone(path: Path) -> None:
    path.write_text("- {tenant: acme}\n")
    run(path, "new", "--tenant", "acme", code=1)
    assert path.read_text() == "- {tenant: acme}\n"


@pytest.mark.parametrize("expires", ["soon", "0d", "2031-13-01"])
def test_a_time_that_is_none_is_refused(path: Path, expires: str) -> None:
    run(path, "new", "--tenant", "acme", "--expires", expires, code=2)
    assert not path.exists()


def test_who_may_read_the_file_stays(path: Path) -> None:
    path.write_text("[]")
    path.chmod(0o600)
    link = path.with_name("link.yaml")
    link.symlink_to(path)
    run(link, "new", "--tenant", "acme")
    assert link.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
