"""Bringing the tables of jobs up to date, once at a time."""

from __future__ import annotations

from alembic import command
from alembic.config import Config
from sqlalchemy import Engine, text

_LOCK = 0x68656164706F6E64 % 2**63
"""Who migrates keeps others from it; any number that no one else uses."""


def migrate(engine: Engine) -> None:
    """Apply the migrations that a database has not seen, in one transaction."""
    config = Config()
    config.set_main_option("script_location", "headpond.jobs:migrations")
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
