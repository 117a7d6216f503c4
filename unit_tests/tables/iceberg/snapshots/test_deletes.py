"""Files to which delete files may apply are no candidates (Iceberg spec: Scan Planning)."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestEntry, ManifestEntryStatus
from pyiceberg.typedef import Record

from destination_datalake.tables.iceberg.pyiceberg_internals import delete_file
from destination_datalake.tables.iceberg.snapshots.branch_files import DeleteIndex, is_for_one

PATH = "s3://lake/orders/data/b.parquet"
POSITION, EQUALITY = DataFileContent.POSITION_DELETES, DataFileContent.EQUALITY_DELETES


def entry(content: DataFileContent, sequence: int, *partition: Any, spec: int = 0, **more: Any) -> ManifestEntry:
    file = DataFile.from_args(
        content=content, file_path=PATH, file_format=FileFormat.PARQUET, partition=Record(*partition), **more
    )
    file.spec_id = spec
    return ManifestEntry.from_args(
        status=ManifestEntryStatus.ADDED, snapshot_id=1, sequence_number=sequence, data_file=file
    )


def paths(lower: str, upper: str) -> dict[str, Any]:
    return {"lower_bounds": {2147483546: lower.encode()}, "upper_bounds": {2147483546: upper.encode()}}


@pytest.mark.parametrize(
    ("deletes", "may_apply"),
    [
        (entry(POSITION, 3, "eu"), False),
        (entry(POSITION, 4, "eu"), True),
        (entry(POSITION, 5, "us"), False),
        (entry(POSITION, 5, "eu", spec=1), False),
        (entry(POSITION, 5), True),
        (entry(POSITION, 5, "eu", **paths(PATH, PATH)), True),
        (entry(POSITION, 5, "eu", **paths("s3://lake/orders/data/c", "s3://lake/orders/data/d")), False),
        (entry(POSITION, 5, "eu", **paths("s3://lake/orders/data/a", "s3://lake/orders/data/c")), True),
        (entry(EQUALITY, 5, "eu", **paths("x", "y")), True),
        (entry(EQUALITY, 5, "us"), False),
        (entry(EQUALITY, 5, None, spec=2), True),
        (entry(EQUALITY, 5), True),
        (entry(EQUALITY, 3), False),
    ],
)
def test_a_delete_file_may_apply_to_older_files_of_its_partition(deletes: ManifestEntry, may_apply: bool) -> None:
    data = entry(DataFileContent.DATA, 4, "eu")

    assert bool(DeleteIndex([deletes]).applying(data.data_file, data.sequence_number)) is may_apply


def test_paths_that_writers_may_order_differently_are_not_compared() -> None:
    data = entry(DataFileContent.DATA, 4, "eu")
    data.data_file[1] = "s3://lake/orders/data/\U00010000.parquet"
    deletes = entry(POSITION, 5, "eu", **paths("\ufffe", "\uffff"))

    assert DeleteIndex([deletes]).applying(data.data_file, data.sequence_number)


def test_a_delete_file_that_refers_to_one_data_file_applies_to_no_other() -> None:
    """Of bounds that a writer has truncated nothing else follows (Iceberg spec: Data File Fields)."""
    data = entry(DataFileContent.DATA, 4, "eu")
    other = entry(DataFileContent.DATA, 4, "eu")
    other.data_file[1] = f"{PATH}.other"
    deletes = entry(POSITION, 5, "eu", **paths("s3://lake", "s3://lakf"))
    deletes.data_file = delete_file(
        content=POSITION,
        partition=Record("eu"),
        referenced_data_file=PATH,
        lower_bounds=deletes.data_file.lower_bounds,
        upper_bounds=deletes.data_file.upper_bounds,
    )
    deletes.data_file.spec_id = 0

    applying = [bool(DeleteIndex([deletes]).applying(each.data_file, each.sequence_number)) for each in (data, other)]

    assert applying == [True, False]
    assert is_for_one(deletes.data_file, PATH)
