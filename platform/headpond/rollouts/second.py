"""The second application of a model: the first one's config with another bundle."""

from __future__ import annotations

import re

from ray.serve.schema import ServeApplicationSchema

from headpond.bundle.manifest import Manifest
from headpond.errors import BundleError

_UNSAFE = re.compile(r"[^A-Za-z0-9-]+")


def second_application(
    first: ServeApplicationSchema, bundle: str, manifest: Manifest
) -> ServeApplicationSchema:
    """Return the application that serves a bundle beside the first one, with its settings.

    Its name and its direct path are the first one's with the version behind.

    Raises:
        BundleError: The first one serves that bundle already.
    """
    if first.args.get("bundle") == bundle:
        raise BundleError(f"application {first.name!r} serves {bundle} already", param="bundle")
    version = _UNSAFE.sub("-", manifest.version)
    stem = first.name.removesuffix(f"-{version}")
    changes: dict[str, object] = {
        "name": f"{stem}-{version}",
        "args": {**first.args, "bundle": bundle},
    }
    if first.route_prefix is not None:
        changes["route_prefix"] = f"{first.route_prefix.rstrip('/')}-{version}"
    kept = first.model_dump(exclude_unset=True)
    return ServeApplicationSchema.model_validate({**kept, **changes})
