"""Where jobs are kept: a database and an object store, on this machine unless said."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from platformdirs import user_data_path
from pydantic import BaseModel, ByteSize, ConfigDict, Field

_MOST_FILE_BYTES = 200 * 10**6
"""OpenAI's bound on a batch's input."""


class JobsSettings(BaseModel):
    """What routers and job workers have to agree on.

    Attributes:
        database: `sqlite:///path` or `postgresql://user@host/database`; SQLite below `data`
            when absent.
        objects: A folder as fsspec knows it, `s3://bucket/prefix`; one below `data` when
            absent.
        data: Where both are when they are not said; `$HEADPOND_DATA`, else the user's data
            folder. Relative paths start at `$HEADPOND_HOME` or the working directory.
        most_file_bytes: The largest file that is taken in.
        roots: Folders that jobs may read manifests below and write shards to, as URLs; none
            unless said.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    database: str | None = None
    objects: str | None = None
    data: str | None = None
    most_file_bytes: Annotated[ByteSize, Field(gt=0)] = ByteSize(_MOST_FILE_BYTES)
    roots: tuple[str, ...] = ()

    @property
    def database_url(self) -> str:
        """The database's address."""
        return self.database or f"sqlite:///{self._folder / 'jobs.db'}"

    @property
    def objects_url(self) -> str:
        """The object store's address."""
        return self.objects or (self._folder / "objects").as_uri()

    @property
    def _folder(self) -> Path:
        given = self.data or os.environ.get("HEADPOND_DATA")
        folder = Path(given) if given else user_data_path("headpond")
        return (os.environ.get("HEADPOND_HOME", ".") / folder).absolute()
