"""Jobs whose workers are killed while the store errs: the small form of `batch_chaos`."""

from __future__ import annotations

from pathlib import Path

import pytest

from batch_chaos import storm


@pytest.mark.timeout(90)
async def test_each_record_is_answered_once_whatever_is_killed(tmp_path: Path) -> None:
    computed, kills = await storm(tmp_path, f"sqlite:///{tmp_path}/jobs.db", records=2_400, kills=6)
    assert kills > 0
    assert len(computed) == 2_400
