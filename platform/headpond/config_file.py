"""Files that an operator writes: read as YAML, checked, and never quoted in an error."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import ValidationError

from headpond.errors import HeadpondError

Checked = TypeVar("Checked")

_LOADER: type[yaml.SafeLoader | yaml.CSafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""A file of a thousand keys is read again between two requests; libyaml takes a quarter as long."""


class SettingsError(HeadpondError):
    """The settings are not valid."""

    code = "settings_invalid"


def located(path: str) -> Path:
    """Return a configured path, relative ones from `$HEADPOND_HOME` or the working directory."""
    return Path(os.environ.get("HEADPOND_HOME", "."), path)


def read_yaml(path: Path) -> object:
    """Return what a YAML file says; None when it is empty.

    Raises:
        SettingsError: The file cannot be read, or is not YAML.
    """
    try:
        return yaml.load(path.read_text(encoding="utf-8"), _LOADER)  # noqa: S506 - safe ones only
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {error}") from error
    except yaml.MarkedYAMLError as error:
        # The error's own text quotes the file, which may hold a key.
        line = error.problem_mark.line + 1 if error.problem_mark else "?"
        raise SettingsError(f"{path} is not YAML: see line {line}") from None
    except yaml.YAMLError:
        raise SettingsError(f"{path} is not YAML") from None


def checked(validate: Callable[[object], Checked], given: object, source: str) -> Checked:
    """Return what `validate` makes of parsed settings.

    Args:
        validate: Of a pydantic model or type adapter.
        given: As it was parsed.
        source: Where it is from, for the error.

    Raises:
        SettingsError: A field is wrong; names it, and does not repeat its value.
    """
    try:
        return validate(given)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False, include_context=False)
        fields = [".".join(str(part) for part in problem["loc"]) for problem in problems]
        listed = "; ".join(
            f"{field or 'the file'}: {problem['msg'].removeprefix('Value error, ')}"
            for field, problem in zip(fields, problems, strict=True)
        )
        raise SettingsError(f"{source}: {listed}", param=fields[0] or None) from None
