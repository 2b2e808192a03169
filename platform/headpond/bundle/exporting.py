"""Exporting a bundle to ONNX: a new bundle that keeps what the old one's fixtures say."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, Protocol, cast

from headpond.bundle.document import FILENAME, render_manifest
from headpond.bundle.fixtures import check_fixtures, check_locked
from headpond.bundle.loading import named_function, start_engine
from headpond.bundle.locking import fill_model
from headpond.bundle.manifest import Artifact, Execution, Manifest
from headpond.bundle.store import Bundle, Store
from headpond.engine import EngineSettings
from headpond.errors import BundleError
from headpond.record import WorkloadRecord

Quantization = Literal["int8"]

_FOLDER = "onnx"


@dataclass(frozen=True, kw_only=True)
class Exported:
    """What a record's exporter made of a bundle.

    Attributes:
        execution: How the new bundle is computed.
        files: What was written, by the names of the new artifacts.
        kept: Names of the old artifacts that are needed still.
    """

    execution: Execution
    files: Mapping[str, Path]
    kept: tuple[str, ...]


class Exporter(Protocol):
    """What a record's `exporter` names."""

    def __call__(
        self, bundle: Bundle, folder: Path, *, quantization: Quantization | None
    ) -> Exported:
        """Write a bundle's model into an empty folder as ONNX.

        Raises:
            BundleError: The bundle is none that can be exported.
        """


@dataclass(frozen=True, kw_only=True)
class Export:
    """What is asked for.

    Attributes:
        quantization: Fewer bits, which come with a larger difference; None keeps float32.
        tolerance: Of every fixture of the new bundle; None keeps what each had.
    """

    quantization: Quantization | None = None
    tolerance: float | None = None


def export_bundle(
    record: WorkloadRecord,
    bundle: Bundle,
    target: Path,
    export: Export,
    *,
    store: Store,
    settings: EngineSettings,
) -> Manifest:
    """Write a bundle as ONNX into a new folder, if it does what the old one's fixtures say.

    It expects the old bundle's values, not its own. A failure leaves nothing behind.

    Returns:
        The new bundle's manifest, locked.

    Raises:
        BundleError: The folder is there already, or the workload or the bundle can't be
            exported; a fixture that fails on the result is a `FixtureFailed`.
        DeclarationError: The record's `exporter` names nothing that can be called.
    """
    if record.exporter is None:
        raise BundleError(f"bundles of {record.name} can't be exported", param="workload")
    check_locked(record, bundle.manifest)
    exporter = cast("Exporter", named_function(record, "exporter", record.exporter))
    with _whole(target) as folder:
        place = folder / _FOLDER
        place.mkdir()
        exported = exporter(bundle, place, quantization=export.quantization)
        artifacts = _artifacts(bundle, exported, folder, store)
        files = {name: bundle.files[name] for name in exported.kept} | dict(exported.files)
        draft = _manifest(bundle.manifest, export, exported.execution, artifacts)
        result = Bundle(manifest=draft, root=folder, files=files)
        engine = start_engine(record, result, settings)
        manifest = fill_model(record, draft, engine)
        check_fixtures(record, manifest, engine.observe)
        (folder / FILENAME).write_text(render_manifest(manifest), encoding="utf-8")
    return manifest


@contextmanager
def _whole(target: Path) -> Iterator[Path]:
    """Lend a folder that becomes `target` if all goes well, and vanishes if not."""
    try:
        if target.exists():
            raise BundleError(f"{str(target)!r} is there already", param="target")
        if not target.parent.is_dir():
            raise BundleError(f"there is no folder {str(target.parent)!r}", param="target")
        with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as lent:
            folder = Path(lent, target.name)
            folder.mkdir()
            yield folder
            folder.rename(target)
    except OSError as error:
        raise BundleError(
            f"{str(target)!r} can't be written: {error.strerror or error}", param="target"
        ) from error


def _artifacts(
    bundle: Bundle, exported: Exported, folder: Path, store: Store
) -> tuple[Artifact, ...]:
    """Return the artifacts of the new bundle; files of the old one's folder are copied."""
    kept = [each for each in bundle.manifest.artifacts if each.name in exported.kept]
    for artifact in kept:
        scheme, _, path = artifact.source.partition(":")
        if scheme == "file" and not path.startswith("/"):
            copy = folder / path
            if copy.is_relative_to(folder / _FOLDER):
                raise BundleError(
                    f"source {artifact.source!r} lies where the export goes",
                    param=f"artifacts.{artifact.name}.source",
                )
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(bundle.files[artifact.name], copy)
    written = [
        store.learn(name, f"file:{path.relative_to(folder).as_posix()}", folder)
        for name, path in exported.files.items()
    ]
    return (*kept, *written)


def _manifest(
    old: Manifest, export: Export, execution: Execution, artifacts: tuple[Artifact, ...]
) -> Manifest:
    bits = () if export.quantization is None else (export.quantization,)
    fixtures = old.fixtures
    if export.tolerance is not None:
        fixtures = tuple(
            each.model_copy(update={"tolerance": export.tolerance}) for each in fixtures
        )
    changes = {
        "name": "-".join((old.name, _FOLDER, *bits)),
        "summary": " ".join((f"{old.ref} as ONNX", *(f"in {each}" for each in bits))),
        "created": datetime.now(UTC).replace(microsecond=0),
        "artifacts": artifacts,
        "execution": execution,
        "fixtures": fixtures,
    }
    return Manifest.parse(old.model_copy(update=changes).model_dump())
