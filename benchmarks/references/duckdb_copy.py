"""DuckDB's COPY: a single statement that reads the message file and writes Parquet files to the local disk.

`python -m benchmarks.references.duckdb_copy MESSAGES CATALOG FOLDER` passes the types of all columns to DuckDB. DuckDB
uses all cores. It does not upload, commit or return states, and stops at the first invalid value.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import duckdb

_TYPES = {"integer": "BIGINT", "number": "DOUBLE", "boolean": "BOOLEAN", "string": "VARCHAR"}


def main(messages: Path, catalog: Path, folder: Path) -> None:
    """Copy the records of the only stream in `catalog` to Parquet files in `folder`."""
    properties = json.loads(catalog.read_bytes())["streams"][0]["stream"]["json_schema"]["properties"]
    data = ", ".join(f'"{name}" {_type(column)}' for name, column in properties.items())
    duckdb.execute(
        f"""
        COPY (
            SELECT record.emitted_at, unnest(record.data)
            FROM read_json($messages, format = 'newline_delimited',
                           columns = {{type: 'VARCHAR', record: 'STRUCT(data STRUCT({data}), emitted_at BIGINT)'}})
            WHERE type = 'RECORD'
        ) TO '{folder}' (FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1, PER_THREAD_OUTPUT, OVERWRITE_OR_IGNORE)
        """,
        {"messages": str(messages)},
    )


def _type(column: Mapping[str, object]) -> str:
    if column.get("format") == "date-time":
        return "TIMESTAMPTZ"
    types = column["type"]
    assert isinstance(types, list)
    [kind] = (name for name in types if name != "null")
    return _TYPES[kind]


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
