"""Serve every kind of model behind one router on Ray Serve."""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["AsyncClient", "Client"]

if TYPE_CHECKING:
    from headpond_workloads.client import AsyncClient, Client
else:

    def __getattr__(name: str) -> object:
        """Load the clients when asked for: they are made of the workloads' own resources."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib.metadata import entry_points  # noqa: PLC0415 - costs what few need

        (root,) = entry_points(group="headpond.client", name="client")
        return getattr(root.load(), name)
