"""Live files are found by reading each manifest once."""

from __future__ import annotations

from typing import Any

from destination_datalake.tables.iceberg.commit import TableOperations
from destination_datalake.tables.iceberg.snapshots.branch_files import BranchFiles
from unit_tests.tables.iceberg.lake import Lake


def test_a_manifest_is_read_once_however_often_live_files_are_asked_for(lake: Lake) -> None:
    """Of other writers: what this process has written it need not read."""
    lake.open()
    for number in range(3):
        lake.append(number)
    read: list[str] = []

    def notice(params: Any, **_: Any) -> None:
        read.append(params["url_path"].rpartition("/")[2])

    def found() -> list[int]:
        table = TableOperations(lake.name, lake.access).load()
        read.clear()
        return sorted(each.entry.record_count for each in reader.of(table, "main"))

    reader, events = BranchFiles(), lake.access.client("s3").meta.events
    events.register("before-call.s3.GetObject", notice)
    assert (found(), len(manifests_of(read))) == ([1, 1, 1], 3)
    assert (found(), len(manifests_of(read))) == ([1, 1, 1], 0)
    lake.append(4, 5)
    assert (found(), len(manifests_of(read))) == ([1, 1, 1, 2], 1)
    events.unregister("before-call.s3.GetObject", notice)


def manifests_of(names: list[str]) -> list[str]:
    """Return the names of manifests among those of objects: a manifest list's begins with "snap-"."""
    return [name for name in names if name.endswith(".avro") and not name.startswith("snap-")]
