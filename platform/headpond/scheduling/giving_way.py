"""Threads that make room for all others: what they do, nobody waits for at once."""

from __future__ import annotations

import os
import threading
from contextlib import suppress

GIVEN_WAY = 10
"""How much nicer such a thread is.

The others then get a core at once. One that has a core for itself still has all of it, and
one that has not gets a tenth at least.
"""


def give_way() -> None:
    """Let this thread make room for all others, where the system can do that."""
    thread = threading.get_native_id()
    with suppress(OSError, AttributeError):  # Linux has priorities of threads, others don't
        os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + GIVEN_WAY)
