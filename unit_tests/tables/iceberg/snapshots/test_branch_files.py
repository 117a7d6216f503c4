"""The live files of a branch: each manifest is read once, completely, and each file has its delete files."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record

from destination_datalake.tables.iceberg.commit import TableOperations
from destination_datalake.tables.iceberg.pyiceberg_internals import delete_file
from destination_datalake.tables.iceberg.snapshots.files import (
    BranchFiles,
    DeleteIndex,
    LiveFile,
    applies_only_to,
    live_entries,
)
from destination_datalake.tables.table import TableConflict
from unit_tests.cloud import during, ungoverned
from unit_tests.tables.iceberg.lake import Lake
from unit_tests.tables.iceberg.snapshots.test_merging import FAN_IN, opened

pytestmark = pytest.mark.share(3)

PATH = "s3://lake/orders/data/b.parquet"
POSITION, EQUALITY = DataFileContent.POSITION_DELETES, DataFileContent.EQUALITY_DELETES


def entry(content: DataFileContent, sequence: int, *partition: Any, spec: int = 0, **more: Any) -> LiveFile:
    file = DataFile.from_args(
        content=content, file_path=PATH, file_format=FileFormat.PARQUET, partition=Record(*partition), **more
    )
    file.spec_id = spec
    return LiveFile(file, sequence, "s3://lake/orders/metadata/m.avro")


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
def test_a_delete_file_may_apply_to_older_files_of_its_partition(deletes: LiveFile, may_apply: bool) -> None:
    data = entry(DataFileContent.DATA, 4, "eu")

    assert bool(DeleteIndex([deletes]).applying(data.entry, data.sequence)) is may_apply


def test_paths_that_writers_may_order_differently_are_not_compared() -> None:
    data = entry(DataFileContent.DATA, 4, "eu")
    data.entry[1] = "s3://lake/orders/data/\U00010000.parquet"
    deletes = entry(POSITION, 5, "eu", **paths("\ufffe", "\uffff"))

    assert DeleteIndex([deletes]).applying(data.entry, data.sequence)


def test_a_delete_file_that_refers_to_one_data_file_applies_to_no_other() -> None:
    """Of bounds that a writer has truncated nothing else follows (Iceberg spec: Data File Fields)."""
    data = entry(DataFileContent.DATA, 4, "eu")
    other_data = entry(DataFileContent.DATA, 4, "eu")
    other_data.entry[1] = f"{PATH}.other"
    deletes = entry(POSITION, 5, "eu", **paths("s3://lake", "s3://lakf"))
    referring = delete_file(
        content=POSITION,
        partition=Record("eu"),
        referenced_data_file=PATH,
        lower_bounds=deletes.entry.lower_bounds,
        upper_bounds=deletes.entry.upper_bounds,
    )
    referring.spec_id = 0
    deletes = replace(deletes, entry=referring)

    applying = [bool(DeleteIndex([deletes]).applying(file.entry, file.sequence)) for file in (data, other_data)]

    assert applying == [True, False]
    assert applies_only_to(deletes.entry, PATH)


def test_a_manifest_is_read_once_however_often_live_files_are_asked_for(lake: Lake) -> None:
    """Of other writers: what this process has written it need not read."""
    lake.open()
    for number in range(3):
        lake.append(number)
    read: list[str] = []

    def notice(params: Any, **_: Any) -> None:
        read.append(params["url_path"].rpartition("/")[2])

    def record_counts() -> list[int]:
        table = TableOperations(lake.name, ungoverned(lake.access)).load()
        read.clear()
        return sorted(file.entry.record_count for file in reader.on_branch(table, "main"))

    reader = BranchFiles()
    with during(lake.access, "before-call.s3.GetObject", notice):
        assert (record_counts(), len(manifests_of(read))) == ([1, 1, 1], 3)
        assert (record_counts(), len(manifests_of(read))) == ([1, 1, 1], 0)
        lake.append(4, 5)
        assert (record_counts(), len(manifests_of(read))) == ([1, 1, 1, 2], 1)


def manifests_of(names: list[str]) -> list[str]:
    """Return the names of manifests among those of objects: a manifest list's begins with "snap-"."""
    return [name for name in names if name.endswith(".avro") and not name.startswith("snap-")]


EMPTY_BLOCK = b"\x00\x04\x03\x00"
"""No objects, in two bytes of deflate (Avro spec: Object Container Files). PyIceberg takes it for the file's end."""


def test_an_empty_block_is_not_the_end_of_a_manifest(lake: Lake) -> None:
    opened(lake)
    lake.append(1)
    [foreign_manifest] = lake.manifests()
    header, marker, blocks = parts(lake.read_object(foreign_manifest.manifest_path))
    lake.write_object(foreign_manifest.manifest_path, header + marker + EMPTY_BLOCK + marker + blocks)

    assert len(live_entries(foreign_manifest, lake.load().io)) == 1


def test_a_manifest_that_lacks_a_live_file_is_not_merged(lake: Lake) -> None:
    syncing = opened(lake)
    for id_ in range(FAN_IN):
        lake.append(id_)
    [foreign_manifest, *_] = lake.manifests()
    body = lake.read_object(foreign_manifest.manifest_path)
    header, marker, _ = parts(body)
    lake.write_object(foreign_manifest.manifest_path, header + marker)

    lake.commit(syncing, 10)

    assert foreign_manifest in lake.manifests()
    with pytest.raises(TableConflict, match="0 of 1 live files"):
        live_entries(foreign_manifest, lake.load().io)
    lake.write_object(foreign_manifest.manifest_path, body)
    assert lake.ids() == [*range(FAN_IN), 10]


def test_a_manifest_list_that_is_cut_off_is_not_committed_upon(lake: Lake) -> None:
    """Its other manifests, and their rows, would be missing in the next snapshot."""
    syncing = opened(lake)
    for id_ in range(2):
        lake.append(id_)
    snapshot = lake.load().current_snapshot()
    assert snapshot is not None
    body = lake.read_object(snapshot.manifest_list)
    lake.write_object(snapshot.manifest_list, body[:-20])

    with pytest.raises(TableConflict, match="cannot be read"):
        lake.commit(syncing, 10)

    lake.write_object(snapshot.manifest_list, body)
    assert lake.ids() == [0, 1]


def parts(body: bytes) -> tuple[bytes, bytes, bytes]:
    """Return the header of an Avro file, the marker at its end, and the blocks."""
    marker = body[-16:]
    header, blocks = body.split(marker, 1)
    return header, marker, blocks
