"""Threads that compute make room for others."""

from __future__ import annotations

import os
import sys
import threading

import pytest

from headpond.scheduling.niceness import COMPUTING, give_way


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has priorities of threads")
def test_only_the_thread_itself_makes_room() -> None:
    seen: list[int] = []

    def compute() -> None:
        before = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
        give_way(COMPUTING)
        seen.extend((before, os.getpriority(os.PRIO_PROCESS, threading.get_native_id())))

    own = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    thread = threading.Thread(target=compute)
    thread.start()
    thread.join()
    before, after = seen
    assert after == min(before + COMPUTING, 19)
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == own
