"""Let a job read the objects below a prefix, and write its results below another."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Change the tables."""
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.add_column(sa.Column("source", sa.JSON(none_as_null=True), nullable=True))
        batch_op.add_column(sa.Column("target", sa.JSON(none_as_null=True), nullable=True))
        batch_op.alter_column("input_file_id", existing_type=sa.String(64), nullable=True)
        batch_op.alter_column("input_key", existing_type=sa.Text(), nullable=True)
        batch_op.alter_column("input_sha256", existing_type=sa.String(64), nullable=True)
