"""Print what pyproject.toml asks for with some extras, one requirement a line.

The image installs these first, so that a change of code alone keeps the layer that takes long.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path


def requirements(project: Mapping[str, object], extras: Sequence[str]) -> Iterator[str]:
    """Yield the project's requirements, and those of its extras, themselves opened up.

    Raises:
        KeyError: There is no such extra.
    """
    plain, optional = project["dependencies"], project["optional-dependencies"]
    if not isinstance(plain, list) or not isinstance(optional, dict):
        raise TypeError("[project] has no lists of dependencies")
    yield from plain
    own = f"{project['name']}["
    for extra in extras:
        for requirement in optional[extra]:
            if requirement.startswith(own):
                nested = requirement.removeprefix(own).rstrip("]").split(",")
                yield from requirements({**project, "dependencies": []}, nested)
            else:
                yield requirement


if __name__ == "__main__":
    found = tomllib.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    print("\n".join(requirements(found["project"], sys.argv[2].split(","))))
