"""What has to be done to erase rows from a table as it is: which files and snapshots have them, or tell of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestContent, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType

from destination_datalake.files.scan import FileMatches
from destination_datalake.tables.iceberg.compatibility import incompatibility
from destination_datalake.tables.iceberg.erasure.column import IdColumn, MayHave
from destination_datalake.tables.iceberg.fence import is_fence
from destination_datalake.tables.iceberg.maintenance.deletion import is_garbage_collected
from destination_datalake.tables.iceberg.pyiceberg_internals import deleted_entries
from destination_datalake.tables.iceberg.schema import arrow_schema
from destination_datalake.tables.iceberg.snapshots.branch_files import BranchFiles, LiveFile, live_entries

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot

Dirty = Mapping[str, FileMatches]
"""The files that have rows with an id, by URI."""


class Unerasable(Exception):
    """Rows cannot be erased from the table. The text is a clause about it, and the remedy, without a full stop."""


@dataclass(frozen=True, slots=True)
class TablePlan:
    """A table's files that may have the rows, and its snapshots. Which files do have them, jobs find.

    `candidates` are files of any snapshot; `of_snapshot` names those of each. `heads` has the candidates of each branch
    as it is. Snapshots in `telling` tell an id by entries of files that were removed before; these manifests are
    `told_by`.
    """

    table: Table
    schema: pa.Schema
    candidates: Mapping[str, LiveFile]
    of_snapshot: Mapping[int, frozenset[str]]
    heads: Mapping[str, Mapping[str, LiveFile]]
    live: Mapping[str, tuple[LiveFile, ...]]
    """All files of each branch that has candidates."""
    telling: frozenset[int]
    told_by: frozenset[str]
    files: int
    """How many files all snapshots have."""

    @property
    def metadata(self) -> TableMetadata:
        """The table's metadata."""
        return self.table.metadata

    def tainted(self, dirty: Dirty) -> dict[int, Snapshot]:
        """Return the snapshots that refer to a file with the rows, or tell an id."""
        return {
            each.snapshot_id: each
            for each in self.metadata.snapshots
            if each.snapshot_id in self.telling or not self.of_snapshot[each.snapshot_id].isdisjoint(dirty)
        }

    def branches(self, dirty: Dirty) -> list[str]:
        """Return the branches whose head has the rows, or tells an id."""
        tainted = self.tainted(dirty)
        return sorted(
            name
            for name, ref in self.metadata.refs.items()
            if ref.snapshot_ref_type == SnapshotRefType.BRANCH and ref.snapshot_id in tainted
        )

    def tags(self, dirty: Dirty, kept_since: datetime | None = None) -> list[str]:
        """Return the tags of others on snapshots that have the rows or tell an id, but for kept ones."""
        tainted = self.tainted(dirty)
        return sorted(
            name
            for name, ref in self.metadata.refs.items()
            if ref.snapshot_ref_type == SnapshotRefType.TAG
            and not is_fence(name, ref)
            and ref.snapshot_id in tainted
            and not is_kept(tainted[ref.snapshot_id], kept_since)
        )


def is_kept(snapshot: Snapshot, since: datetime | None) -> bool:
    """Whether a snapshot is so young that it stays."""
    return since is not None and snapshot.timestamp_ms >= since.timestamp() * 1000


class Planner:
    """Plans one table, again and again: what was read of manifests is kept, as they are immutable."""

    def __init__(self, column: IdColumn) -> None:
        self._column = column
        self._reader = BranchFiles([column.field.field_id])
        self._may_have: dict[str, bool] = {}
        self._tells: dict[str, bool] = {}
        self._deletes: dict[str, tuple[LiveFile, ...]] = {}

    def plan(self, table: Table, may_have: MayHave) -> TablePlan:
        """Return the plan. Raises Unerasable, TableConflict, and what reading metadata raises."""
        metadata = table.metadata
        schema = _require(metadata)
        candidates: dict[str, LiveFile] = {}
        of_snapshot: dict[int, frozenset[str]] = {}
        telling, told_by, paths = set[int](), set[str](), set[str]()
        heads = {
            name: ref.snapshot_id
            for name, ref in metadata.refs.items()
            if ref.snapshot_ref_type == SnapshotRefType.BRANCH
        }
        live_of: dict[int, list[LiveFile]] = {}
        for snapshot in metadata.snapshots:
            live = self._reader.at(snapshot, table.io)
            manifests = snapshot.manifests(table.io)
            equality = [*self._equality_deletes(manifests, table.io)]
            if equality and snapshot.snapshot_id in heads.values():
                raise Unerasable(
                    "another engine has deleted rows from it by equality deletes, which may have the ids themselves. "
                    "Compact the table (in Athena OPTIMIZE, in Spark rewrite_data_files with delete-file-threshold 1)"
                )
            found = {each.path: each for each in (*live, *equality) if self._may_have_rows(each, may_have)}
            _require_parquet(found.values())
            candidates |= found
            of_snapshot[snapshot.snapshot_id] = frozenset(found)
            paths |= {each.path for each in live}
            if snapshot.snapshot_id in heads.values():
                live_of[snapshot.snapshot_id] = live
            if told := [each.manifest_path for each in manifests if self._tells_ids(each, may_have, table.io)]:
                telling.add(snapshot.snapshot_id)
                told_by |= {*told}
        live_of_heads = {name: tuple(live_of[id_]) for name, id_ in heads.items()}
        return TablePlan(
            table,
            schema,
            candidates,
            of_snapshot,
            {
                name: {each.path: each for each in live if each.path in candidates}
                for name, live in live_of_heads.items()
            },
            live_of_heads,
            frozenset(telling),
            frozenset(told_by),
            len(paths),
        )

    def _may_have_rows(self, file: LiveFile, may_have: MayHave) -> bool:
        if file.path not in self._may_have:
            self._may_have[file.path] = may_have.rows(file.entry)
        return self._may_have[file.path]

    def _equality_deletes(self, manifests: Iterable[ManifestFile], io: FileIO) -> Iterator[LiveFile]:
        for manifest in manifests:
            if manifest.content != ManifestContent.DELETES:
                continue
            if manifest.manifest_path not in self._deletes:
                self._deletes[manifest.manifest_path] = tuple(
                    LiveFile(entry.data_file, entry.sequence_number, manifest.manifest_path)
                    for entry in live_entries(manifest, io)
                    if entry.data_file.content == DataFileContent.EQUALITY_DELETES
                )
            yield from self._deletes[manifest.manifest_path]

    def _tells_ids(self, manifest: ManifestFile, may_have: MayHave, io: FileIO) -> bool:
        """Whether entries of removed files in a manifest have an id as a bound or a partition's value."""
        if manifest.deleted_files_count == 0:
            return False
        path = manifest.manifest_path
        if path not in self._tells:
            self._tells[path] = may_have.tells(entry.data_file for entry in deleted_entries(manifest, io))
        return self._tells[path]


def _require(metadata: TableMetadata) -> pa.Schema:
    if not is_garbage_collected(metadata):
        raise Unerasable(
            "its property gc.enabled is false, so its files may be shared with other tables, and none of them may be "
            "deleted. If they are not, remove the property"
        )
    if (reason := incompatibility(metadata)) is not None:
        raise Unerasable(reason)
    schema: Any = arrow_schema(metadata.schema())
    if schema is None:
        raise Unerasable(
            "it has columns of types that this connector does not write, so its files cannot be written again. Drop "
            "those columns"
        )
    return cast("pa.Schema", schema)


def _require_parquet(files: Iterable[LiveFile]) -> None:
    if any(each.entry.file_format != FileFormat.PARQUET for each in files):
        raise Unerasable(
            "some of its files are no Parquet files, which this connector does not read. Set its property "
            "write.format.default to parquet and rewrite them (in Spark rewrite_data_files with rewrite-all)"
        )
