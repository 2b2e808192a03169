"""Loading the engine of a bundle and holding it to the bundle's contract."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import cast

from headpond.bundle.fixtures import check_fixtures
from headpond.bundle.manifest import Manifest
from headpond.bundle.store import Bundle
from headpond.engine import EngineSettings, Loaded, LoadedFormed
from headpond.errors import BundleError, DeclarationError
from headpond.record import WorkloadRecord
from headpond.state import StateModel

Engine = Loaded[object, object, object, object] | LoadedFormed[object, object, object]
"""An engine whose types only its own workload knows; its record's batching says which kind."""

Loader = Callable[[Bundle, EngineSettings], Engine]


def load_engine(record: WorkloadRecord, bundle: Bundle, settings: EngineSettings) -> Engine:
    """Load a bundle's engine; it comes back only when it keeps the bundle's contract.

    Raises:
        BundleError: The manifest does not bind to the record, or the loaded model differs
            from it; the first fixture that fails is a `FixtureFailed`.
        DeclarationError: The record's `engine` names nothing that can be called, or does not
            count what the record says.
    """
    bind(record, bundle.manifest)
    engine = start_engine(record, bundle, settings)
    check_symbols(record, bundle.manifest, engine.symbols)
    check_tallies(record, engine.tallies())
    check_fixtures(record, bundle.manifest, engine.observe)
    return engine


def start_engine(record: WorkloadRecord, bundle: Bundle, settings: EngineSettings) -> Engine:
    """Import the record's engine and load the bundle, unchecked.

    Raises:
        BundleError: The device is none the workload runs on, or it can't be shared by several,
            or the engine refuses the bundle.
        DeclarationError: The record's `engine` names nothing that can be called.
    """
    if settings.device.partition(":")[0] not in record.fit.devices:
        raise BundleError(
            f"{record.name} runs on {', '.join(record.fit.devices)}, not on {settings.device!r}",
            param="device",
        )
    if settings.tensor_parallel > 1 and not record.fit.tensor_parallel:
        raise BundleError(
            f"{record.name} runs on one device, tensor_parallel must be 1", param="tensor_parallel"
        )
    load = cast("Loader", named_function(record, "engine", record.engine))
    return load(bundle, settings)


def bind(record: WorkloadRecord, manifest: Manifest) -> StateModel:
    """Bind a manifest to its record.

    Raises:
        BundleError: The workload, a symbol, the dtype or a limit does not fit the record.
    """
    if manifest.workload != record.name:
        raise BundleError(
            f"the bundle is for {manifest.workload}, not for {record.name}", param="workload"
        )
    known = {*record.symbols, *(dim.name for dim in record.request.dims)}
    for name, limit in manifest.limits.items():
        if name not in known:
            raise BundleError(f"{record.name} has no {name!r} to limit", param=f"limits.{name}")
        if limit > manifest.model.get(name, limit):
            raise BundleError(
                f"the limit of {limit} {name} is above the model's {manifest.model[name]}",
                param=f"limits.{name}",
            )
    unknown = sorted(set(manifest.model) - set(record.symbols))
    if unknown:
        raise BundleError(
            f"{record.name} has no symbol {unknown[0]!r}; it has {', '.join(record.symbols)}",
            param=f"model.{unknown[0]}",
        )
    return record.bind(manifest.model, manifest.execution.dtype)


def check_symbols(record: WorkloadRecord, manifest: Manifest, symbols: Mapping[str, int]) -> None:
    """Compare what was loaded with the manifest's model section.

    Raises:
        BundleError: Names the first symbol that differs.
    """
    for symbol in record.symbols:
        if symbols.get(symbol) != manifest.model.get(symbol):
            raise BundleError(
                f"the loaded model has {symbol} {symbols.get(symbol)}, "
                f"the manifest says {manifest.model.get(symbol)}",
                param=f"model.{symbol}",
            )


def check_tallies(record: WorkloadRecord, counted: Mapping[str, int]) -> None:
    """Check that an engine counts what its record declares.

    Raises:
        DeclarationError: Names the first tally that it does not count.
    """
    for tally in record.tallies:
        if tally.name not in counted:
            raise DeclarationError(f"the engine of {record.name} does not count {tally.name!r}")


def named_function(record: WorkloadRecord, role: str, reference: str) -> object:
    """Import what a record names as `module:function`.

    Args:
        record: Whose it is.
        role: What it is for the record, e.g. `engine`.
        reference: How the record names it.

    Raises:
        DeclarationError: There is none of that name, or a library that it needs is missing.
    """
    module, _, function = reference.partition(":")
    try:
        found: object = getattr(import_module(module), function)
    except ImportError as error:
        raise DeclarationError(
            f"the {role} of {record.name} cannot be imported: {error.name or reference} is "
            "missing; install headpond[serve]"
        ) from error
    except AttributeError:
        raise DeclarationError(f"{role} {reference!r} names nothing that exists") from None
    return found
