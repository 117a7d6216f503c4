"""What the driver keeps of a table's files while it merges."""

from __future__ import annotations

import tracemalloc

from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.typedef import Record

from destination_datalake.schema.types import Field, String
from destination_datalake.tables.iceberg.snapshots.branch_files import BranchFiles
from destination_datalake.tables.iceberg.snapshots.change import Change, change_branch
from unit_tests.tables.iceberg.lake import Lake

FILES = 300
COLUMNS = 30


def test_of_each_file_only_the_metrics_of_the_key_are_kept(lake: Lake) -> None:
    """So 10,000 files take 20 MB, however many columns they have. All entries of a manifest are there for a moment."""
    lake.open(columns=[Field(name, name, String()) for name in (f"c{number}" for number in range(COLUMNS))], key=["c0"])
    table = lake.load()
    ids = [field.field_id for field in table.schema().fields]
    with table.transaction() as transaction:
        change_branch(Change([_file(number, ids) for number in range(FILES)]), "main", table, transaction)
    table = lake.load()
    files = BranchFiles([table.schema().find_field("c0").field_id])

    tracemalloc.start()
    found = files.of(table, "main")
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert len(found) == FILES
    assert kept < FILES * 3_000
    assert peak < FILES * 40_000
    assert {len(each.entry.lower_bounds) for each in found} == {1}


def _file(number: int, ids: list[int]) -> IcebergFile:
    file = IcebergFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"s3://lake/orders/data/{number:032x}.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=1_000_000,
        file_size_in_bytes=128_000_000,
        column_sizes=dict.fromkeys(ids, 1_000_000),
        value_counts=dict.fromkeys(ids, 1_000_000),
        null_value_counts=dict.fromkeys(ids, 0),
        nan_value_counts={},
        lower_bounds=dict.fromkeys(ids, b"%016d" % number),
        upper_bounds=dict.fromkeys(ids, b"%016d" % (number + 1)),
    )
    file.spec_id = 0
    return file
