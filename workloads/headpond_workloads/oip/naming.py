"""A model's name and version: as a path asks for them, and as answers show them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headpond.dialect import Heading


@dataclass(frozen=True, slots=True)
class Served:
    """The model that answered: by the name that was asked for, and its version."""

    name: str
    version: str


def asked_model(path: Mapping[str, str]) -> str:
    """Return the model of a path, or the one version of it that the path names."""
    version = path.get("version")
    return path["model"] if version is None else f"{path['model']}@{version}"


def served_model(path: Mapping[str, str], heading: Heading) -> Served:
    """Return the model that answered; its version is in `name@version+digest12`."""
    version = heading.fingerprint.rpartition("+")[0].rpartition("@")[2]
    return Served(path["model"], version)
