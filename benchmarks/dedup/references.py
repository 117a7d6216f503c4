"""Run the same upserts with other tools: `python -m benchmarks.dedup.references CONTENDER JSON`.

DuckDB rewrites the table's files on the local disk without the replaced rows, and commits nothing. PyIceberg's
`Table.upsert` uses the emulated AWS. Prints a JSON document with the number of rows after the upserts, and the number
of written bytes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq

from benchmarks.cloud import DATABASE, KEY, REGION, SECRET


class Asked(msgspec.Struct):
    """The input of a contender.

    `table_files` and `upserts` are files on the local disk. `table` is the name of the table in the lake at `url`.
    `folder` is a folder for the result.
    """

    key: str
    table_files: tuple[str, ...]
    upserts: tuple[str, ...]
    url: str
    table: str
    folder: str


def main(contender: str, asked: Asked) -> None:
    """Run a contender, and print the result as JSON."""
    print(json.dumps(CONTENDERS[contender](asked)))


def _duckdb(asked: Asked) -> Mapping[str, object]:
    import duckdb

    connection = duckdb.connect(config={"threads": 2, "preserve_insertion_order": False})
    out = Path(asked.folder) / "out"
    out.mkdir()
    upserts = f"CREATE TEMP TABLE upserts AS SELECT {asked.key} FROM read_parquet({list(asked.upserts)})"
    connection.execute(upserts)
    kept = f"FROM read_parquet({list(asked.table_files)}) ANTI JOIN upserts USING ({asked.key})"
    options = "FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1, PER_THREAD_OUTPUT"
    connection.execute(f"COPY ({kept}) TO '{out}' ({options})")
    written = list(out.glob("*.parquet"))
    return {
        "rows": sum(pq.read_metadata(path).num_rows for path in (*written, *map(Path, asked.upserts))),
        "bytes": sum(path.stat().st_size for path in written),
    }


def _pyiceberg(asked: Asked) -> Mapping[str, object]:
    from pyiceberg.catalog import load_catalog

    properties: dict[str, Any] = {
        "type": "glue",
        "glue.endpoint": asked.url,
        "s3.endpoint": asked.url,
        "client.region": REGION,
        "client.access-key-id": KEY,
        "client.secret-access-key": SECRET,
    }
    table = load_catalog("benchmark", **properties).load_table(f"{DATABASE}.{asked.table}")
    result = table.upsert(pq.read_table(list(asked.upserts)), [asked.key])
    added = table.metadata.current_snapshot().summary["total-files-size"]  # type: ignore[union-attr,index]
    return {"rows": table.scan().count(), "bytes": int(added or 0), "updated": result.rows_updated}


CONTENDERS: Mapping[str, Callable[[Asked], Mapping[str, object]]] = {"DuckDB": _duckdb, "PyIceberg upsert": _pyiceberg}


if __name__ == "__main__":
    main(sys.argv[1], msgspec.json.decode(sys.argv[2], type=Asked))
