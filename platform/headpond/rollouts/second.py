"""The second application of a model: the first one's config with another bundle."""

from __future__ import annotations

import re
from collections.abc import Mapping

from headpond.bundle.manifest import Manifest
from headpond.errors import BundleError

_UNSAFE = re.compile(r"[^A-Za-z0-9-]+")
_VERSION_BEHIND = re.compile(r"-\d+-\d+-\d+[A-Za-z0-9-]*$")

Config = Mapping[str, object]
"""An application as a Serve config has it."""


def second_application(first: Config, bundle: str, manifest: Manifest) -> Config:
    """Return the application that serves a bundle beside the first one, with its settings.

    Its name and its direct path are the first one's with the version behind, instead of the
    one that a rollout put there before.

    Raises:
        BundleError: The first one serves that bundle already.
    """
    args = first.get("args")
    args = args if isinstance(args, Mapping) else {}
    name, prefix = str(first["name"]), first.get("route_prefix")
    if args.get("bundle") == bundle:
        raise BundleError(f"application {name!r} serves {bundle} already", param="bundle")
    version = _UNSAFE.sub("-", manifest.version)
    second = {**first, "name": f"{_stem(name)}-{version}", "args": {**args, "bundle": bundle}}
    if isinstance(prefix, str):
        second["route_prefix"] = f"{_stem(prefix.rstrip('/'))}-{version}"
    return second


def _stem(name: str) -> str:
    return _VERSION_BEHIND.sub("", name)
