"""The local store of artifacts, and opening a bundle with every size and hash checked.

Remote artifacts are kept by content, as `<cache>/sha256/<2 digits>/<sha256><suffix>`, and are
shared by all bundles and processes. A file has that name only when it is whole: it is
fetched beside it under a lock, checked, synced and renamed. Files of the bundle's own
folder, of packages and of the machine are used where they lie.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock
from platformdirs import user_cache_path

from headpond.bundle.document import locate, read_document
from headpond.bundle.download import download
from headpond.bundle.formats import check_content, check_suffix
from headpond.bundle.hashing import HashMemo, file_sha256
from headpond.bundle.manifest import Artifact, Manifest
from headpond.bundle.sources import Local, Remote, resolve
from headpond.errors import BundleError


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """A checked manifest with its artifacts at hand.

    Attributes:
        manifest: What the bundle says.
        root: Its folder.
        files: The local file of each artifact, by its name.
    """

    manifest: Manifest
    root: Path
    files: Mapping[str, Path]

    def artifact(self, name: str, param: str = "artifacts") -> Path:
        """Return the file of an artifact that has to be there.

        Args:
            name: The artifact's.
            param: The field of the manifest that asks for it.

        Raises:
            BundleError: The bundle has none of this name.
        """
        path = self.files.get(name)
        if path is None:
            raise BundleError(f"the bundle has no artifact {name!r}", param=param)
        return path


def open_bundle(
    location: str | os.PathLike[str], *, cache: Path | None = None, rehash: bool = False
) -> Bundle:
    """Read a bundle, fetch what is missing, and check every size, hash and format.

    Args:
        location: The bundle's folder, or its `bundle.yaml`.
        cache: Where remote artifacts are kept; see `default_cache`.
        rehash: Read every file again, whatever is remembered of it.

    Raises:
        BundleError: Names the field or artifact that breaks the contract.
    """
    path = locate(location)
    manifest = Manifest.parse(read_document(path))
    store = Store(cache if cache is not None else default_cache())
    root = path.parent
    files = {
        artifact.name: store.get(artifact, root, rehash=rehash) for artifact in manifest.artifacts
    }
    return Bundle(manifest=manifest, root=root, files=files)


def default_cache() -> Path:
    """Return `$HEADPOND_CACHE`, or the user's cache folder for headpond."""
    configured = os.environ.get("HEADPOND_CACHE")
    return Path(configured) if configured else user_cache_path("headpond")


class Store:
    """Artifacts by content. Safe to share between threads and processes."""

    def __init__(self, cache: Path) -> None:
        """Keep everything below `cache`, which is made when it is first needed."""
        self._blobs = cache / "sha256"
        self._incoming = cache / "incoming"
        self._memo = HashMemo(cache / "hashes")

    def get(self, artifact: Artifact, root: Path, *, rehash: bool = False) -> Path:
        """Return the checked local file of an artifact, fetching it when it is missing.

        Args:
            artifact: What the manifest says of it.
            root: The bundle's folder.
            rehash: Read the file again, whatever is remembered of it.

        Raises:
            BundleError: It is absent, differs in size or content, or may not be loaded.
        """
        place, suffix = _placed(artifact.name, artifact.source, root)
        with _readable(artifact.name):
            if isinstance(place, Local):
                path = place.path
                self._check(artifact, path, rehash=rehash)
            else:
                path = self._fetched(artifact, place, rehash=rehash)
            check_content(artifact.name, path, suffix)
        return path

    def learn(self, name: str, source: str, root: Path) -> Artifact:
        """Find out the size and hash of an artifact that is not locked yet.

        Raises:
            BundleError: It is absent, empty, or may not be loaded.
        """
        place, suffix = _placed(name, source, root)
        with _readable(name):
            if isinstance(place, Remote):
                return self._taken_in(name, source, place)
            check_content(name, place.path, suffix)
            return _described(name, source, place.path, file_sha256(place.path))

    def _taken_in(self, name: str, source: str, remote: Remote) -> Artifact:
        self._incoming.mkdir(parents=True, exist_ok=True)
        part = self._incoming / hashlib.sha256(remote.url.encode()).hexdigest()
        with FileLock(f"{part}.lock"):
            download(name, remote, part, expected_bytes=None)
            check_content(name, part, remote.suffix)
            artifact = _described(name, source, part, file_sha256(part))
            self._place(part, self._blob(artifact.sha256, remote.suffix))
        return artifact

    def _fetched(self, artifact: Artifact, remote: Remote, *, rehash: bool) -> Path:
        blob = self._blob(artifact.sha256, remote.suffix)
        # A file is whole once it has its name, so a cache that is filled needs no lock, and
        # may be read-only.
        if self._holds(artifact, blob, rehash=rehash):
            return blob
        blob.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{blob}.lock"):
            if self._holds(artifact, blob, rehash=rehash):
                return blob
            # Whatever an interrupted process left here is replaced from its first byte.
            part = blob.with_name(f"{blob.name}.part")
            download(artifact.name, remote, part, expected_bytes=artifact.bytes)
            self._check(artifact, part, rehash=True)
            self._place(part, blob)
        return blob

    def _blob(self, sha256: str, suffix: str) -> Path:
        return self._blobs / sha256[:2] / f"{sha256}{suffix}"

    def _place(self, part: Path, blob: Path) -> None:
        """Give a whole, synced file its name, and sync the name too."""
        blob.parent.mkdir(parents=True, exist_ok=True)
        part.chmod(0o444)
        part.replace(blob)
        folder = os.open(blob.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _holds(self, artifact: Artifact, blob: Path, *, rehash: bool) -> bool:
        """Whether the cache has the artifact; a damaged file is as good as none."""
        try:
            self._check(artifact, blob, rehash=rehash)
        except (FileNotFoundError, BundleError):
            return False
        return True

    def _check(self, artifact: Artifact, path: Path, *, rehash: bool) -> None:
        size = path.stat().st_size
        if size != artifact.bytes:
            raise BundleError(
                f"artifact {artifact.name!r} has {size} bytes, the manifest says {artifact.bytes}",
                param=f"artifacts.{artifact.name}.bytes",
            )
        digest = self._memo.sha256(path, fresh=rehash)
        if digest != artifact.sha256:
            raise BundleError(
                f"artifact {artifact.name!r} has other content than was locked: its sha256 is "
                f"{digest[:12]}…, the manifest says {artifact.sha256[:12]}…",
                param=f"artifacts.{artifact.name}.sha256",
            )


def _placed(name: str, source: str, root: Path) -> tuple[Local | Remote, str]:
    """Return where an artifact is and how its name ends, if that may be loaded."""
    place = resolve(source, root, param=f"artifacts.{name}.source")
    suffix = place.path.suffix if isinstance(place, Local) else place.suffix
    check_suffix(name, suffix)
    return place, suffix


@contextmanager
def _readable(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BundleError(
            f"artifact {name!r} cannot be read or kept: {error.strerror}",
            param=f"artifacts.{name}.source",
        ) from error


def _described(name: str, source: str, path: Path, digest: str) -> Artifact:
    size = path.stat().st_size
    if not size:
        raise BundleError(f"artifact {name!r} is empty", param=f"artifacts.{name}.source")
    return Artifact(name=name, source=source, bytes=size, sha256=digest)
