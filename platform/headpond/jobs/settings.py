"""Where jobs are kept: the same for who takes them in and for who does them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from platformdirs import user_data_path
from pydantic import AfterValidator, BaseModel, ByteSize, ConfigDict, Field

from headpond.jobs.database import Database
from headpond.jobs.objects import Objects
from headpond.jobs.roots import Roots, checked_root


class JobStore(BaseModel):
    """The database and the object store of jobs.

    Attributes:
        database: `sqlite:///path` or `postgresql://user@host/database`; a SQLite file in
            `folder` when absent.
        objects: A folder as fsspec knows it, e.g. `s3://bucket/prefix`; one in `folder` when
            absent.
        folder: On this machine; the user's data folder for headpond when absent.
        roots: Folders, as fsspec knows them, below which batches may read prefixes and write
            results, e.g. `s3://bucket/batches/{tenant}`, where each caller has a folder of its
            own. None: batches read uploaded files only.
        most_file_bytes: The largest file that callers may upload.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    database: Annotated[str, Field(pattern=r"^(sqlite:///|postgresql://)")] | None = None
    objects: str | None = None
    folder: str | None = None
    roots: tuple[Annotated[str, AfterValidator(checked_root)], ...] = ()
    most_file_bytes: Annotated[ByteSize, Field(gt=0)] = ByteSize(200 * 10**6)

    def open_database(self, *, patience_s: float = 5.0) -> Database:
        """Connect, and bring the tables up to date.

        Raises:
            JobsTooNew: A newer version has changed the tables.
            JobsUnavailable: The database did not answer in time.
        """
        url = self.database or f"sqlite:///{self._folder / 'jobs.db'}"
        return Database.open(url, patience_s=patience_s)

    def open_objects(self, *, patience_s: float | None = 10.0) -> Objects:
        """Return the object store; nothing is asked of it yet."""
        url = self.objects or f"file://{self._folder / 'objects'}"
        return Objects(url, patience_s=patience_s)

    def open_roots(self, *, patience_s: float | None = 10.0) -> Roots:
        """Return the places that callers may name; nothing is asked of them yet."""
        return Roots(self.roots, patience_s=patience_s)

    @property
    def _folder(self) -> Path:
        if self.folder is not None:
            return Path(self.folder).absolute()
        return user_data_path("headpond") / "jobs"
