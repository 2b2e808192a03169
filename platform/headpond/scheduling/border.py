"""The border to a workload's own code: what it raises becomes an error of the tree."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from headpond.errors import EngineFailed, HeadpondError, OutOfMemory

Given = ParamSpec("Given")
Result = TypeVar("Result")

logger = logging.getLogger(__name__)


def attempt(
    action: Callable[Given, Result], *args: Given.args, **kwargs: Given.kwargs
) -> Result | HeadpondError:
    """Call a workload's engine or cost; return what it returns, or the error it fails with.

    Only the kind of an unforeseen exception is logged: its message may hold a caller's
    data. The traceback follows at debug level.
    """
    try:
        return action(*args, **kwargs)
    except HeadpondError as error:
        return error
    except Exception as error:
        kind = type(error).__name__
        logger.error("engine raised %s in %s", kind, getattr(action, "__qualname__", "a call"))
        logger.debug("engine traceback", exc_info=error)
        return OutOfMemory() if _is_lack(error) else EngineFailed()


def _is_lack(error: Exception) -> bool:
    """Say whether memory was lacking; torch says so by RuntimeErrors, on a GPU by one of its own."""
    if isinstance(error, MemoryError):
        return True
    named = type(error).__name__ == "OutOfMemoryError" or "allocate memory" in str(error)
    return isinstance(error, RuntimeError) and named
