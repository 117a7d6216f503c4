"""What a branch's manifests list, and merges as the driver commits them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.table.snapshots import Summary

from destination_datalake.files.plan import WrittenFile
from destination_datalake.tables.iceberg.branches import forget_branches
from destination_datalake.tables.iceberg.snapshots.branch_files import live_entries
from destination_datalake.tables.iceberg.snapshots.change import Change, change_branch
from destination_datalake.tables.iceberg.snapshots.entries import position_deletes_entry
from unit_tests.tables.iceberg.lake import Lake


def manifests(lake: Lake, branch: str = "main") -> list[ManifestFile]:
    table = lake.load()
    snapshot = table.metadata.snapshot_by_id(table.metadata.refs[branch].snapshot_id)
    assert snapshot is not None
    return snapshot.manifests(table.io)


def live(lake: Lake, content: ManifestContent = ManifestContent.DATA, branch: str = "main") -> list[ManifestEntry]:
    return [
        entry
        for each in manifests(lake, branch)
        if each.content == content
        for entry in live_entries(each, lake.load().io)
    ]


def files(lake: Lake, branch: str = "main") -> list[IcebergFile]:
    return [entry.data_file for entry in live(lake, branch=branch)]


def deletes(lake: Lake) -> list[IcebergFile]:
    return [entry.data_file for entry in live(lake, ManifestContent.DELETES)]


def summary(lake: Lake) -> Summary:
    snapshot = lake.load().current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    return snapshot.summary


def position_deletes(lake: Lake, of: IcebergFile, positions: Sequence[int]) -> IcebergFile:
    """Write a file of position deletes; return its entry."""
    fields: list[pa.Field[Any]] = [
        pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": "2147483546"}),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": "2147483545"}),
    ]
    body = io.BytesIO()
    pq.write_table(pa.table({"file_path": [of.file_path] * len(positions), "pos": positions}, pa.schema(fields)), body)
    uri = lake.put(body.getvalue(), "deletes/")
    return position_deletes_entry(WrittenFile(uri, len(body.getvalue()), len(positions), b""), of)


def merge(lake: Lake, change: Change, branch: str = "main", without_branch: str | None = None) -> None:
    """Change a branch in one snapshot; in the same commit forget another one, of what was pending."""
    table = lake.load()
    with table.transaction() as transaction:
        change_branch(change, branch, table, transaction, {"airbyte.sync-id": "7"})
        if without_branch is not None:
            forget_branches([without_branch], transaction)
