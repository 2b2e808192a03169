"""The table of usage: how it is written, and added up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, delete, func, select
from sqlalchemy.dialects import postgresql, sqlite

from headpond.jobs.tables import usage
from headpond.usage.ledger import HOUR_S, Account

DAY_S = 86_400
_KEYS = tuple(column.name for column in usage.primary_key)


@dataclass(frozen=True, kw_only=True, slots=True)
class Query:
    """What is asked of usage.

    Attributes:
        start_s: From the hour that this is in, in Unix seconds.
        end_s: Up to the hour that begins then, or later.
        tenant: Whose; None for all.
        group_by: Columns, `hour` or `day` that are told apart; units always are.
        most: The most rows that are returned.
    """

    start_s: int
    end_s: int
    tenant: str | None
    group_by: tuple[str, ...]
    most: int


def write(connection: Connection, writer: str, totals: Mapping[Account, int]) -> None:
    """Put a process's totals in the place of those that it wrote before.

    So writing the same once more, as after a commit that nobody heard of, changes nothing.
    """
    rows = [
        {
            "writer": writer,
            "hour_s": account.hour_s,
            "tenant": account.tenant,
            "workload": account.workload,
            "model": account.model,
            "bundle": account.bundle,
            "outcome": account.outcome,
            "unit": account.unit,
            "amount": total,
        }
        for account, total in totals.items()
    ]
    if connection.dialect.name == "postgresql":
        insert = postgresql.insert(usage)
        written = {"amount": insert.excluded.amount}
        connection.execute(insert.on_conflict_do_update(index_elements=_KEYS, set_=written), rows)
    else:
        upsert = sqlite.insert(usage)
        written = {"amount": upsert.excluded.amount}
        connection.execute(upsert.on_conflict_do_update(index_elements=_KEYS, set_=written), rows)


def forget(connection: Connection, before_s: float) -> int:
    """Delete hours that were over by then, in Unix seconds; return how many rows they had."""
    old = usage.c.hour_s <= before_s - HOUR_S
    return connection.execute(delete(usage).where(old)).rowcount


def read(connection: Connection, query: Query) -> Sequence[Mapping[str, str | int]]:
    """Return sums by the groups of a query and by unit, in order."""
    groups = [*(_column(name) for name in query.group_by), usage.c.unit]
    found = (
        select(*groups, func.sum(usage.c.amount).label("amount"))
        .where(usage.c.hour_s > query.start_s - HOUR_S, usage.c.hour_s < query.end_s)
        .group_by(*groups)
        .order_by(*groups)
        .limit(query.most)
    )
    if query.tenant is not None:
        found = found.where(usage.c.tenant == query.tenant)
    rows = connection.execute(found).mappings()
    return [{**row, "amount": int(row["amount"])} for row in rows]


def _column(name: str) -> ColumnElement[str] | ColumnElement[int]:
    if name == "hour":
        return usage.c.hour_s.label("start")
    if name == "day":
        return (usage.c.hour_s - usage.c.hour_s % DAY_S).label("start")
    return usage.c[name]
