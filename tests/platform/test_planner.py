"""The memory plan: what is static, what requests hold, and what does not fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headpond.bundle.document import read_manifest
from headpond.bundle.manifest import Manifest
from headpond.errors import BundleError
from headpond.planner import plan_memory
from headpond.record import Fit, Limiter
from headpond.testing.echo import MOST_TEXT_BYTES, record, write_echo_bundle

WEIGHED = replace(
    record,
    fit=Fit(
        devices=("cpu",),
        dtypes=("uint8",),
        limited_by=Limiter.COMPUTE,
        static_bytes=("most_text_bytes",),
    ),
)


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    return read_manifest(write_echo_bundle(tmp_path / "echo"))


def test_bytes_are_static_plus_what_requests_hold(manifest: Manifest) -> None:
    plan = plan_memory(WEIGHED, manifest, state_bytes=3 * MOST_TEXT_BYTES, available_bytes=2**40)
    assert plan.static_bytes == MOST_TEXT_BYTES
    assert plan.largest_request_bytes == MOST_TEXT_BYTES
    assert plan.concurrency == 3


def test_a_tighter_limit_of_the_bundle_lets_more_in(manifest: Manifest) -> None:
    tight = manifest.model_copy(update={"limits": {"most_text_bytes": MOST_TEXT_BYTES // 4}})
    plan = plan_memory(WEIGHED, tight, state_bytes=MOST_TEXT_BYTES, available_bytes=2**40)
    assert plan.concurrency == 4


def test_what_does_not_fit_is_refused_with_the_numbers(manifest: Manifest) -> None:
    with pytest.raises(
        BundleError, match=r"needs 3 MiB .1 MiB static and 2 MiB .* 2 MiB"
    ) as raised:
        plan_memory(WEIGHED, manifest, state_bytes=2 * MOST_TEXT_BYTES, available_bytes=2 * 2**20)
    assert raised.value.param == "state_bytes"
