"""Locking a bundle: filling in what its artifacts and its loaded engine really are."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

from headpond.bundle.document import locate, read_document, render
from headpond.bundle.fixtures import check_fixtures, observed
from headpond.bundle.loading import Engine, bind, start_engine
from headpond.bundle.manifest import Draft, Fixture, Manifest
from headpond.bundle.store import Bundle, Store
from headpond.engine import EngineSettings
from headpond.errors import BundleError
from headpond.record import WorkloadRecord


def lock_files(location: str | os.PathLike[str], store: Store) -> Bundle:
    """Find out the size and hash of every artifact; the engine's part stays as it was.

    Raises:
        BundleError: Names the field or artifact at fault.
    """
    path = locate(location)
    draft = Draft.parse(read_document(path))
    artifacts = [store.learn(file.name, file.source, path.parent) for file in draft.artifacts]
    document = draft.model_dump() | {"artifacts": [artifact.model_dump() for artifact in artifacts]}
    files = {artifact.name: store.get(artifact, path.parent) for artifact in artifacts}
    return Bundle(manifest=Manifest.parse(document), root=path.parent, files=files)


def lock_engine(record: WorkloadRecord, bundle: Bundle, settings: EngineSettings) -> Manifest:
    """Load the engine and fill the model section and every fixture from it.

    Each fixture is computed twice: what does not come out again vouches for nothing.

    Raises:
        BundleError: The bundle does not bind to the record, or a fixture can't be computed.
        FixtureFailed: A fixture came out differently the second time.
    """
    engine = start_engine(record, bundle, settings)
    manifest = fill_model(record, bundle.manifest, engine)
    expected = tuple(_expect(record, fixture, engine) for fixture in manifest.fixtures)
    manifest = Manifest.parse(manifest.model_copy(update={"fixtures": expected}).model_dump())
    if manifest.fixtures:
        check_fixtures(record, manifest, engine.observe)
    return manifest


def fill_model(record: WorkloadRecord, manifest: Manifest, engine: Engine) -> Manifest:
    """Return a manifest whose model section says what was loaded.

    Raises:
        BundleError: It does not bind to the record.
    """
    symbols = {name: engine.symbols[name] for name in record.symbols if name in engine.symbols}
    filled = manifest.model_copy(update={"model": symbols})
    bind(record, filled)
    return filled


def write_lock(location: str | os.PathLike[str], manifest: Manifest) -> Manifest:
    """Write a locked manifest, dated now; one that says what it said before keeps its date.

    Returns:
        The manifest as it is written.
    """
    path = locate(location)
    before = read_document(path)
    dated = manifest.model_copy(update={"created": datetime.now(UTC).replace(microsecond=0)})
    if isinstance(before, dict) and before == manifest.model_dump(mode="json"):
        dated = manifest
    draft = path.with_name(f".{path.name}.{uuid4().hex}")
    draft.write_text(render(dated.model_dump(mode="json")), encoding="utf-8")
    draft.replace(path)
    return dated


def write_draft(folder: Path, document: object) -> Path:
    """Write a new bundle's first `bundle.yaml`.

    Raises:
        BundleError: A field is not valid, or the folder has one already.
    """
    draft = Draft.parse(document)
    path = folder / "bundle.yaml"
    folder.mkdir(parents=True, exist_ok=True)
    text = render(draft.model_dump(mode="json", exclude_none=True, exclude={"created"}))
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise BundleError(f"{folder.name!r} has a bundle.yaml already") from None
    return path


def _expect(record: WorkloadRecord, fixture: Fixture, engine: Engine) -> Fixture:
    got = observed(fixture, engine.observe)
    expect = {
        contract.name: got[contract.name] for contract in record.contracts if contract.name in got
    }
    return fixture.model_copy(update={"expect": expect})
