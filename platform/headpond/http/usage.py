"""`/v1/usage`: what calls came to, each tenant's own, or everybody's for an admin's key."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headpond.errors import InvalidRequest, Overloaded
from headpond.http.auth import Caller, Keyring
from headpond.http.responses import json_response
from headpond.jobs.errors import JobsUnavailable
from headpond.jobs.opening import Opening
from headpond.jobs.settings import JobStore
from headpond.settings import UsageSettings
from headpond.usage.table import Query, read
from headpond.usage_wire import USAGE_GROUPS, USAGE_PATH, UsageGroup, UsageReport, UsageRow

_DEFAULT_S = 30 * 86_400
_HOUR_S = 3600
_MOST_ROWS = 10_000
_LATEST_S = 2**40
_DEFAULT_GROUPS = ("workload", "model")


class UsageUnavailable(Overloaded):
    """The database of usage does not answer."""

    code = "usage_unavailable"


class UsageDoor:
    """The route of usage, over the database that it is kept in."""

    def __init__(self, settings: UsageSettings) -> None:
        """Keep the address; the database is opened when it is first needed."""
        self._opening = Opening(JobStore(database=settings.url).open_database)

    def routes(self, keyring: Keyring) -> list[Route]:
        """Return the one route; `keyring` says who may see what."""

        async def usage(request: Request) -> Response:
            caller = keyring.authenticate(dict(request.scope["headers"]), USAGE_PATH)
            return json_response(await self._report(_asked(request, caller)))

        return [Route(USAGE_PATH, usage)]

    async def _report(self, query: Query) -> UsageReport:
        try:
            database = await self._opening.database()
            rows = await database.read(lambda connection, _: read(connection, query))
        except JobsUnavailable:
            raise UsageUnavailable(retry_after_s=2.0) from None
        if len(rows) > _MOST_ROWS:
            raise InvalidRequest(
                f"That is more than {_MOST_ROWS} rows; ask for less time, or fewer groups.",
                param="group_by",
            )
        return UsageReport(
            start=query.start_s,
            end=query.end_s,
            group_by=cast("tuple[UsageGroup, ...]", query.group_by),
            data=tuple(UsageRow.model_validate(row) for row in rows),
        )


def _asked(request: Request, caller: Caller) -> Query:
    """Read a query; without `admin` it is about the caller's own tenant.

    Raises:
        InvalidRequest: A parameter is not what it must be; names it.
        PermissionDenied: It is about another tenant.
    """
    given = request.query_params
    end_s = _time_s(given.get("end"), "end", int(time.time() // _HOUR_S + 1) * _HOUR_S)
    start_s = _time_s(given.get("start"), "start", max(end_s - _DEFAULT_S, 0))
    if start_s >= end_s:
        raise InvalidRequest("`start` must be before `end`.", param="start")
    tenant = given.get("tenant", None if caller.admin else caller.tenant)
    if tenant is not None:
        caller.require_tenant(tenant)
    return Query(
        start_s=start_s,
        end_s=end_s,
        tenant=tenant,
        group_by=_groups(given.getlist("group_by")),
        most=_MOST_ROWS + 1,
    )


def _groups(given: list[str]) -> tuple[str, ...]:
    names = [name for text in given for name in text.split(",")] or _DEFAULT_GROUPS
    groups = tuple(name for name in dict.fromkeys(names) if name)
    for name in groups:
        if name not in USAGE_GROUPS:
            known = ", ".join(USAGE_GROUPS)
            raise InvalidRequest(f"`group_by` must be some of {known}.", param="group_by")
    if {"hour", "day"} <= set(groups):
        raise InvalidRequest("`group_by` takes `hour` or `day`, not both.", param="group_by")
    return groups


def _time_s(given: str | None, name: str, default_s: int) -> int:
    """Return a time in Unix seconds, which may be written in ISO 8601; UTC unless it says."""
    if given is None:
        return default_s
    try:
        if given.isascii() and given.isdigit():
            at_s = int(given)
        else:
            moment = datetime.fromisoformat(given)
            at_s = int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
    except (ValueError, OverflowError):
        at_s = -1
    if not 0 <= at_s < _LATEST_S:
        text = f"`{name}` must be Unix seconds, or like 2026-12-01 or 2026-12-01T10:00:00Z."
        raise InvalidRequest(text, param=name)
    return at_s
