"""The migrations of the tables of jobs, run by Alembic."""
