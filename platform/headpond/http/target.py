"""Which model a call is for."""

from __future__ import annotations

from headpond.call import Backend
from headpond.dialect import Ask
from headpond.errors import InvalidRequest
from headpond.http.auth import Caller


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
