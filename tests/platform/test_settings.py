"""An operator's settings, and keys that nobody gets to see."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from pathlib import Path

import pytest

from headpond.api_key import hash_key
from headpond.config_file import SettingsError
from headpond.settings import Settings

KEY = "sk-plain-and-secret"


def write(path: Path, text: str) -> Path:
    file = path / "settings.yaml"
    file.write_text(text)
    return file


def test_an_empty_file_means_open_access(tmp_path: Path) -> None:
    assert Settings.load(write(tmp_path, "")).model_dump() == Settings().model_dump()
    assert Settings().keys == ()


def test_a_file_says_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACME_KEY", "from-env")
    settings = Settings.load(
        write(
            tmp_path,
            f"""
            keys:
              - key: {KEY}
                tenant: acme
                models: [smol*]
                workloads: [generation]
                expires: 2031-01-31T00:00:00Z
              - key_env: ACME_KEY
                tenant: env
              - key_sha256: {hash_key("hashed")}
            tenants:
              acme: {{weight: 3}}
              env: {{}}
            metrics_open: true
            otlp_endpoint: http://collector:4318
            log_level: debug
            """,
        )
    )
    plain, env, hashed = settings.keys
    assert (plain.key_sha256, plain.tenant) == (hash_key(KEY), "acme")
    assert (plain.models, plain.workloads) == (("smol*",), ("generation",))
    assert plain.expires == datetime(2031, 1, 31, tzinfo=UTC)
    assert env.key_sha256 == hash_key("from-env")
    assert (hashed.key_sha256, hashed.tenant) == (hash_key("hashed"), "public")
    assert settings.tenant_weights == {"acme": 3.0, "env": 1.0}
    assert settings.metrics_open
    assert settings.otlp_endpoint == "http://collector:4318"


def test_a_plain_key_is_nowhere_to_be_seen() -> None:
    settings = Settings.read({"keys": [{"key": KEY}]})
    for shown in (repr(settings), str(settings), settings.model_dump_json()):
        assert KEY not in shown
    assert KEY.encode() not in pickle.dumps(settings)


def test_settings_survive_a_round_trip() -> None:
    settings = Settings.read({"keys": [{"key": KEY, "tenant": "t"}], "tenants": {"t": {}}})
    assert Settings.read(settings.model_dump(mode="json")) == settings


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"kyes": []}, "kyes"),
        ({"keys": [{"key": KEY, "key_env": "X"}]}, "keys.0"),
        ({"keys": [{"tenant": "t"}]}, "keys.0"),
        ({"keys": [{"key": ""}]}, "keys.0"),
        ({"keys": [{"key": 12345}]}, "keys.0"),
        ({"keys": [{"key_env": "HEADPOND_NOT_SET"}]}, "keys.0"),
        ({"keys": [{"key_sha256": KEY}]}, "keys.0.key_sha256"),
        ({"keys": [{"key": KEY, "expires": "2031-01-31T00:00:00"}]}, "keys.0.expires"),
        ({"keys": [{"key": KEY, "scopes": []}]}, "keys.0.scopes"),
        ({"keys": KEY}, "keys"),
        ({"tenants": {"a": {"weight": 0}}}, "tenants.a.weight"),
        ({"tenants": {"a": {"weight": float("nan")}}}, "tenants.a.weight"),
        ({"otlp_endpoint": "collector:4318"}, "otlp_endpoint"),
        ({"log_level": "loud"}, "log_level"),
    ],
)
def test_an_error_names_the_field_and_keeps_the_key(given: object, field: str) -> None:
    with pytest.raises(SettingsError) as caught:
        Settings.read(given)
    assert caught.value.param == field
    assert field in str(caught.value)
    assert KEY not in str(caught.value)
    assert "12345" not in str(caught.value)


@pytest.mark.parametrize("text", [f"keys: [{KEY}", f"keys: *{KEY}", f"\t- {KEY}"])
def test_a_file_that_is_not_yaml_is_named_without_its_content(tmp_path: Path, text: str) -> None:
    with pytest.raises(SettingsError, match=r"settings\.yaml") as caught:
        Settings.load(write(tmp_path, text))
    assert KEY not in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="nowhere"):
        Settings.load(tmp_path / "nowhere.yaml")


def test_a_list_is_no_settings(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="the file"):
        Settings.load(write(tmp_path, "[1, 2]"))
