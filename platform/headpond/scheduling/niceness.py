"""Threads that compute make room for the event loop, so that it answers at once."""

from __future__ import annotations

import os
import threading
from contextlib import suppress

COMPUTING = 5
"""How much nicer threads of engines and plans are than the event loop.

It then gets three quarters of a core that it shares with one of them. Without that a refusal, and
whatever is admitted, waits for its turn among all that compute.
"""

LARGE_CALLS = 10
"""How much nicer lanes of large calls are, where small ones have lanes of their own.

Express lanes then get a core at once. A lane that has a core for itself still has all of it, and
one that has not gets a tenth at least.
"""


def give_way(by: int) -> None:
    """Let this thread, and those it starts, make room for all others, where the system can."""
    thread = threading.get_native_id()
    with suppress(OSError, AttributeError):  # Linux has priorities of threads, others don't
        os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + by)
