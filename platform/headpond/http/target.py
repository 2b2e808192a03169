"""Which route and which model a call is for."""

from __future__ import annotations

from starlette.types import Scope

from headpond.call import Backend
from headpond.dialect import Ask
from headpond.errors import InvalidRequest, ModelNotFound, NotReady
from headpond.http.auth import Caller


def local_path(scope: Scope) -> str:
    """Return the path below the prefix that the app is mounted at."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    if root and path.startswith(root) and path[len(root) : len(root) + 1] in ("", "/"):
        return path[len(root) :]
    return path


def target_model(
    ask: Ask, caller: Caller, served: str | None, backend: Backend, workload: str
) -> str:
    """Return the model that is asked for; where the dialect names none, the only one.

    Args:
        ask: What is asked.
        caller: Whose key has to open the model.
        served: The alias of the prefix that was asked below, if it was.
        backend: Knows the only model of a workload.
        workload: The workload of the route.

    Raises:
        InvalidRequest: No model is named, and there are several.
        PermissionDenied: The key does not open it.
    """
    model = ask.model or served or backend.only_model(workload)
    if model is None:
        raise InvalidRequest("Several models are served here; name one.", param="model")
    caller.require_model(model)
    return model


def check_model(model: str, caller: Caller, backend: Backend, workload: str) -> None:
    """Check that a caller may ask for a model; one that is not ready yet is let pass.

    Raises:
        ModelNotFound: There is no such model, or it serves another workload.
        PermissionDenied: The key does not open it.
    """
    caller.require_model(model)
    try:
        known = backend.bundle_of(model, "") is not None
    except NotReady:
        return
    if not known or backend.workload_of(model) not in (None, workload):
        raise ModelNotFound.named(model, "does not exist here")
