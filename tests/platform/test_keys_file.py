"""Keys in a file: they come and go without a restart, and a broken file changes nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from headpond.api_key import ApiKey, hash_key
from headpond.config_file import SettingsError
from headpond.errors import AuthenticationFailed
from headpond.http.app import ASGIApp, build_app
from headpond.http.auth import Keyring
from headpond.record import WorkloadRecord
from headpond.settings import Settings
from headpond.tenancy.key_file import KeyFile
from headpond.testing.asgi import AsgiRequest
from headpond.testing.clock import FakeClock
from headpond.testing.scripted import ScriptedBackend


def write(path: Path, *keys: dict[str, object]) -> None:
    """Replace the file at once, as mounted secrets are."""
    new = path.with_suffix(".new")
    new.write_text(yaml.safe_dump(list(keys)))
    new.replace(path)


def hashed(key: str, tenant: str) -> dict[str, object]:
    return {"key_sha256": hash_key(key), "tenant": tenant}


def tenant_of(keyring: Keyring, key: str) -> str | None:
    try:
        headers = {b"authorization": f"Bearer {key}".encode()}
        return keyring.authenticate(headers, "/v1/toy").tenant
    except AuthenticationFailed:
        return None


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "keys.yaml"
    write(path, hashed("sk-a", "acme"), hashed("sk-b", "brook"))
    return path


@pytest.fixture
def keyring(path: Path, clock: FakeClock) -> Keyring:
    fixed = ApiKey.model_validate({"key": "sk-fixed", "tenant": "fixed"})
    return Keyring([fixed], KeyFile(path, clock))


def test_keys_of_the_file_stand_beside_those_of_the_settings(keyring: Keyring) -> None:
    assert [tenant_of(keyring, key) for key in ("sk-a", "sk-b", "sk-fixed", "sk-c")] == [
        "acme",
        "brook",
        "fixed",
        None,
    ]


def test_keys_come_and_go_within_a_second(keyring: Keyring, path: Path, clock: FakeClock) -> None:
    write(path, hashed("sk-b", "brook"), hashed("sk-c", "acme"))
    assert tenant_of(keyring, "sk-a") == "acme"
    clock.advance(1.0)
    assert [tenant_of(keyring, key) for key in ("sk-a", "sk-b", "sk-c", "sk-fixed")] == [
        None,
        "brook",
        "acme",
        "fixed",
    ]


@pytest.mark.parametrize("broken", ["- {tenant: acme}", "- [", "keys: []", "\x00", "- 1"])
def test_a_broken_file_keeps_the_old_keys_and_is_counted_once(
    keyring: Keyring, path: Path, clock: FakeClock, broken: str
) -> None:
    path.write_text(broken)
    for _ in range(3):
        clock.advance(1.0)
        assert tenant_of(keyring, "sk-a") == "acme"
    assert failures(keyring) == 1
    write(path, hashed("sk-c", "acme"))
    clock.advance(1.0)
    assert (tenant_of(keyring, "sk-a"), tenant_of(keyring, "sk-c")) == (None, "acme")
    assert failures(keyring) == 1


def test_a_file_that_is_gone_keeps_the_old_keys(
    keyring: Keyring, path: Path, clock: FakeClock
) -> None:
    path.unlink()
    clock.advance(1.0)
    assert tenant_of(keyring, "sk-a") == "acme"
    assert failures(keyring) == 1


def test_a_secret_that_is_mounted_anew_is_followed(tmp_path: Path, clock: FakeClock) -> None:
    """Kubernetes keeps the file and replaces the folder that the way to it leads through."""
    for version, key in (("1", "sk-old"), ("2", "sk-new")):
        (tmp_path / version).mkdir()
        write(tmp_path / version / "keys.yaml", hashed(key, "acme"))
        os.utime(tmp_path / version / "keys.yaml", (0, 0))
    (tmp_path / "data").symlink_to("1")
    (tmp_path / "keys.yaml").symlink_to("data/keys.yaml")
    keyring = Keyring([], KeyFile(tmp_path / "keys.yaml", clock))
    assert tenant_of(keyring, "sk-old") == "acme"
    (tmp_path / "data").unlink()
    (tmp_path / "data").symlink_to("2")
    clock.advance(1.0)
    assert (tenant_of(keyring, "sk-old"), tenant_of(keyring, "sk-new")) == (None, "acme")


def test_a_file_without_keys_opens_nothing(path: Path, clock: FakeClock) -> None:
    keyring = Keyring([], KeyFile(path, clock))
    write(path)
    clock.advance(1.0)
    assert keyring.secured
    assert tenant_of(keyring, "sk-a") is None


def test_a_platform_does_not_start_on_a_broken_file(
    record: WorkloadRecord, backend: ScriptedBackend, tmp_path: Path
) -> None:
    settings = Settings(keys_file=str(tmp_path / "nowhere.yaml"))
    with pytest.raises(SettingsError, match="nowhere"):
        build_app([record], backend, settings)


async def test_an_app_takes_keys_from_where_headpond_is_at_home(
    record: WorkloadRecord,
    backend: ScriptedBackend,
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HEADPOND_HOME", str(path.parent))
    app: ASGIApp = build_app([record], backend, Settings(keys_file="keys.yaml"))
    for key, status in (("sk-a", 200), ("sk-c", 401)):
        headers = {"authorization": f"Bearer {key}"}
        request = AsgiRequest(path="/v1/models", method="GET", headers=headers)
        assert (await request.run(app)).status == status


def failures(keyring: Keyring) -> float:
    (family,) = [each for each in keyring.collect() if each.name == "headpond_keys_file_failures"]
    return family.samples[0].value
