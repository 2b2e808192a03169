"""Bringing the tables of jobs up to date, once at a time."""

from __future__ import annotations

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, text

from headpond.jobs.errors import JobsTooNew

_LOCK = 0x68656164706F6E64 % 2**63
"""Who migrates keeps others from it; any number that no one else uses."""


def migrate(engine: Engine) -> None:
    """Apply the migrations that a database has not seen, in one transaction.

    Raises:
        JobsTooNew: It has seen some that are not ours.
    """
    config = Config()
    config.set_main_option("script_location", "headpond.jobs:migrations")
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        _check_known(connection, ScriptDirectory.from_config(config))
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def _check_known(connection: Connection, ours: ScriptDirectory) -> None:
    known = {script.revision for script in ours.walk_revisions()}
    if not known.issuperset(MigrationContext.configure(connection).get_current_heads()):
        raise JobsTooNew
