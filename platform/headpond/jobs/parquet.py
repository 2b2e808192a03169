"""Parquet: rows as the lines of an input, and result lines as rows. Needs the extra `parquet`."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import IO, TYPE_CHECKING

import orjson

from headpond.errors import HeadpondError, InvalidRequest
from headpond.jobs.job import Source

if TYPE_CHECKING:
    from types import ModuleType

_BODY = "body"
_BATCH_ROWS = 512
_GROUP_LINES = 4096


class UnreadableObject(HeadpondError):
    """An object of the input is not what its format says."""

    code = "invalid_parquet"


def require_parquet(*, param: str) -> None:
    """Check that Parquet can be read and written here.

    Raises:
        InvalidRequest: A package is missing.
    """
    try:
        _pyarrow()
    except ImportError:
        text = "This server has no Parquet: `headpond[parquet]` is not installed there."
        raise InvalidRequest(text, param=param) from None


def lines_of(file: IO[bytes] | Path, source: Source, endpoint: str) -> Iterator[bytes]:
    """Yield each row as the line that a file of JSON lines would have; row group by row group.

    Args:
        file: Parquet, open for reading at any place, or its path.
        source: Says which column is which field.
        endpoint: The `url` of every line.

    Raises:
        UnreadableObject: It is no Parquet, or has not the columns.
    """
    wanted = [source.id_column, *(source.columns.values() or [_BODY])]
    try:
        with _pyarrow().ParquetFile(file) as parquet:
            missing = [name for name in wanted if name not in parquet.schema_arrow.names]
            if missing:
                raise UnreadableObject(f"It has no column `{missing[0]}`.")
            for batch in parquet.iter_batches(batch_size=_BATCH_ROWS, columns=wanted):
                for row in batch.to_pylist():
                    yield _line(row, source, endpoint)
    except (ValueError, TypeError, NotImplementedError) as error:
        raise UnreadableObject(f"It can't be read as Parquet: {type(error).__name__}.") from None
    except OSError as error:
        if error.errno is not None:  # the store's; pyarrow's own has no number
            raise
        raise UnreadableObject("It can't be read as Parquet.") from None


def write_results(lines: bytes, path: Path) -> None:
    """Write result lines as rows of `id`, `custom_id`, `response` and `error`, these as JSON."""
    parquet = _pyarrow()
    arrow = import_module("pyarrow")
    names = ("id", "custom_id", "response", "error")
    schema = arrow.schema([(name, arrow.string()) for name in names])
    each = lines.splitlines()
    with parquet.ParquetWriter(path, schema) as writer:
        for first in range(0, len(each), _GROUP_LINES):
            rows = [_row(line) for line in each[first : first + _GROUP_LINES]]
            writer.write_table(arrow.Table.from_pylist(rows, schema=schema))


def _row(line: bytes) -> Mapping[str, str | None]:
    result = orjson.loads(line)
    json = {
        name: None if result[name] is None else orjson.dumps(result[name]).decode()
        for name in ("response", "error")
    }
    return {"id": result["id"], "custom_id": result["custom_id"], **json}


def _line(row: Mapping[str, object], source: Source, endpoint: str) -> bytes:
    body: object
    if source.columns:
        body = {name: row[column] for name, column in source.columns.items()}
    else:
        body = row[_BODY]
        if isinstance(body, str):
            try:
                body = orjson.loads(body)
            except ValueError:
                return b"{"  # the reader says that this line is no JSON
    if isinstance(body, dict):
        body = {**source.body, **_without_nulls(body)}
    name = row[source.id_column]
    line = {
        "custom_id": str(name) if isinstance(name, int) else name,
        "method": "POST",
        "url": endpoint,
        "body": body,
    }
    return orjson.dumps(line, default=_as_json)


def _without_nulls(fields: Mapping[str, object]) -> dict[str, object]:
    """Leave out the fields without a value: a struct has every field in every row."""
    return {
        name: _without_nulls(value) if isinstance(value, dict) else value
        for name, value in fields.items()
        if value is not None
    }


def _as_json(value: object) -> object:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal):
        return float(value)
    raise TypeError


def _pyarrow() -> ModuleType:
    """Return pyarrow's Parquet: it is heavy, and only some jobs need it."""
    return import_module("pyarrow.parquet")
