"""Sweeping: files whose time is over leave the object store, and then the database."""

from __future__ import annotations

import asyncio
import random

import structlog

from headpond.jobs.errors import JobsUnavailable, ObjectsUnavailable
from headpond.jobs.objects import Objects
from headpond.jobs.store import Jobs

log = structlog.get_logger(__name__)

_PERIOD_S = 300.0


async def keep_sweeping(jobs: Jobs, objects: Objects, *, period_s: float = _PERIOD_S) -> None:
    """Sweep again and again; several may do so at once."""
    while True:
        try:
            while await sweep(jobs, objects):
                pass
        except (JobsUnavailable, ObjectsUnavailable) as error:
            log.warning("sweep_put_off", reason=error.message)
        # Workers that began together don't sweep together.
        await asyncio.sleep(period_s * random.uniform(0.5, 1.5))  # noqa: S311


async def sweep(jobs: Jobs, objects: Objects) -> int:
    """Delete some files whose time is over, and return how many.

    Their rows go last: whoever is killed meanwhile leaves them for the next.

    Raises:
        JobsUnavailable: The database did not answer.
        ObjectsUnavailable: The object store failed for too long.
    """
    expired = await jobs.expired_files()
    for file in expired:
        await objects.delete(file.key)
    if expired:
        await jobs.forget_files([file.id for file in expired])
    return len(expired)
