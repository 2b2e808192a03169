"""Processes whose parent is killed."""

from __future__ import annotations

import subprocess
import sys

import psutil

from headpond_workloads.generation.engine.apart import module_environment

SOON_S = 20
"""Of what has to be over in a second on a machine that has nothing else to do."""


def require_no_orphan(script: str, *arguments: str) -> None:
    """Kill a process that has started one child, and require that the child ends too.

    Args:
        script: Starts the child, prints `ready`, and waits.
        arguments: Its own.
    """
    parent = subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=module_environment(),
    )
    with parent:
        assert parent.stdout is not None
        assert b"ready" in parent.stdout.readline()
        children = psutil.Process(parent.pid).children()
        assert len(children) == 1
        parent.kill()
        _, alive = psutil.wait_procs(children, timeout=SOON_S)
        assert not alive
