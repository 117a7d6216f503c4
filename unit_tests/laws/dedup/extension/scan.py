"""The judge: reads requests from stdin, and writes the rows that DuckDB's iceberg_scan finds to Parquet files.

A request is a line with a metadata file's URI and the path of the result, as a JSON array; the answer is a line, empty
if all went well. S3 is the folder that the first argument names. Runs in an environment without the project.
"""

from __future__ import annotations

import importlib
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb

_fsspec: Any = importlib.import_module("fsspec")


class Buckets(_fsspec.AbstractFileSystem):  # type: ignore[misc]
    """S3, of which there is a copy in a folder."""

    protocol = ("s3",)

    def _local(self, path: str) -> Path:
        return Path(sys.argv[1], path.removeprefix("s3://"))

    def open(self, path: str, mode: str = "rb", **_: Any) -> Any:
        return self._local(path).open(mode)

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        local = self._local(path)
        return {"name": path, "size": local.stat().st_size, "type": "directory" if local.is_dir() else "file"}

    def exists(self, path: str, **_: Any) -> bool:
        return self._local(path).exists()

    def glob(self, path: str, **_: Any) -> list[str]:
        return [path] if self.exists(path) else []

    def modified(self, path: str) -> datetime:
        return datetime.fromtimestamp(self._local(path).stat().st_mtime, UTC)


def connect() -> duckdb.DuckDBPyConnection:
    """Return an engine with the Iceberg extension."""
    engine = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    engine.register_filesystem(Buckets())
    for name in ("avro", "iceberg"):
        [module] = importlib.import_module(f"duckdb_extension_{name}").__path__
        [extension] = Path(module).rglob("*.duckdb_extension")
        engine.load_extension(str(extension))
    return engine


def main() -> None:
    """Answer requests until there are no more."""
    engine = connect()
    for line in sys.stdin:
        metadata, result = json.loads(line)
        try:
            engine.execute(f"COPY (FROM iceberg_scan('{metadata}')) TO '{result}' (FORMAT parquet)")
            answer = ""
        except duckdb.Error as error:
            answer = str(error).replace("\n", " ")
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
