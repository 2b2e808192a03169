"""One running platform for every test that needs a real one."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
import structlog

from testbed import Platform, running_platform

# Log lines of servers in this process are no output of the commands that tests run beside them.
structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.__stderr__))


@pytest.fixture(scope="session")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """Return the platform, started when the first test asks for it."""
    with running_platform(tmp_path_factory.mktemp("platform")) as running:
        yield running
