"""How jobs fail their callers, and their workers."""

from __future__ import annotations

from headpond.errors import HeadpondError, InvalidRequest, NotFound, Overloaded


class JobsUnavailable(Overloaded):
    """The store of jobs does not answer."""

    code = "jobs_unavailable"


class JobsTooNew(HeadpondError):
    """The store of jobs was brought up to date by a newer headpond: run that, or name another store."""

    code = "jobs_too_new"


class ObjectsUnavailable(Overloaded):
    """The object store does not answer."""

    code = "objects_unavailable"


class ObjectLost(NotFound):
    """The object store answers, and does not have what was stored."""

    code = "object_lost"


class InputFileLost(ObjectLost):
    """The input file is not there any more."""

    code = "file_not_found"


class IdempotencyConflict(InvalidRequest):
    """The idempotency key was used with another request."""

    status = 409
    code = "idempotency_conflict"


class FileInUse(InvalidRequest):
    """A batch that is not over needs the file."""

    status = 409
    code = "file_in_use"


class JobOver(InvalidRequest):
    """The batch is over already."""

    status = 409
    code = "batch_over"


class LeaseLost(HeadpondError):
    """Another worker may hold the task by now: nothing may be written."""

    code = "lease_lost"
