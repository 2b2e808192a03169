"""Files and jobs as their owners see them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from uuid import uuid4

from sqlalchemy import (
    ColumnElement,
    Connection,
    RowMapping,
    Table,
    and_,
    case,
    delete,
    func,
    insert,
    or_,
    select,
    true,
    tuple_,
    update,
)
from sqlalchemy.exc import IntegrityError

from headpond.errors import InvalidRequest, NotFound
from headpond.jobs import tables
from headpond.jobs.database import Database
from headpond.jobs.errors import FileInUse, IdempotencyConflict, JobOver
from headpond.jobs.job import Job, JobStatus, NewFile, NewJob, Page, StoredFile
from headpond.jobs.rows import file_of, jobs_of
from headpond.jobs.task import TaskKind, new_task

BATCH_INPUT = "batch"
"""The purpose of a file that a job may read."""

_STOPPABLE = (JobStatus.VALIDATING, JobStatus.IN_PROGRESS)
_OVER = [status for status in JobStatus if status.over]


def new_file_id() -> str:
    """Return an identifier for a file."""
    return f"file-{uuid4().hex}"


def new_job_id() -> str:
    """Return an identifier for a job."""
    return f"batch_{uuid4().hex}"


@dataclass(frozen=True, slots=True)
class Tally:
    """Records, and estimated work in bytes, of all jobs for one endpoint."""

    completed: int
    failed: int
    work_done: int
    work_left: int


@dataclass(frozen=True, slots=True)
class Totals:
    """How many jobs there are in each status, and what was done for each endpoint."""

    jobs: Mapping[JobStatus, int]
    endpoints: Mapping[str, Tally]


class Jobs:
    """Files and jobs of every tenant; what is another tenant's is not found."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add_file(self, file: NewFile) -> StoredFile:
        """Tell of a file that the object store has.

        Raises:
            JobsUnavailable: The database did not answer.
        """
        return await self._database.write(
            lambda connection, now_s: add_file(connection, now_s, file)
        )

    async def file(self, file_id: str, tenant: str) -> StoredFile:
        """Return a file.

        Raises:
            NotFound: The tenant has no such file, or not any more.
            JobsUnavailable: The database did not answer.
        """
        return await self._database.read(
            lambda connection, now_s: _file(connection, now_s, file_id, tenant)
        )

    async def files(
        self,
        tenant: str,
        *,
        purpose: str | None = None,
        after: str | None = None,
        limit: int = 20,
        oldest_first: bool = False,
    ) -> Page[StoredFile]:
        """Return a tenant's files, newest first.

        Args:
            tenant: Whose.
            purpose: Only files of this purpose.
            after: Begin behind this file.
            limit: The most that are returned.
            oldest_first: Turn the order round.

        Raises:
            InvalidRequest: `after` is none of the tenant's files.
            JobsUnavailable: The database did not answer.
        """
        table = tables.files

        def find(connection: Connection, now_s: float) -> Page[StoredFile]:
            wanted = _lasts(now_s)
            if purpose is not None:
                wanted = and_(wanted, table.c.purpose == purpose)
            rows, has_more = _page(
                connection, table, wanted, tenant, after, limit, oldest_first=oldest_first
            )
            return Page(tuple(map(file_of, rows)), has_more)

        return await self._database.read(find)

    async def delete_file(self, file_id: str, tenant: str) -> StoredFile:
        """Forget a file; the object store still has it, for the caller to delete.

        Raises:
            NotFound: The tenant has no such file.
            FileInUse: A job that is not over reads it.
            JobsUnavailable: The database did not answer.
        """

        def forget(connection: Connection, now_s: float) -> StoredFile:
            file = _file(connection, now_s, file_id, tenant)
            _require_unused(connection, file_id)
            connection.execute(delete(tables.files).where(tables.files.c.id == file_id))
            return file

        return await self._database.write(forget)

    async def expired_files(self, *, limit: int = 100) -> tuple[StoredFile, ...]:
        """Return files of all tenants whose time is over and that no job needs any more.

        Raises:
            JobsUnavailable: The database did not answer.
        """
        table = tables.files
        jobs = tables.jobs.c
        going_on = jobs.status.not_in(_OVER)
        needed = select(jobs.input_file_id).where(going_on, jobs.input_file_id.is_not(None))

        def find(connection: Connection, now_s: float) -> tuple[StoredFile, ...]:
            over = table.c.expires_s <= now_s
            query = select(table).where(over, table.c.id.not_in(needed)).limit(limit)
            return tuple(map(file_of, connection.execute(query).mappings()))

        return await self._database.read(find)

    async def forget_files(self, file_ids: Sequence[str]) -> None:
        """Forget files whose objects are deleted.

        Raises:
            JobsUnavailable: The database did not answer.
        """
        table = tables.files
        gone = delete(table).where(table.c.id.in_(file_ids))
        await self._database.write(lambda connection, _: connection.execute(gone))

    async def create(self, job: NewJob) -> Job:
        """Make a job; its input is read later, by a worker.

        The same request with the same idempotency key makes no second one.

        Raises:
            InvalidRequest: The tenant has no such file, or it is not for batches.
            IdempotencyConflict: The key was used with another request.
            JobsUnavailable: The database did not answer.
        """
        try:
            return await self._database.write(_creation(job))
        except IntegrityError:
            # Another request with the key was quicker: the second look finds its job.
            return await self._database.write(_creation(job))

    async def made(
        self, tenant: str, idempotency_key: str, body_sha256: str, input_file_id: str | None
    ) -> Job | None:
        """Return the job that an earlier request with an idempotency key has made, if any.

        Args:
            tenant: Who asks.
            idempotency_key: Theirs.
            body_sha256: Tells whether both ask for the same, but for the file.
            input_file_id: The file, if it reads one: another with the same content is the same input.

        Raises:
            IdempotencyConflict: That was another request.
            JobsUnavailable: The database did not answer.
        """
        same = tables.jobs.c.idempotency_key == idempotency_key

        def find(connection: Connection, now_s: float) -> Job | None:
            known = _found(connection, tenant, same, body_sha256, input_file_id)
            return None if known is None else _job(connection, now_s, known, tenant)

        return await self._database.read(find)

    async def job(self, job_id: str, tenant: str) -> Job:
        """Return a job.

        Raises:
            NotFound: The tenant has no such job.
            JobsUnavailable: The database did not answer.
        """
        return await self._database.read(
            lambda connection, now_s: _job(connection, now_s, job_id, tenant)
        )

    async def jobs(self, tenant: str, *, after: str | None = None, limit: int = 20) -> Page[Job]:
        """Return a tenant's jobs, newest first.

        Args:
            tenant: Whose.
            after: Begin behind this job.
            limit: The most that are returned.

        Raises:
            InvalidRequest: `after` is none of the tenant's jobs.
            JobsUnavailable: The database did not answer.
        """

        def find(connection: Connection, now_s: float) -> Page[Job]:
            rows, has_more = _page(connection, tables.jobs, true(), tenant, after, limit)
            return Page(tuple(jobs_of(connection, now_s, rows)), has_more)

        return await self._database.read(find)

    async def cancel(self, job_id: str, tenant: str) -> Job:
        """Ask a job to stop; what is done is kept. A job that is stopping stays so.

        Raises:
            NotFound: The tenant has no such job.
            JobOver: All of it is done, or it has failed.
            JobsUnavailable: The database did not answer.
        """
        table = tables.jobs

        def stop(connection: Connection, now_s: float) -> Job:
            changed = connection.execute(
                update(table)
                .where(
                    table.c.id == job_id, table.c.tenant == tenant, table.c.status.in_(_STOPPABLE)
                )
                .values(status=JobStatus.CANCELLING, cancelling_s=now_s)
            )
            if changed.rowcount:
                connection.execute(
                    update(tables.tasks)
                    .where(tables.tasks.c.job_id == job_id)
                    .values(not_before_s=0.0)
                )
            job = _job(connection, now_s, job_id, tenant)
            if job.status is not JobStatus.CANCELLING:
                raise JobOver(f"The batch is {job.status}; it cannot be cancelled.")
            return job

        return await self._database.write(stop)

    async def totals(self) -> Totals:
        """Return what there is and was done over all tenants, for metrics.

        Raises:
            JobsUnavailable: The database did not answer.
        """
        return await self._database.read(lambda connection, _: _totals(connection))


def add_file(connection: Connection, now_s: float, file: NewFile) -> StoredFile:
    """Tell of a file within a transaction; telling twice changes nothing."""
    known = _row(connection, tables.files, file.id)
    if known is None:
        expires_s = None if file.expires_after_s is None else now_s + file.expires_after_s
        connection.execute(
            insert(tables.files).values(
                id=file.id,
                tenant=file.tenant,
                purpose=file.purpose,
                filename=file.filename,
                bytes=file.bytes,
                sha256=file.sha256,
                key=file.key,
                created_s=now_s,
                expires_s=expires_s,
            )
        )
        known = _row(connection, tables.files, file.id)
    if known is None:
        raise NotFound
    return file_of(known)


def _creation(job: NewJob) -> Callable[[Connection, float], Job]:
    def create(connection: Connection, now_s: float) -> Job:
        known = _known(connection, job)
        if known is None:
            connection.execute(insert(tables.jobs).values(**_values(connection, now_s, job)))
            connection.execute(insert(tables.tasks).values(**new_task(job.id, TaskKind.READ)))
            known = job.id
        return _job(connection, now_s, known, job.tenant)

    return create


def _known(connection: Connection, job: NewJob) -> str | None:
    """Return the job that an earlier request with the idempotency key, or this one, has made."""
    table = tables.jobs
    same = table.c.id == job.id
    if job.idempotency_key is not None:
        same = or_(same, table.c.idempotency_key == job.idempotency_key)
    return _found(connection, job.tenant, same, job.body_sha256, job.input_file_id)


def _found(
    connection: Connection,
    tenant: str,
    same: ColumnElement[bool],
    body_sha256: str | None,
    input_file_id: str | None,
) -> str | None:
    table, files = tables.jobs, tables.files
    row = connection.execute(select(table).where(table.c.tenant == tenant, same)).one_or_none()
    if row is None:
        return None
    if row.input_file_id != input_file_id:
        # Who tries again may have uploaded again: it is the content that counts.
        alike = select(files.c.id).where(
            files.c.id == input_file_id,
            files.c.tenant == tenant,
            files.c.sha256 == row.input_sha256,
        )
        if connection.execute(alike).first() is None:
            raise IdempotencyConflict
    if row.body_sha256 != body_sha256:
        raise IdempotencyConflict
    return str(row.id)


def _values(connection: Connection, now_s: float, job: NewJob) -> dict[str, object]:
    file = None
    if job.input_file_id is not None:
        file = _input_file(connection, now_s, job.input_file_id, job.tenant)
    return {
        "id": job.id,
        "tenant": job.tenant,
        "endpoint": job.endpoint,
        "model": job.model,
        "bundle": job.bundle,
        "input_file_id": job.input_file_id,
        "input_key": None if file is None else file.key,
        "input_sha256": None if file is None else file.sha256,
        "source": None if job.source is None else asdict(job.source),
        "target": None if job.target is None else asdict(job.target),
        "window": job.window,
        "metadata": dict(job.metadata),
        "output_expires_after_s": job.output_expires_after_s,
        "idempotency_key": job.idempotency_key,
        "body_sha256": job.body_sha256,
        "status": JobStatus.VALIDATING,
        "expired": False,
        "errors": [],
        "total": 0,
        "completed": 0,
        "failed": 0,
        "work_total": 0,
        "work_done": 0,
        "usage": {},
        "created_s": now_s,
        "deadline_s": now_s + job.window_s,
        "claimed_s": 0.0,
    }


def _input_file(connection: Connection, now_s: float, file_id: str, tenant: str) -> StoredFile:
    try:
        file = _file(connection, now_s, file_id, tenant)
    except NotFound as error:
        raise InvalidRequest(error.message, param="input_file_id") from None
    if file.purpose != BATCH_INPUT:
        raise InvalidRequest(
            f"The file's purpose is {file.purpose!r}, not {BATCH_INPUT!r}.", param="input_file_id"
        )
    return file


def _totals(connection: Connection) -> Totals:
    table = tables.jobs
    counted = select(table.c.status, func.count()).group_by(table.c.status)
    jobs = {JobStatus(status): number for status, number in connection.execute(counted)}
    columns = (table.c.completed, table.c.failed, table.c.work_done)
    left = case((table.c.status.in_(_OVER), 0), else_=table.c.work_total - table.c.work_done)
    summed = select(table.c.endpoint, *map(func.sum, columns), func.sum(left))
    rows = connection.execute(summed.group_by(table.c.endpoint))
    endpoints = {endpoint: Tally(*map(int, sums)) for endpoint, *sums in rows}
    return Totals(jobs, endpoints)


def _lasts(now_s: float) -> ColumnElement[bool]:
    table = tables.files
    return or_(table.c.expires_s.is_(None), table.c.expires_s > now_s)


def _row(connection: Connection, table: Table, key: str) -> RowMapping | None:
    return connection.execute(select(table).where(table.c.id == key)).mappings().one_or_none()


def _file(connection: Connection, now_s: float, file_id: str, tenant: str) -> StoredFile:
    row = _row(connection, tables.files, file_id)
    file = None if row is None else file_of(row)
    gone = file is not None and file.expires_s is not None and file.expires_s <= now_s
    if file is None or file.tenant != tenant or gone:
        raise NotFound(f"There is no file `{file_id}`.")
    return file


def _require_unused(connection: Connection, file_id: str) -> None:
    table = tables.jobs
    user = connection.execute(
        select(table.c.id).where(table.c.input_file_id == file_id, table.c.status.not_in(_OVER))
    ).first()
    if user is not None:
        raise FileInUse(f"The batch `{user.id}` is not over and needs the file.")


def _job(connection: Connection, now_s: float, job_id: str, tenant: str) -> Job:
    row = _row(connection, tables.jobs, job_id)
    if row is None or row["tenant"] != tenant:
        raise NotFound(f"There is no batch `{job_id}`.")
    return next(jobs_of(connection, now_s, [row]))


def _page(
    connection: Connection,
    table: Table,
    wanted: ColumnElement[bool],
    tenant: str,
    after: str | None,
    limit: int,
    *,
    oldest_first: bool = False,
) -> tuple[list[RowMapping], bool]:
    query = select(table).where(table.c.tenant == tenant, wanted)
    if after is not None:
        last = _row(connection, table, after)
        if last is None or last["tenant"] != tenant:
            raise InvalidRequest(f"`{after}` is not in the list.", param="after")
        place, end = tuple_(table.c.created_s, table.c.id), (last["created_s"], after)
        query = query.where(place > end if oldest_first else place < end)
    columns = (table.c.created_s, table.c.id)
    order = columns if oldest_first else tuple(column.desc() for column in columns)
    rows = list(connection.execute(query.order_by(*order).limit(limit + 1)).mappings())
    return rows[:limit], len(rows) > limit
