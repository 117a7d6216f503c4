"""The plan of an erasure for one state of a table: the files and snapshots that may have rows with an id."""

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
from destination_datalake.tables.iceberg.erasure.column import IdColumn, IdFilter
from destination_datalake.tables.iceberg.fence import is_fence
from destination_datalake.tables.iceberg.maintenance.deletion import is_garbage_collected
from destination_datalake.tables.iceberg.pyiceberg_internals import deleted_entries
from destination_datalake.tables.iceberg.schema import arrow_schema
from destination_datalake.tables.iceberg.snapshots.branch_files import BranchFiles, LiveFile, live_entries

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot

Dirty = Mapping[str, FileMatches]
"""The rows with an id, by the URI of their file."""


class Unerasable(Exception):
    """Rows cannot be erased from the table. The message is a clause about it, with the remedy, without a full stop."""


@dataclass(frozen=True, slots=True)
class TablePlan:
    """The files of a table that may have the rows, and its snapshots. Jobs search the files.

    `candidates` are files of any snapshot; `of_snapshot` has their paths by snapshot. `heads` has the candidates on
    each branch. Snapshots in `revealing` contain an id in entries of files that were removed earlier; these entries are
    in `revealing_manifests`.
    """

    table: Table
    schema: pa.Schema
    candidates: Mapping[str, LiveFile]
    of_snapshot: Mapping[int, frozenset[str]]
    heads: Mapping[str, Mapping[str, LiveFile]]
    live: Mapping[str, tuple[LiveFile, ...]]
    """All files of each branch that has candidates."""
    revealing: frozenset[int]
    revealing_manifests: frozenset[str]
    files: int
    """The number of files in all snapshots."""

    @property
    def metadata(self) -> TableMetadata:
        """The table's metadata."""
        return self.table.metadata

    def snapshots_with_rows(self, dirty: Dirty) -> dict[int, Snapshot]:
        """Return the snapshots that refer to a file with the rows, or contain an id."""
        return {
            snapshot.snapshot_id: snapshot
            for snapshot in self.metadata.snapshots
            if snapshot.snapshot_id in self.revealing or not self.of_snapshot[snapshot.snapshot_id].isdisjoint(dirty)
        }

    def branches(self, dirty: Dirty) -> list[str]:
        """Return the branches whose head has the rows, or contains an id."""
        snapshots_with_rows = self.snapshots_with_rows(dirty)
        return sorted(
            name
            for name, ref in self.metadata.refs.items()
            if ref.snapshot_ref_type == SnapshotRefType.BRANCH and ref.snapshot_id in snapshots_with_rows
        )

    def tags(self, dirty: Dirty, kept_since: datetime | None = None) -> list[str]:
        """Return the tags, without fence tags, on snapshots that have the rows or contain an id and are not kept."""
        snapshots_with_rows = self.snapshots_with_rows(dirty)
        return sorted(
            name
            for name, ref in self.metadata.refs.items()
            if ref.snapshot_ref_type == SnapshotRefType.TAG
            and not is_fence(name, ref)
            and ref.snapshot_id in snapshots_with_rows
            and not is_kept(snapshots_with_rows[ref.snapshot_id], kept_since)
        )


def is_kept(snapshot: Snapshot, since: datetime | None) -> bool:
    """Whether a snapshot is recent enough to be kept."""
    return since is not None and snapshot.timestamp_ms >= since.timestamp() * 1000


class Planner:
    """Plans an erasure, repeatedly. Entries of manifests are cached, as manifests are immutable."""

    def __init__(self, column: IdColumn) -> None:
        self._column = column
        self._reader = BranchFiles([column.field.field_id])
        self._may_have: dict[str, bool] = {}
        self._reveals: dict[str, bool] = {}
        self._deletes: dict[str, tuple[LiveFile, ...]] = {}

    def plan(self, table: Table, id_filter: IdFilter) -> TablePlan:
        """Return the plan. Raises Unerasable, TableConflict, and errors of reading metadata."""
        metadata = table.metadata
        schema = _require(metadata)
        candidates: dict[str, LiveFile] = {}
        of_snapshot: dict[int, frozenset[str]] = {}
        revealing, revealing_manifests, paths = set[int](), set[str](), set[str]()
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
                    "another engine has deleted rows from it by equality deletes, which may contain the ids. "
                    "Compact the table (in Athena OPTIMIZE, in Spark rewrite_data_files with delete-file-threshold 1)"
                )
            with_rows = {file.path: file for file in (*live, *equality) if self._may_have_rows(file, id_filter)}
            _require_parquet(with_rows.values())
            candidates |= with_rows
            of_snapshot[snapshot.snapshot_id] = frozenset(with_rows)
            paths |= {file.path for file in live}
            if snapshot.snapshot_id in heads.values():
                live_of[snapshot.snapshot_id] = live
            if revealing_now := [
                manifest.manifest_path for manifest in manifests if self._reveals_id(manifest, id_filter, table.io)
            ]:
                revealing.add(snapshot.snapshot_id)
                revealing_manifests |= {*revealing_now}
        live_of_heads = {name: tuple(live_of[id_]) for name, id_ in heads.items()}
        return TablePlan(
            table,
            schema,
            candidates,
            of_snapshot,
            {
                name: {file.path: file for file in live if file.path in candidates}
                for name, live in live_of_heads.items()
            },
            live_of_heads,
            frozenset(revealing),
            frozenset(revealing_manifests),
            len(paths),
        )

    def _may_have_rows(self, file: LiveFile, id_filter: IdFilter) -> bool:
        if file.path not in self._may_have:
            self._may_have[file.path] = id_filter.rows(file.entry)
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

    def _reveals_id(self, manifest: ManifestFile, id_filter: IdFilter, io: FileIO) -> bool:
        """Whether entries of removed files in a manifest have an id as a bound or as a partition value."""
        if manifest.deleted_files_count == 0:
            return False
        path = manifest.manifest_path
        if path not in self._reveals:
            self._reveals[path] = id_filter.reveals_id(entry.data_file for entry in deleted_entries(manifest, io))
        return self._reveals[path]


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
    if any(file.entry.file_format != FileFormat.PARQUET for file in files):
        raise Unerasable(
            "some of its files are not Parquet files, which this connector does not read. Set its property "
            "write.format.default to parquet and rewrite them (in Spark rewrite_data_files with rewrite-all)"
        )
