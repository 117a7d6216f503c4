"""What DuckDB's Iceberg extension finds in a table."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyiceberg.table import Table

from destination_datalake.aws.access import AwsAccess
from destination_datalake.aws.objects import S3Address
from unit_tests.laws.dedup.extension.environment import PYTHON


class Extension:
    """The judge, as long as it runs."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self._process = process
        self._folder = folder

    def rows(self, table: Table, access: AwsAccess) -> list[dict[str, Any]]:
        """Return the rows of the current snapshot. Raises AssertionError if DuckDB cannot read it."""
        self._copy(S3Address.parse(table.location()), access)
        if table.current_snapshot() is None:
            return []
        result = self._folder / "result.parquet"
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([table.metadata_location, str(result)]) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer == "\n", f"DuckDB cannot read the table: {answer}"
        return pq.read_table(result).to_pylist()

    def _copy(self, location: S3Address, access: AwsAccess) -> None:
        s3 = access.client("s3")
        for page in s3.get_paginator("list_objects_v2").paginate(Bucket=location.bucket, Prefix=f"{location.key}/"):
            for entry in page.get("Contents", []):
                path = self._folder / location.bucket / entry["Key"]
                if not path.exists():
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(s3.get_object(Bucket=location.bucket, Key=entry["Key"])["Body"].read())


@contextmanager
def extension() -> Iterator[Extension]:
    """Lend the judge; `make test-all` makes its environment."""
    with tempfile.TemporaryDirectory() as folder:
        command = [str(PYTHON), str(Path(__file__).parent / "scan.py"), folder]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            yield Extension(process, Path(folder))
            assert process.stdin is not None
            process.stdin.close()
