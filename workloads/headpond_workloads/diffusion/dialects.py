"""Diffusion's HTTP routes, each in the dialect that its clients speak."""

from __future__ import annotations

from headpond.dialect import Route

routes: tuple[Route, ...] = ()
