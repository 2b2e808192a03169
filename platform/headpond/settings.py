"""What an operator decides: API keys, tenants, and where telemetry goes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

import yaml
from pydantic import (
    AwareDatetime,
    BaseModel,
    ByteSize,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from headpond.errors import HeadpondError

PUBLIC_TENANT = "public"
"""Who is served when no keys are configured."""

Origin = Annotated[str, Field(pattern=r"^[a-z][a-z0-9+.-]*://[^/\s]*$")]
"""A scheme, a host, and a port that is not the scheme's usual one; no path."""

_STRICT = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class SettingsError(HeadpondError):
    """The settings are not valid."""

    code = "settings_invalid"


def hash_key(key: str) -> str:
    """Return the form in which an API key is kept: its SHA-256, in hex."""
    return hashlib.sha256(key.encode()).hexdigest()


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
    """

    model_config = _STRICT

    key_sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    tenant: Annotated[str, Field(min_length=1)] = PUBLIC_TENANT
    models: tuple[str, ...] = ("*",)
    workloads: tuple[str, ...] = ("*",)
    expires: AwareDatetime | None = None

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


class Tenant(BaseModel):
    """One tenant's share.

    Attributes:
        weight: Its share of the work, relative to the others', while several wait.
    """

    model_config = _STRICT

    weight: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0


class SessionLimits(BaseModel):
    """How many WebSocket sessions there may be in one process, and how large they get.

    Attributes:
        resume_s: So long a session whose connection broke is kept for its client to come
            back to; 0 for not at all.
        per_tenant: The most sessions of one tenant, kept ones included.
        in_all: The most sessions of all tenants.
        message_bytes: The largest message that a client may send.
        longest_s: The longest that one session lasts.
    """

    model_config = _STRICT

    resume_s: Annotated[float, Field(ge=0, le=3600)] = 30.0
    per_tenant: Annotated[int, Field(ge=1)] = 64
    in_all: Annotated[int, Field(ge=1)] = 512
    message_bytes: Annotated[ByteSize, Field(gt=0, le=16 * 2**20)] = ByteSize(4 * 2**20)
    longest_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 3600.0


class Settings(BaseModel):
    """An operator's settings.

    Attributes:
        keys: API keys; with none, access is open and everybody is the public tenant.
        tenants: Shares by tenant; a tenant that is not listed has a weight of 1.
        metrics_open: Whether `/metrics` is served without a key.
        otlp_endpoint: Base URL of an OpenTelemetry collector (OTLP over HTTP); None for
            no tracing.
        log_level: The least level that is logged.
        sessions: Bounds of WebSocket sessions.
        allowed_origins: Origins whose web pages may call, as browsers name them
            (`https://app.example`); pages of the server's own host always may.
        trust_forwarded_host: Whether the server's own host is what `x-forwarded-host` says:
            for a proxy that sets it on every request.
    """

    model_config = _STRICT

    keys: tuple[ApiKey, ...] = ()
    tenants: Mapping[str, Tenant] = Field(default_factory=dict)
    metrics_open: bool = False
    otlp_endpoint: Annotated[str, Field(pattern=r"^https?://")] | None = None
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    sessions: SessionLimits = SessionLimits()
    allowed_origins: tuple[Origin, ...] = ()
    trust_forwarded_host: bool = False

    @property
    def tenant_weights(self) -> Mapping[str, float]:
        """The listed tenants' shares."""
        return {name: tenant.weight for name, tenant in self.tenants.items()}

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read settings from a YAML file.

        Raises:
            SettingsError: The file cannot be read, or a field in it is wrong; names the field.
        """
        try:
            given = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"{path} cannot be read: {error}") from error
        except yaml.MarkedYAMLError as error:
            # The error's own text quotes the file, which may hold a key.
            line = error.problem_mark.line + 1 if error.problem_mark else "?"
            raise SettingsError(f"{path} is not YAML: see line {line}") from None
        return cls.read({} if given is None else given, source=str(path))

    @classmethod
    def read(cls, given: object, *, source: str = "settings") -> Self:
        """Check settings that were parsed already, e.g. an application's arguments.

        Raises:
            SettingsError: A field is wrong; names it, and does not repeat its value.
        """
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            problems = error.errors(include_url=False, include_input=False, include_context=False)
            fields = [".".join(str(part) for part in problem["loc"]) for problem in problems]
            listed = "; ".join(
                f"{field or 'the file'}: {problem['msg'].removeprefix('Value error, ')}"
                for field, problem in zip(fields, problems, strict=True)
            )
            raise SettingsError(f"{source}: {listed}", param=fields[0] or None) from None
