"""The tables of jobs. Times are Unix seconds, by the database's clock where it has one."""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

files = Table(
    "files",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("purpose", Text, nullable=False),
    Column("filename", Text, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("sha256", String(64), nullable=False),
    Column("key", Text, nullable=False),
    Column("created_s", Float, nullable=False),
    Column("expires_s", Float),
    Index(None, "tenant", "created_s", "id"),
    Index(None, "expires_s"),
)
"""What callers uploaded, and what jobs made; `key` is where the object store has it."""

jobs = Table(
    "jobs",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("endpoint", Text, nullable=False),
    Column("model", Text),
    Column("bundle", Text),
    Column("input_file_id", String(64)),
    Column("input_key", Text),
    Column("input_sha256", String(64)),
    Column("source", JSON(none_as_null=True)),
    Column("target", JSON(none_as_null=True)),
    Column("window", Text, nullable=False),
    Column("metadata", JSON, nullable=False),
    Column("output_expires_after_s", Float),
    Column("idempotency_key", Text),
    Column("body_sha256", String(64)),
    Column("status", String(16), nullable=False),
    Column("expired", Boolean, nullable=False),
    Column("waits_for", Text),
    Column("errors", JSON, nullable=False),
    Column("total", Integer, nullable=False),
    Column("completed", Integer, nullable=False),
    Column("failed", Integer, nullable=False),
    Column("work_total", BigInteger, nullable=False),
    Column("work_done", BigInteger, nullable=False),
    Column("usage", JSON, nullable=False),
    Column("output_file_id", String(64)),
    Column("error_file_id", String(64)),
    Column("manifest_key", Text),
    Column("created_s", Float, nullable=False),
    Column("deadline_s", Float, nullable=False),
    Column("in_progress_s", Float),
    Column("cancelling_s", Float),
    Column("finalizing_s", Float),
    Column("ended_s", Float),
    Column("claimed_s", Float, nullable=False),
    UniqueConstraint("tenant", "idempotency_key"),
    Index(None, "tenant", "created_s", "id"),
    Index(None, "status"),
)
"""`completed`, `failed`, `work_done` and `usage` are of the shards that are done; `expired`
says that some records were given up at the deadline.

`source` and `target` are of jobs over a prefix, which have no input file; `input_key` is then
the list of the objects that were read, once they were.

`claimed_s` is when a worker last took one of its shards: jobs take turns.
"""

tasks = Table(
    "tasks",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("job_id", ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("rank", Integer, nullable=False),
    Column("state", String(16), nullable=False),
    Column("not_before_s", Float, nullable=False),
    Column("failures", Integer, nullable=False),
    Column("owner", Text),
    Column("fence", Integer, nullable=False),
    Column("lease_until_s", Float),
    Column("input_key", Text),
    Column("first", Integer, nullable=False),
    Column("stop", Integer, nullable=False),
    Column("work", BigInteger, nullable=False),
    Column("tail_wanted", Boolean, nullable=False),
    Column("completed", Integer, nullable=False),
    Column("failed", Integer, nullable=False),
    Column("output_key", Text),
    Column("output_bytes", BigInteger),
    Column("output_sha256", String(64)),
    Column("error_key", Text),
    Column("error_bytes", BigInteger),
    Column("error_sha256", String(64)),
    Column("usage", JSON, nullable=False),
    Column("ended_s", Float),
    Index(None, "state", "rank", "not_before_s"),
    Index(None, "job_id", "state"),
)
"""What is leased: reading a job's input, one of its shards, or writing its files.

A shard is the records `first` up to `stop` of the object `input_key`; its results are one
object of output lines and one of error lines. `completed` and `failed` tell of the records
of a shard that runs, too.
"""

attempts = Table(
    "attempts",
    metadata,
    Column("task_id", ForeignKey("tasks.id", ondelete="CASCADE"), primary_key=True),
    Column("fence", Integer, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("began_s", Float, nullable=False),
    Column("ended_s", Float),
    Column("outcome", String(16)),
    Column("note", Text),
)
"""Every time a task was taken, and what became of it."""

usage = Table(
    "usage",
    metadata,
    Column("hour_s", BigInteger, primary_key=True, autoincrement=False),
    Column("tenant", Text, primary_key=True),
    Column("workload", Text, primary_key=True),
    Column("model", Text, primary_key=True),
    Column("bundle", Text, primary_key=True),
    Column("outcome", Text, primary_key=True),
    Column("unit", Text, primary_key=True),
    Column("writer", String(16), primary_key=True),
    Column("amount", BigInteger, nullable=False),
)
"""What the calls of one process came to that ended in one hour: its own total so far."""
