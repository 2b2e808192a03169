"""Verifying a bundle: every check by itself, so that what broke has a name."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from headpond.bundle.document import locate, read_manifest
from headpond.bundle.fixtures import check_fixture, check_locked
from headpond.bundle.loading import bind, check_symbols, start_engine
from headpond.bundle.manifest import Manifest
from headpond.bundle.store import Bundle, Store
from headpond.engine import EngineSettings
from headpond.errors import HeadpondError
from headpond.record import WorkloadRecord

Found = TypeVar("Found")


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One thing that was looked at.

    Attributes:
        name: What, e.g. `artifact weights`.
        problem: What is wrong with it; None when nothing is.
        param: The manifest's field at fault.
    """

    name: str
    problem: str | None = None
    param: str | None = None


class Verification:
    """Checks a bundle step by step; what depends on a failed check is left out."""

    def __init__(self, store: Store, report: Callable[[Check], None]) -> None:
        """Say where artifacts are kept and who hears of each check as it is done."""
        self._store = store
        self._report = report
        self._failed = False

    def verify(
        self,
        location: str | os.PathLike[str],
        find_record: Callable[[str], WorkloadRecord],
        settings: EngineSettings | None,
    ) -> bool:
        """Check a bundle and return whether it keeps its contract.

        Args:
            location: The bundle's folder, or its `bundle.yaml`.
            find_record: Returns the record of a workload.
            settings: How to load the engine; None leaves the engine out.
        """
        manifest = self._run("manifest", partial(read_manifest, location))
        if manifest is None:
            return False
        root = locate(location).parent
        files = self._files(manifest, root)
        record = self._run("record", partial(_bound, manifest, find_record))
        if record is not None:
            self._run("fixtures are locked", partial(check_locked, record, manifest))
        if record is not None and settings is not None and not self._failed:
            bundle = Bundle(manifest=manifest, root=root, files=files)
            self._engine(record, bundle, settings)
        return not self._failed

    def _files(self, manifest: Manifest, root: Path) -> dict[str, Path]:
        files = {}
        for artifact in manifest.artifacts:
            get = partial(self._store.get, artifact, root, rehash=True)
            path = self._run(f"artifact {artifact.name}", get)
            if path is not None:
                files[artifact.name] = path
        return files

    def _engine(self, record: WorkloadRecord, bundle: Bundle, settings: EngineSettings) -> None:
        manifest = bundle.manifest
        engine = self._run("engine loads", partial(start_engine, record, bundle, settings))
        if engine is None:
            return
        self._run("model", partial(check_symbols, record, manifest, engine.symbols))
        for fixture in manifest.fixtures:
            check = partial(check_fixture, record, fixture, engine.observe)
            self._run(f"fixture {fixture.name}", check)

    def _run(self, name: str, step: Callable[[], Found]) -> Found | None:
        try:
            found = step()
        except HeadpondError as error:
            self._failed = True
            self._report(Check(name=name, problem=_with_cause(error), param=error.param))
            return None
        self._report(Check(name=name))
        return found


def _bound(manifest: Manifest, find_record: Callable[[str], WorkloadRecord]) -> WorkloadRecord:
    record = find_record(manifest.workload)
    bind(record, manifest)
    return record


def _with_cause(error: HeadpondError) -> str:
    return f"{error.message}\n  because: {error.__cause__}" if error.__cause__ else error.message
