"""One running platform for every test that needs a real one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testbed import Platform, running_platform


@pytest.fixture(scope="session")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """Return the platform, started when the first test asks for it."""
    with running_platform(tmp_path_factory.mktemp("platform")) as running:
        yield running
