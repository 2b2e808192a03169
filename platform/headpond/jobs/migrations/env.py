"""Runs the migrations on the connection that `headpond.jobs.migrating` has begun."""

from alembic import context

from headpond.jobs.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
)
context.run_migrations()
