"""Read a folder of Parquet files with DuckDB, which finds partitions in paths (hive_partitioning)."""

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
    """Download all objects below a prefix of the lake's bucket to a temporary folder, and yield the folder.

    The names of the copies are relative to the prefix.
    """
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
    """The result of a query: its rows, the number of files that were opened, and the number of all files."""

    rows: list[dict[str, Any]]
    files: int
    total_files: int


def scan(folder: Path, where: str = "true", types: Mapping[str, str] | None = None) -> Scan:
    """Return the rows that satisfy the SQL condition `where`, and the number of opened files and of all files.

    `types` maps partition keys to their types. Without it, DuckDB infers the types from the values.
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
