"""API keys: known by their hashes only, with what each opens."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    model_validator,
)

from headpond.config_file import checked, read_yaml

PUBLIC_TENANT = "public"
"""Who is served when no keys are configured."""

ID_DIGITS = 8
_SECRET_BYTES = 32


def hash_key(key: str) -> str:
    """Return the form in which an API key is kept: its SHA-256, in hex."""
    return hashlib.sha256(key.encode()).hexdigest()


def new_key() -> str:
    """Return a key that nobody has guessed."""
    return f"hp-{secrets.token_urlsafe(_SECRET_BYTES)}"


def key_id(key_sha256: str) -> str:
    """Return the name of a key in logs and lists: too little of its hash to be of use."""
    return key_sha256[:ID_DIGITS]


class ApiKey(BaseModel):
    """One API key, known by its hash only, and what it opens.

    In a file, exactly one of `key_sha256`, `key_env` (the environment variable that holds
    the key) and `key` (the key itself) says which key it is; the last two are hashed at
    once and kept nowhere.

    Attributes:
        key_sha256: SHA-256 of the key, in hex, as `hash_key` gives it.
        tenant: Who is served when this key is shown.
        models: Globs of the model names it may ask for.
        workloads: Globs of the workloads it may use.
        expires: From then on the key is refused.
        metrics: Whether it may read `/metrics`, which tells of all tenants together.
        admin: Whether it may read `/metrics` and every tenant's usage.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    key_sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    tenant: Annotated[str, Field(min_length=1)] = PUBLIC_TENANT
    models: tuple[str, ...] = ("*",)
    workloads: tuple[str, ...] = ("*",)
    expires: AwareDatetime | None = None
    metrics: bool = False
    admin: bool = False

    @model_validator(mode="before")
    @classmethod
    def _hash_plain_key(cls, given: object) -> object:
        if not isinstance(given, Mapping):
            return given
        ways = [way for way in ("key_sha256", "key_env", "key") if way in given]
        if len(ways) != 1:
            raise ValueError("give exactly one of key_sha256, key_env and key")
        if ways == ["key_sha256"]:
            return given
        plain = given[ways[0]]
        if ways == ["key_env"]:
            plain = os.environ.get(str(plain))
        if not isinstance(plain, str) or not plain:
            raise ValueError(f"{ways[0]} gives no key (is it set, and text?)")
        rest = {name: value for name, value in given.items() if name != ways[0]}
        return {**rest, "key_sha256": hash_key(plain)}


_KEYS = TypeAdapter(tuple[ApiKey, ...])


def read_keys(path: Path) -> tuple[ApiKey, ...]:
    """Return the keys of a file, which is a list of them in YAML.

    Raises:
        SettingsError: The file cannot be read, or a field in it is wrong; names the field.
    """
    given = read_yaml(path)
    return checked(_KEYS.validate_python, [] if given is None else given, str(path))
