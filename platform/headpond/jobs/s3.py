"""S3 by obstore. Needs the extra `s3`.

Not by s3fs, which fsspec takes by itself: its botocore keeps python-dateutil below 3.
"""

from __future__ import annotations

from typing import Self

from obstore.exceptions import BaseError
from obstore.fsspec import BufferedFile, FsspecStore

S3Error = BaseError
"""How it fails, but for an object that is not there, which is a `FileNotFoundError`."""


class S3Files(FsspecStore):
    """All buckets that the environment's keys, role and endpoint open."""

    protocol = "s3"
    # Each instance reads the environment anew: a kept one would outlive its credentials.
    cachable = False

    @classmethod
    def impatient(cls) -> Self:
        """Return them for somebody who tries again by himself."""
        files: Self = cls("s3", retry_config={"max_retries": 0})
        return files

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: object = None,
        autocommit: object = True,
        cache_options: object = None,
        **options: object,
    ) -> BufferedFile:
        if mode == "rb":
            # A file that finds no such object only when it is made complains again when it goes.
            options["size"] = self.info(path)["size"]
        return super()._open(path, mode, block_size, autocommit, cache_options, **options)
