"""Create the table for upserts. Its files are created once, cached on disk, and copied to each lake."""

from __future__ import annotations

import io
import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table import Table as PyIcebergTable
from pyiceberg.table import Transaction
from pyiceberg.table.refs import MAIN_BRANCH

from benchmarks.cloud import DATABASE, KEY, REGION, SECRET, Cloud
from benchmarks.commits.factory import opened, table_catalog
from benchmarks.dedup.rows import DAY, FIRST_CURSOR, rows
from benchmarks.dedup.workload import Upserts
from benchmarks.workload import CURSOR, cache_folder
from destination_datalake.aws.access import AccessKeys, AwsAccess
from destination_datalake.aws.objects import Upload
from destination_datalake.files.parquet import ParquetFileWriter, with_field_ids
from destination_datalake.files.plan import DataFile, Deduplication, FilePlan, RewriteTask, Rewritten
from destination_datalake.protocol.catalog import parse_catalog
from destination_datalake.schema.arrow import arrow_field
from destination_datalake.schema.columns import METADATA_COLUMNS
from destination_datalake.tables.iceberg.branches import unique_property
from destination_datalake.tables.iceberg.commit import TableOperations
from destination_datalake.tables.iceberg.dedup.plan import UNIQUE_BY, Definition
from destination_datalake.tables.iceberg.snapshots.change import Change, change_branch
from destination_datalake.tables.table import Committed, TableName

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

FILE_ROWS = 1_000_000

OPTIONS = {"numeric_types": "bigint/double"}
"""The options of all syncs to the table. With them, no column is widened."""


@dataclass(frozen=True)
class Filled:
    """A table in a lake: its data files, and copies of them on the local disk in the same order."""

    uris: tuple[str, ...]
    paths: tuple[Path, ...]


def fill(workload: Upserts, lake: Cloud) -> Filled:
    """Create the workload's table with its rows, each of which has a unique key."""
    numbers = np.arange(workload.table_rows)
    cursors = FIRST_CURSOR + numbers * DAY // workload.table_rows
    [name] = workload.stream_names
    filled = _filled(name, workload, numbers, cursors, lake)
    _declare_unique(TableName(DATABASE, name), workload.key, access_of(lake))
    return filled


def fill_with_upserts(workload: Upserts, lake: Cloud, name: str) -> Filled:
    """Create a table that contains the records of the workload."""
    numbers = np.fromiter(workload.numbers(), np.int64)
    cursors = FIRST_CURSOR + DAY + np.arange(len(numbers)) * DAY // len(numbers)
    return _filled(name, workload, numbers, cursors, lake)


def touched_bytes(workload: Upserts, filled: Filled) -> int:
    """Return the total size in bytes of the table's files with at least one row to update."""
    first_rows = np.cumsum([0, *(pq.read_metadata(path).num_rows for path in filled.paths)])
    numbers = np.fromiter(workload.numbers(), np.int64)
    per_file, _ = np.histogram(numbers, first_rows - 0.5)
    return sum(path.stat().st_size for path, updates in zip(filled.paths, per_file, strict=True) if updates)


def access_of(lake: Cloud) -> AwsAccess:
    """Return the connector's access to the emulated AWS of a lake."""
    return AwsAccess(REGION, AccessKeys(KEY, SECRET), lake.url)


def _filled(
    name: str, workload: Upserts, numbers: NDArray[np.int64], cursors: NDArray[np.int64], lake: Cloud
) -> Filled:
    access = access_of(lake)
    [stream] = parse_catalog(workload.appended())
    table = opened(stream, name, access, lake.url, OPTIONS)
    table.prepare()
    plan = table.plan()
    schema = schema_of(plan)
    paths = _kept(f"{name} {len(numbers)}", workload, numbers, cursors, schema)
    files = [uploaded(path, plan, access) for path in paths]
    assert table.commit(files, no_rewrite) == Committed()
    return Filled(tuple(file.uri for file in files), paths)


def _declare_unique(table: TableName, key: str, access: AwsAccess) -> None:
    names = Deduplication((key,), CURSOR)

    def declare(table: PyIcebergTable, transaction: Transaction) -> None:
        definition = Definition.named(names, table.schema())
        definition.write_to(UNIQUE_BY, transaction)
        change_branch(Change(), MAIN_BRANCH, table, transaction, unique_property(definition.key))

    TableOperations(table, table_catalog(access)).commit(declare)


def _kept(
    name: str, workload: Upserts, numbers: NDArray[np.int64], cursors: NDArray[np.int64], schema: pa.Schema
) -> tuple[Path, ...]:
    """Return files with the rows of these numbers, as the connector writes them. The first call creates the files."""
    text = schema.to_string(show_field_metadata=True).encode()
    sources = [Path(__file__), Path(__file__).with_name("rows.py"), Path(__file__).with_name("workload.py")]
    version = zlib.crc32(text + numbers.data + b"".join(path.read_bytes() for path in sources))
    folder = cache_folder() / f"{name.replace(' ', '_')}-{version:08x}"
    folder.mkdir(exist_ok=True)
    per_file = min(FILE_ROWS, -(-len(numbers) // 3))  # At least 3 files: as many as tasks run at a time on 2 cores.
    paths = []
    for begin in range(0, len(numbers), per_file):
        path = folder / f"{begin // per_file:05}.parquet"
        if not path.exists():
            chosen = slice(begin, begin + per_file)
            unfinished = path.with_suffix(f".{os.getpid()}")
            with unfinished.open("wb") as file:
                writer = ParquetFileWriter("ZSTD", schema, cast("Upload", file))
                for batch in rows(workload.shape, numbers[chosen], cursors[chosen], schema).to_batches(50_000):
                    writer.write(pa.Table.from_batches([batch]))
                writer.close()
            unfinished.rename(path)
        paths.append(path)
    return tuple(paths)


def schema_of(plan: FilePlan) -> pa.Schema:
    """Return the columns of a plan's files as an Arrow schema with field IDs."""
    fields = [arrow_field(field) for field in (*METADATA_COLUMNS, *plan.columns)]
    return with_field_ids(pa.schema(fields), plan.field_ids)


def uploaded(path: Path, plan: FilePlan, access: AwsAccess) -> DataFile:
    """Upload a file to the table's folder, and return it in the form that executors return."""
    bucket, _, folder = plan.folder.removeprefix("s3://").partition("/")
    key = f"{folder}/{path.name}"
    access.client("s3").put_object(Bucket=bucket, Key=key, Body=path.read_bytes())
    metadata, footer = pq.read_metadata(path), io.BytesIO()
    metadata.write_metadata_file(footer)
    uri = f"s3://{bucket}/{key}"
    return DataFile(uri, path.stat().st_size, metadata.num_rows, plan.columns, footer.getvalue(), None)


def no_rewrite(_tasks: Sequence[RewriteTask]) -> Sequence[Rewritten]:
    """Raise an error, because the table's columns must not be widened."""
    raise AssertionError("no column becomes wider")
