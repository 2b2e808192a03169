"""What an operator decides: API keys, tenants, and where telemetry goes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ByteSize, ConfigDict, Field, PrivateAttr

from headpond.api_key import ApiKey
from headpond.config_file import checked, read_yaml

Origin = Annotated[str, Field(pattern=r"^[a-z][a-z0-9+.-]*://[^/\s]*$")]
"""A scheme, a host, and a port that is not the scheme's usual one; no path."""

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_STRICT = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Quota(BaseModel):
    """The most work of one unit that a tenant may have done in a stretch of time.

    Attributes:
        unit: A work unit of the workload, or `requests`.
        limit: How much of it.
        per: How long, e.g. `1m`, `12h` or `1d`; stretches begin at whole multiples of it in
            Unix time, so minutes, hours and days at theirs.
        workload: Which workload's work counts; `*` for that of all.
        models: Globs of the model names, as they are asked for, whose work counts.
    """

    model_config = _STRICT

    unit: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
    limit: Annotated[int, Field(ge=1, le=10**15)]
    per: Annotated[str, Field(pattern=r"^[1-9][0-9]{0,5}[smhd]$")]
    workload: Annotated[str, Field(min_length=1)] = "*"
    models: tuple[str, ...] = ("*",)

    @property
    def per_s(self) -> int:
        """How long a stretch of time is, in seconds."""
        return int(self.per[:-1]) * _SECONDS[self.per[-1]]


class Tenant(BaseModel):
    """One tenant's share.

    Attributes:
        weight: Its share of the work, relative to the others', while several wait.
        quotas: What it may have done at most; each holds.
    """

    model_config = _STRICT

    weight: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    quotas: tuple[Quota, ...] = ()


class QuotaStoreSettings(BaseModel):
    """Where it is counted what tenants with quotas have used up.

    Attributes:
        url: `memory://`, where each process counts for itself; or `redis://`, `rediss://`,
            `valkey://` or `valkeys://`, `[user:password@]host:port/database`, for all together.
        timeout_s: A store that does not answer for so long is away.
        when_away: Whether calls go on uncounted (`open`) or are refused with 503 (`closed`)
            while the store is away.
    """

    model_config = _STRICT

    url: Annotated[str, Field(pattern=r"^(memory://$|(redis|valkey)s?://)", repr=False)] = (
        "memory://"
    )
    timeout_s: Annotated[float, Field(gt=0, le=60)] = 0.5
    when_away: Literal["open", "closed"] = "open"


class UsageSettings(BaseModel):
    """Where it is kept what calls came to.

    Attributes:
        url: `sqlite:///path` or `postgresql://user@host/database`, which may be that of the
            jobs; a SQLite file in the user's data folder for headpond when absent.
        write_s: So often each process writes what it has counted.
        keep_days: Hours that are over for so many days are deleted; None to keep all.
    """

    model_config = _STRICT

    url: Annotated[str, Field(pattern=r"^(sqlite:///|postgresql://)")] | None = None
    write_s: Annotated[float, Field(gt=0, le=3600)] = 5.0
    keep_days: Annotated[int, Field(ge=1, le=36_500)] | None = None


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
        keys: API keys; with none, and no file of them, access is open and everybody is the
            public tenant.
        keys_file: A YAML file of more keys, a list. It is read again when it changes, so that
            keys come and go without a restart.
        tenants: Shares and quotas by tenant; one that is not listed has a weight of 1 and no
            quotas.
        quota_store: Where quotas are counted.
        usage: Where usage is kept; None for nowhere.
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
    keys_file: str | None = None
    tenants: Mapping[str, Tenant] = Field(default_factory=dict)
    quota_store: QuotaStoreSettings = QuotaStoreSettings()
    usage: UsageSettings | None = None
    metrics_open: bool = False
    otlp_endpoint: Annotated[str, Field(pattern=r"^https?://")] | None = None
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    sessions: SessionLimits = SessionLimits()
    allowed_origins: tuple[Origin, ...] = ()
    trust_forwarded_host: bool = False
    _path: Path | None = PrivateAttr(default=None)

    @property
    def path(self) -> Path | None:
        """The file that they were loaded from; None where they were given otherwise."""
        return self._path

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
        given = read_yaml(Path(path))
        settings = cls.read({} if given is None else given, source=str(path))
        settings._path = Path(path)  # noqa: SLF001 - its own
        return settings

    @classmethod
    def read(cls, given: object, *, source: str = "settings") -> Self:
        """Check settings that were parsed already, e.g. an application's arguments.

        Raises:
            SettingsError: A field is wrong; names it, and does not repeat its value.
        """
        return checked(cls.model_validate, given, source)
