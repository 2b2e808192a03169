"""The audit log: who used which key, never the key, and never more than can be read."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from functools import partial
from typing import Any

import pytest
from structlog.testing import capture_logs

from headpond.api_key import ApiKey, hash_key
from headpond.errors import AuthenticationFailed, PermissionDenied
from headpond.http.auth import Keyring
from headpond.tenancy.audit import Audit
from headpond.testing.clock import FakeClock

ACME, OLD = "sk-acme-secret", "sk-old-secret"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def keyring(clock: FakeClock) -> Keyring:
    keys = [
        {"key": ACME, "tenant": "acme", "models": ["toy"], "workloads": ["toy"]},
        {"key": OLD, "tenant": "old", "expires": "2020-01-01T00:00:00Z"},
    ]
    return Keyring([ApiKey.model_validate(key) for key in keys], audit=Audit(clock))


def shown(key: str) -> dict[bytes, bytes]:
    return {b"authorization": f"Bearer {key}".encode()}


def refused(keyring: Keyring, key: str) -> None:
    with pytest.raises(AuthenticationFailed):
        keyring.authenticate(shown(key), "/v1/toy")


def uses(keyring: Keyring) -> dict[str, float]:
    (family,) = [each for each in keyring.collect() if each.name == "headpond_key_uses"]
    return {sample.labels["outcome"]: sample.value for sample in family.samples}


def test_the_first_use_in_an_hour_is_told(keyring: Keyring, clock: FakeClock) -> None:
    with capture_logs() as lines:
        for _ in range(3):
            keyring.authenticate(shown(ACME), "/v1/toy")
        clock.advance(3600.0)
        keyring.authenticate(shown(ACME), "/v1/other")
    told: MutableMapping[str, Any] = {
        "event": "key_use",
        "log_level": "info",
        "key": hash_key(ACME)[:8],
        "tenant": "acme",
        "route": "/v1/toy",
        "outcome": "ok",
    }
    assert lines == [told, {**told, "route": "/v1/other"}]
    assert uses(keyring)["ok"] == 4


def test_every_refused_use_is_told_without_the_key(keyring: Keyring) -> None:
    with capture_logs() as lines:
        refused(keyring, "sk-guessed")
        refused(keyring, OLD)
        caller = keyring.authenticate(shown(ACME), "/v1/toy")
        denials: list[Callable[[], None]] = [
            partial(caller.require_model, "other"),
            partial(caller.require_workload, "speech"),
            caller.require_metrics,
            partial(caller.require_tenant, "brook"),
        ]
        for denied in denials:
            with pytest.raises(PermissionDenied):
                denied()
    told = [(line["key"], line["tenant"], line["outcome"]) for line in lines]
    acme = (hash_key(ACME)[:8], "acme")
    assert told == [
        (hash_key("sk-guessed")[:8], None, "unknown"),
        (hash_key(OLD)[:8], "old", "expired"),
        (*acme, "ok"),
        *[(*acme, "permission_denied")] * 4,
    ]
    for secret in ("sk-guessed", OLD, ACME, hash_key(ACME)):
        assert secret not in str(lines)


def test_many_refusals_are_counted_and_their_number_is_told(
    keyring: Keyring, clock: FakeClock
) -> None:
    with capture_logs() as lines:
        for number in range(500):
            refused(keyring, f"sk-{number}")
        assert len(lines) == 60
        clock.advance(60.0)
        refused(keyring, "sk-last")
    assert lines[-1]["untold"] == 440
    assert uses(keyring)["unknown"] == 501


def test_a_request_without_a_key_is_only_counted(keyring: Keyring) -> None:
    with capture_logs() as lines, pytest.raises(AuthenticationFailed):
        keyring.authenticate({}, "/v1/toy")
    assert lines == []
    assert uses(keyring)["missing"] == 1
