"""Everything of jobs that HTTP shows, over the stores they are kept in.

Made by whoever has such stores: what it imports costs model replicas memory for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from starlette.routing import Route

from headpond.call import Backend
from headpond.http.auth import Keyring
from headpond.http.batches import Batches
from headpond.http.files import Files
from headpond.http.job_metrics import JobMetrics
from headpond.jobs.access import JobsAccess
from headpond.jobs.endpoints import batch_endpoints
from headpond.record import WorkloadRecord


class JobsDoor:
    """The routes and the metrics of files and batches."""

    def __init__(self, access: JobsAccess) -> None:
        self._access = access
        self.metrics = JobMetrics(access)

    def routes(
        self, records: Sequence[WorkloadRecord], backend: Backend, keyring: Keyring
    ) -> list[Route]:
        """Return the routes of files and batches.

        Args:
            records: The workloads that jobs may ask.
            backend: Knows what each model stands for.
            keyring: Who may call.
        """
        batches = Batches(self._access, keyring, batch_endpoints(records), backend)
        return [*Files(self._access, keyring).routes(), *batches.routes()]
