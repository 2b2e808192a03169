"""Bounds of the wire types' fields."""

from __future__ import annotations

MAX_PICTURES = 10
MAX_STEPS = 1000
