"""Roots: the only places that callers may have read and written, as the deployer listed them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from headpond.errors import InvalidRequest
from headpond.jobs.objects import Entry, Objects
from headpond.jobs.places import require_scheme

_TENANT = "{tenant}"
_LOCAL = "file"
_LONGEST_URL = 1024


class Roots:
    """Opens prefixes below the roots, and nothing else."""

    def __init__(self, roots: Sequence[str] = (), *, patience_s: float | None = 10.0) -> None:
        """Keep the roots; nothing is asked of them yet.

        Args:
            roots: Folders by URL; `{tenant}` stands for the caller's tenant.
            patience_s: So long one operation is repeated; None for ever.
        """
        self._roots = tuple(roots)
        self._patience_s = patience_s

    def open(self, url: str, tenant: str, *, param: str) -> Objects:
        """Return the objects below a prefix.

        Args:
            url: The prefix.
            tenant: Whose job reads or writes there.
            param: The field to blame.

        Raises:
            InvalidRequest: No root has it, by its name or by where links lead.
        """
        scheme, names = _parts(url, param)
        for each in self._roots:
            root = _for_tenant(each, tenant)
            if root is None:
                continue
            root_scheme, root_names = _parts(root, param)
            below = names[: len(root_names)] == root_names and len(names) > len(root_names)
            if root_scheme == scheme and below:
                if scheme == _LOCAL:
                    _require_within(_path(names), _path(root_names), param)
                return Objects(_address(scheme, names), patience_s=self._patience_s)
        text = "No deployer's root has it: batches read and write below `roots` of the jobs only."
        if not self._roots:
            text = "This server reads uploaded files only: its jobs have no `roots`."
        raise InvalidRequest(text, param=param)


def require_no_links(url: str, entries: Sequence[Entry], *, param: str) -> None:
    """Check that no object below a prefix is a link to somewhere else.

    Raises:
        InvalidRequest: One leads out of the prefix.
    """
    scheme, names = _parts(url, param)
    if scheme == _LOCAL:
        for entry in entries:
            _require_within(_path(names) / entry.key, _path(names), param)


def require_apart(one: str, other: str, *, param: str) -> None:
    """Check that neither of two prefixes is below the other.

    Raises:
        InvalidRequest: They overlap.
    """
    first, second = _parts(one, param), _parts(other, param)
    least = min(len(first[1]), len(second[1]))
    if first[0] == second[0] and first[1][:least] == second[1][:least]:
        raise InvalidRequest("The input and the output lie one below the other.", param=param)


def checked_root(url: str) -> str:
    """Return a root that is a folder's URL of a store that can be read here.

    Raises:
        ValueError: It is none.
    """
    try:
        scheme, _ = _parts(url, "roots")
        require_scheme(scheme)
    except (InvalidRequest, ImportError) as error:
        raise ValueError(str(error)) from None
    return url.rstrip("/")


def _parts(url: str, param: str) -> tuple[str, tuple[str, ...]]:
    """Return the scheme and the names of the folders of a URL."""
    scheme, colon, rest = url.partition("://")
    names = tuple(rest.rstrip("/").split("/"))
    if scheme == _LOCAL and names[0] == "":
        names = names[1:]  # file:///folder: there is no host
    odd = not names or any(name in {"", ".", ".."} for name in names) or not url.isprintable()
    chained = "::" in url or any(mark in rest for mark in "\\?*[]#")
    if not colon or not scheme.isalnum() or odd or chained or len(url) > _LONGEST_URL:
        raise InvalidRequest(
            "It must read `scheme://folder/...`, without `.`, `..`, empty names, `::` or any of "
            f"`\\ ? * [ ] #`, and have at most {_LONGEST_URL} characters.",
            param=param,
        )
    return scheme, names


def _for_tenant(root: str, tenant: str) -> str | None:
    """Return a root of one tenant; None where its name can't be that of a folder."""
    if _TENANT not in root:
        return root
    if tenant in {"", ".", ".."} or not tenant.replace("-", "").replace("_", "").isalnum():
        return None
    return root.replace(_TENANT, tenant)


def _path(names: Sequence[str]) -> Path:
    return Path("/", *names)


def _address(scheme: str, names: Sequence[str]) -> str:
    return f"{scheme}://{'/' if scheme == _LOCAL else ''}{'/'.join(names)}"


def _require_within(path: Path, root: Path, param: str) -> None:
    if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root)):
        raise InvalidRequest("A link leads out of the place that may be read.", param=param)
