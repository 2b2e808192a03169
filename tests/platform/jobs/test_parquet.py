"""Parquet in and out of jobs over prefixes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from batches import Mill
from headpond.jobs.job import JobStatus, Source, Target

arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed: no Parquet is tested")
parquet = pytest.importorskip("pyarrow.parquet")


def write(tmp_path: Path, rows: list[dict[str, object]]) -> None:
    table = arrow.Table.from_pylist(rows)
    parquet.write_table(table, tmp_path / "lake/in/a.parquet", row_group_size=2)


async def run(mill: Mill, tmp_path: Path, **source: object) -> JobStatus:
    url = f"file://{tmp_path}/lake"
    read = Source(url=f"{url}/in", format="parquet", **source)  # type: ignore[arg-type]
    job = await mill.submit_prefix(read, Target(url=f"{url}/out", format="parquet"))
    await mill.drain()
    return (await mill.job(job)).status


def results(tmp_path: Path) -> dict[str, str]:
    table = parquet.read_table(tmp_path / "lake/out/part-00000.parquet")
    return {
        row["custom_id"]: json.loads(row["response"])["body"]["text"] for row in table.to_pylist()
    }


@pytest.mark.parametrize("as_text", [False, True], ids=["struct", "JSON"])
async def test_bodies_are_structs_or_json(mill: Mill, tmp_path: Path, *, as_text: bool) -> None:
    bodies = [{"model": "echo", "text": f"t{number}", "none": None} for number in range(5)]
    write(
        tmp_path,
        [
            {"custom_id": f"r{number}", "body": json.dumps(body, indent=1) if as_text else body}
            for number, body in enumerate(bodies)
        ],
    )
    assert await run(mill, tmp_path) is JobStatus.COMPLETED
    assert results(tmp_path) == {f"r{number}": f"t{number}" for number in range(5)}
    manifest = json.loads((tmp_path / "lake/out/manifest.json").read_bytes())
    assert manifest["input"]["objects"][0]["lines"] == 5


async def test_columns_become_fields_of_the_body(mill: Mill, tmp_path: Path) -> None:
    write(tmp_path, [{"key": number, "prose": f"t{number}", "unused": 1.0} for number in range(3)])
    status = await run(
        mill, tmp_path, id_column="key", columns={"text": "prose"}, body={"model": "echo"}
    )
    assert status is JobStatus.COMPLETED
    assert results(tmp_path) == {str(number): f"t{number}" for number in range(3)}


@pytest.mark.parametrize("content", [b"no parquet", b"PAR1" + b"\0" * 40 + b"PAR1", None])
async def test_what_is_no_parquet_or_lacks_a_column_fails_the_job(
    mill: Mill, tmp_path: Path, content: bytes | None
) -> None:
    if content is None:
        write(tmp_path, [{"custom_id": "a"}])
    else:
        (tmp_path / "lake/in/a.parquet").write_bytes(content)
    assert await run(mill, tmp_path) is JobStatus.FAILED
