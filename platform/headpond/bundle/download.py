"""Fetching one remote file to a place on the disk, with progress for people."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

from fsspec import Callback  # type: ignore[import-untyped]
from fsspec.core import url_to_fs  # type: ignore[import-untyped]
from huggingface_hub import hf_hub_download
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from headpond.bundle.sources import Remote
from headpond.errors import BundleError

_HUB_URL = re.compile(r"hf://(?P<repo>[^/]+/[^/@]+)@(?P<revision>[0-9a-f]{40})/(?P<path>.+)")


def download(name: str, remote: Remote, target: Path, *, expected_bytes: int | None) -> None:
    """Fetch a remote file into `target`, replacing what is there, and sync it to disk.

    Args:
        name: The artifact's name, for errors and progress.
        remote: Where it is.
        target: Where it goes; only complete when this returns.
        expected_bytes: Its size, when it is known; more is refused while it comes.

    Raises:
        BundleError: It can't be fetched; the cause says why.
    """
    try:
        if (hub := _HUB_URL.fullmatch(remote.url)) is not None:
            _from_hub(hub, target)
        else:
            with _bar() as progress:
                _from_fsspec(remote.url, target, _Meter(name, progress, expected_bytes))
        with target.open("rb") as file:
            os.fsync(file.fileno())
    except BundleError:
        raise
    # Every backend of fsspec has errors of its own, which can't be named without importing it.
    except Exception as error:
        raise BundleError(
            f"artifact {name!r} cannot be fetched ({type(error).__name__})",
            param=f"artifacts.{name}.source",
        ) from error


def _from_fsspec(url: str, target: Path, meter: _Meter) -> None:
    filesystem, path = url_to_fs(url)
    filesystem.get_file(path, str(target), callback=meter)


def _from_hub(hub: re.Match[str], target: Path) -> None:
    """Let the hub's own client fetch: it knows its tokens, mirrors and storage."""
    folder = target.with_name(target.name + ".hub")
    fetched = hf_hub_download(
        hub["repo"], hub["path"], revision=hub["revision"], local_dir=str(folder)
    )
    Path(fetched).replace(target)
    shutil.rmtree(folder)


class _Meter(Callback):  # type: ignore[misc] # fsspec has no types
    """Counts what comes, shows it, and stops a source that sends too much."""

    def __init__(self, name: str, progress: Progress, expected_bytes: int | None) -> None:
        super().__init__()
        self._name = name
        self._progress = progress
        self._expected = expected_bytes
        self._seen = 0
        self._task = progress.add_task(name, total=expected_bytes)

    def relative_update(self, inc: int = 1) -> None:
        """Count `inc` more bytes."""
        self._seen += inc
        if self._expected is not None and self._seen > self._expected:
            raise BundleError(
                f"artifact {self._name!r} has more than the {self._expected} bytes "
                "that the manifest says",
                param=f"artifacts.{self._name}.bytes",
            )
        self._progress.advance(self._task, inc)


def _bar() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
        transient=True,
    )
