"""DuckDB over a folder of Parquet files, which finds partitions in paths (hive_partitioning)."""

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from integration_tests.harness.lake import Lake


@contextmanager
def downloaded(lake: Lake, prefix: str) -> Iterator[Path]:
    """Lend a folder with copies of all objects below a prefix of the lake's bucket, under their names below it."""
    prefix = prefix.rstrip("/") + "/"
    with tempfile.TemporaryDirectory() as folder:
        for key in lake.objects(prefix):
            if not key.endswith("/"):
                path = Path(folder, key.removeprefix(prefix))
                path.parent.mkdir(parents=True, exist_ok=True)
                lake.s3.download_file(lake.bucket, key, str(path))
        yield Path(folder)


@dataclass(frozen=True)
class Scan:
    """What a query has read."""

    rows: list[dict[str, Any]]
    files: int
    total_files: int


def scan(folder: Path, where: str = "true", types: Mapping[str, str] | None = None) -> Scan:
    """Return the rows that satisfy a condition, and of how many files how many were opened.

    `types` are the types of partition keys; without it DuckDB decides by the values.
    """
    pattern = str(folder / "**" / "*.parquet").replace("'", "''")
    options = ["hive_partitioning = true", "union_by_name = true", "filename = false"]
    if types is not None:
        options.append(f"hive_types = {{{', '.join(f'{name}: {kind}' for name, kind in types.items())}}}")
    query = f"SELECT * FROM read_parquet('{pattern}', {', '.join(options)}) WHERE {where}"
    profile = folder / "profile.json"
    with duckdb.connect() as engine:
        engine.execute("SET TimeZone = 'UTC'")
        engine.execute("PRAGMA enable_profiling = 'json'")
        engine.execute(f"PRAGMA profiling_output = '{profile}'")
        relation = engine.execute(query)
        names = [column[0] for column in relation.description]
        rows = [dict(zip(names, row, strict=True)) for row in relation.fetchall()]
    report = next(_scans(json.loads(profile.read_text())["operator"]))
    profile.unlink()
    return Scan(rows, int(report["Total Files Read"]), sum(1 for _ in folder.rglob("*.parquet")))


def _scans(operators: list[dict[str, Any]]) -> Iterator[Mapping[str, str]]:
    for operator in operators:
        if "Total Files Read" in operator["extra_info"]:
            yield operator["extra_info"]
        yield from _scans(operator.get("children") or [])
