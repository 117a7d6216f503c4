"""The erasure of rows from one table: found, removed from all branches, and their history ended, in one commit.

The commit takes the files with the rows out of every branch, puts others without the rows in their place, and removes
the snapshots that refer to one. Each branch ends with a snapshot that says nothing of what was removed, so that no
manifest of the table has a bound or a partition that tells an id. Then what nothing refers to any more is deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import RemoveSnapshotRefUpdate, SetSnapshotRefUpdate

from destination_datalake.aws.objects import S3Address
from destination_datalake.files.dedup.tasks import Removal, RemoveTask, Versions
from destination_datalake.files.ids import search
from destination_datalake.files.jobs import results_or_raise
from destination_datalake.files.scan import (
    ColumnMatches,
    column_value_tasks,
    find_by_column_value,
    merge_column_matches,
)
from destination_datalake.tables.iceberg.branches import history, still_unique
from destination_datalake.tables.iceberg.commit import TableOperations
from destination_datalake.tables.iceberg.erasure.column import IdColumn, MayHave
from destination_datalake.tables.iceberg.erasure.plan import Dirty, Planner, TablePlan, Unerasable, is_kept
from destination_datalake.tables.iceberg.fence import is_fence, is_spent
from destination_datalake.tables.iceberg.maintenance.deletion import Deletion, MaintenanceSkipped
from destination_datalake.tables.iceberg.maintenance.expiry import (
    Expired,
    ExpiryPlan,
    delete_expired,
    remove_expired,
)
from destination_datalake.tables.iceberg.pyiceberg_internals import apply
from destination_datalake.tables.iceberg.rework import Removals, Rework, StalePlan, folder_of_new_file
from destination_datalake.tables.iceberg.snapshots.branch_files import LiveFile, unneeded_deletes
from destination_datalake.tables.iceberg.snapshots.change import Change, change_branch
from destination_datalake.tables.iceberg.snapshots.entries import Entries
from destination_datalake.tables.table import LOWEST_GENERATION_PROPERTY, TableConflict, TableName

if TYPE_CHECKING:
    from destination_datalake.files.ids import Ids
    from destination_datalake.files.plan import SourceFile, WrittenFile
    from destination_datalake.tables.catalog import TableCatalog
    from destination_datalake.tables.context import Executors

_ATTEMPTS = 20
"""Syncs commit every few seconds; each attempt searches what is new alone."""

ERASURE = "airbyte.erasure"
"""The property of snapshots that an erasure has made: the name of its request."""


@dataclass(frozen=True, slots=True)
class FileErased:
    """A file that had rows, how many, and what is in its place: None if it has no other rows, or no branch had it.

    `raw_ids` are as `FileMatches` has them.
    """

    uri: str
    rows: int
    new: str | None
    raw_ids: bytes | None = None


@dataclass(frozen=True, slots=True)
class ErasureRequest:
    """What is erased from one table. `few` are the ids as values, None if they are many; `keep` are days of history."""

    id: str
    ids: Ids
    few: Sequence[Any] | None
    codec: str
    keep: timedelta | None = None
    drop_tags: bool = False


@dataclass(frozen=True, slots=True)
class _Result:
    """What a commit has done, and how many snapshots it has expired."""

    expiry: ExpiryPlan
    snapshots: int
    erased: list[FileErased]


class TableErasure(Rework[TablePlan, _Result]):
    """The erasure from one table. `column` is as `table` had it; `executors` run the jobs."""

    def __init__(
        self, name: TableName, catalog: TableCatalog, executors: Executors, column: IdColumn, request: ErasureRequest
    ) -> None:
        super().__init__(
            TableOperations(name, catalog),
            _ATTEMPTS,
            f"Cannot erase rows from table {name}: other writers have changed its files at every attempt. Run the "
            "command again when there are fewer of them; it goes on where it was.",
        )
        self.name = name
        self.column = column
        self.request = request
        self.snapshots_expired = self.files_searched = self.files = 0
        self._executors = executors
        self._planner = Planner(column)
        self._located: dict[str, Any] = {}
        self._missing: set[str] = set()
        self._removals = Removals(executors)
        self._doom: Callable[[Sequence[str]], None]

    def find(self) -> tuple[TablePlan, Dirty] | None:
        """Return the table as it is, and the files of its snapshots that have the rows; None if there is no table.

        Raises TableConflict, TableBusy, ConnectorError, and errors of AWS.
        """

        def search(plan: TablePlan) -> tuple[TablePlan, Dirty]:
            self._locate(plan)
            return plan, self._dirty(plan)

        with suppress(NoSuchTableError):
            return self.with_plan(search)
        return None

    def require(self) -> None:
        """Raise TableConflict if a tag of others, or a file that cannot be written again, has the rows."""
        if (found := self.find()) is None:
            return
        plan, dirty = found
        self._require_no_tags(plan, dirty)
        for head in plan.heads.values():
            for path in head.keys() & dirty.keys():
                if (reason := dirty[path].unsuitable) is not None:
                    raise TableConflict(f"Cannot erase rows from table {self.name}: its file {path} {reason}.")

    def kept_snapshots(self, plan: TablePlan) -> set[int]:
        """Return the snapshots that are asked to be kept."""
        since = self._kept_since
        return {each.snapshot_id for each in plan.metadata.snapshots if is_kept(each, since)}

    def kept(self, plan: TablePlan, dirty: Dirty) -> set[str]:
        """Return the files that no other snapshot has than those."""
        kept, heads = self.kept_snapshots(plan), {path for head in plan.heads.values() for path in head}
        others = (files for id_, files in plan.of_snapshot.items() if id_ not in kept)
        return dirty.keys() - heads.union(*others)

    def run(self, doom: Callable[[Sequence[str]], None]) -> list[FileErased]:
        """Erase the rows from all snapshots; return the files that had any. Raises as `find` does.

        `doom` is called before the commit after which nothing refers to these objects: it remembers them for a run that
        goes on where this one was killed.
        """
        self._doom = doom
        try:
            committed = self.rework()
        except NoSuchTableError:
            return []
        return [] if committed is None else self._finish(committed[1])

    # --- what is there

    def plan(self, table: Table) -> TablePlan:
        """Return which files may have the rows. Raises TableConflict."""
        may_have = MayHave(self.column, self.request.ids, self.request.few, table.metadata)
        try:
            plan = self._planner.plan(table, may_have)
        except Unerasable as error:
            raise TableConflict(f"Cannot erase rows from table {self.name}: {error}.") from error
        self.files = plan.files
        return plan

    def sources(self, plan: TablePlan) -> frozenset[str]:
        """Return the URIs of the files that may have the rows, and of their deletes."""
        return frozenset(path for each in plan.candidates.values() for path in each.state)

    def _locate(self, plan: TablePlan) -> None:
        """Search the candidates that were not searched yet. Raises StalePlan if one was deleted meanwhile."""
        unknown = [each for path, each in plan.candidates.items() if path not in self._located]
        if unknown:
            found = self.located([each.source(plan.metadata) for each in unknown])
            if found.unreadable:
                raise TableConflict(
                    f"Cannot erase rows from table {self.name}: its file {found.unreadable[0]} cannot be read as the "
                    "table's metadata describes it, so whether it has such rows cannot be told."
                )
            self._located |= {each.path: found.files.get(each.path) for each in unknown}
            self._missing |= {*found.missing}
            self.files_searched += found.searched
        if gone := self._missing & plan.candidates.keys():
            for path in gone:
                del self._located[path]
            self._missing -= gone
            if self.operations.load().metadata_location != plan.table.metadata_location:
                raise StalePlan
            raise TableConflict(
                f"Cannot erase rows from table {self.name}: it refers to {min(gone)}, which does not exist. If the "
                "bucket keeps versions, remove the object's delete marker; else let a snapshot without it be the "
                "current one and expire the others."
            )

    def located(self, sources: Sequence[SourceFile]) -> ColumnMatches:
        """Return which rows of files of the table, or of its folder, have an id. Raises ConnectorError."""
        column, tasks = self.column, 4 * self._executors.parallelism()
        job = column_value_tasks(sources, column.arrow, column.path, self.operations.access, tasks)
        return merge_column_matches(
            results_or_raise(search(self._executors.run, find_by_column_value, self.request.ids, job))
        )

    def _dirty(self, plan: TablePlan) -> Dirty:
        return {path: rows for path in plan.candidates if (rows := self._located.get(path)) is not None}

    def _require_no_tags(self, plan: TablePlan, dirty: Dirty) -> None:
        if not self.request.drop_tags and (tags := plan.tags(dirty, self._kept_since)):
            raise TableConflict(
                f"Cannot erase rows from table {self.name}: {', '.join(tags)} "
                f"{'is a tag' if len(tags) == 1 else 'are tags'} of a snapshot that has them, and a tag cannot be "
                "changed. Drop what is not needed (in Spark ALTER TABLE ... DROP TAG), or run the command with "
                "--drop-tags."
            )

    @property
    def _kept_since(self) -> datetime | None:
        return None if self.request.keep is None else datetime.now(UTC) - self.request.keep

    # --- files without the rows

    def run_jobs(self, plan: TablePlan) -> None:
        """Search the files that may have the rows, and write those again that branches have."""
        self._locate(plan)
        dirty, metadata = self._dirty(plan), plan.metadata
        folder = f"{plan.table.location().rstrip('/')}/data"
        tasks: dict[Hashable, RemoveTask] = {}
        for head in plan.heads.values():
            for path in head.keys() & dirty.keys():
                file = head[path]
                if (key := _key(file, metadata)) not in self._removals.results:
                    tasks[key] = RemoveTask(
                        uuid4().hex,
                        (Removal(file.source(metadata), erased=dirty[path].rows),),
                        Versions((), None, self.column.field.field_id, self.column.field.field_id),
                        plan.schema,
                        folder_of_new_file(path, folder),
                        self.request.codec,
                        "copy_on_write",
                        self.operations.access,
                    )
        self._removals.run(tasks)

    # --- the commit

    def change(self, plan: TablePlan, table: Table, transaction: Transaction) -> _Result | None:
        """Replace the files in all branches, and remove the snapshots that have the rows or tell an id."""
        if not plan.candidates.keys() <= self._located.keys():
            raise StalePlan
        dirty = self._dirty(plan)
        self._require_no_tags(plan, dirty)
        tainted = plan.tainted(dirty)
        if not tainted:
            return None
        new: dict[str, str | None] = {}
        changes = {branch: self._change(plan, branch, dirty, new) for branch in plan.branches(dirty)}
        for branch, change in changes.items():
            self._end_branch(branch, change, plan.told_by, table, transaction)
        kept_since = self._kept_since
        gone = {id_: each for id_, each in tainted.items() if not is_kept(each, kept_since)}
        self._move_fences(gone.keys(), transaction)
        full = transaction.table_metadata
        kept = {each.snapshot_id for each in table.metadata.snapshots} | {
            each.snapshot_id for each in full.refs.values()
        }
        between = [each for each in full.snapshots if each.snapshot_id not in kept]
        expired = Expired((*gone, *(each.snapshot_id for each in between)), tuple(plan.tags(dirty, kept_since)))
        remove_expired(expired, full, transaction)
        expiry = ExpiryPlan(expired, full, transaction.table_metadata, table.metadata_location)
        erased = [FileErased(path, rows.count, new.get(path), rows.raw_ids) for path, rows in sorted(dirty.items())]
        self._doom([*dirty, *_metadata_of([*gone.values(), *between], table)])
        return _Result(expiry, len(gone), erased)

    def unused(self, outcome: _Result | None) -> list[WrittenFile]:
        """Return the new files that are in no table."""
        used = {each.new for each in outcome.erased} if outcome is not None else set()
        return [file for file in self._removals.written if file.uri not in used]

    def _change(self, plan: TablePlan, branch: str, dirty: Dirty, new: dict[str, str | None]) -> Change:
        """Return what a branch loses and gets; add what is in the place of each file to `new`.

        Raises StalePlan if a file was not written again yet.
        """
        entries, head = Entries(plan.metadata), plan.heads[branch]
        losing = [head[path] for path in sorted(head.keys() & dirty.keys())]
        added = list[IcebergFile]()
        for file in losing:
            result = self._removals.of(_key(file, plan.metadata))
            new[file.path] = None
            if result.rewritten is not None:
                entry = entries.of_compacted(result.rewritten, file.entry, file.entry.sort_order_id)
                if entry is None:
                    raise StalePlan
                added.append(entry)
                new[file.path] = result.rewritten.uri
        removed = [*(each.entry for each in losing), *unneeded_deletes(losing, plan.live[branch])]
        return Change(added, removed, frozenset(each.manifest for each in losing))

    def _end_branch(
        self, branch: str, change: Change, told_by: frozenset[str], table: Table, transaction: Transaction
    ) -> None:
        """Add two snapshots: one that removes, and one that does not say what was removed, which is to stay."""
        says = {**_says_generation(branch, table.metadata), **still_unique(branch, table.metadata)}
        properties = {**says, ERASURE: self.request.id}
        if change.removed:
            change_branch(change, branch, table, transaction, properties)
        renewed = Change(same_rows=True, renewed=told_by)
        change_branch(renewed, branch, table, transaction, properties)

    def _move_fences(self, gone: Iterable[int], transaction: Transaction) -> None:
        """Let the tags that tell states of the table apart keep none of the snapshots that are to go."""
        metadata = transaction.table_metadata
        for name, ref in metadata.refs.items():
            if not is_fence(name, ref) or ref.snapshot_id not in set(gone):
                continue
            if is_spent(name, ref):
                apply(transaction, (RemoveSnapshotRefUpdate.model_validate({"ref-name": name}),))
                continue
            head = metadata.refs[MAIN_BRANCH].snapshot_id
            moved = {
                "ref-name": name,
                "type": ref.snapshot_ref_type,
                "snapshot-id": head,
                "max-ref-age-ms": ref.max_ref_age_ms,
            }
            apply(transaction, (SetSnapshotRefUpdate.model_validate(moved),))

    # --- afterwards

    def _finish(self, result: _Result) -> list[FileErased]:
        """Delete what nothing refers to any more. Raises Incomplete, Disagreement, and errors of AWS."""
        self.snapshots_expired += result.snapshots
        s3 = self.operations.access.client("s3")
        folder = S3Address.parse(result.expiry.before.location.rstrip("/"))
        with suppress(MaintenanceSkipped):  # Another table has taken its place.
            delete_expired(result.expiry, self.operations, Deletion(s3, folder), Deletion(s3, folder))
        return result.erased


def _key(file: LiveFile, metadata: TableMetadata) -> Hashable:
    """Return what a removal depends on: the file, its deletes, and the table's schema."""
    return file.state, metadata.current_schema_id


def _says_generation(branch: str, metadata: TableMetadata) -> dict[str, str]:
    """Return what the latest snapshot of a branch that does so says of the lowest generation of its rows."""
    for snapshot in history(branch, metadata):
        if snapshot.summary is not None:
            said = snapshot.summary.additional_properties.get(LOWEST_GENERATION_PROPERTY)
            if said is not None:
                return {LOWEST_GENERATION_PROPERTY: said}
    return {}


def _metadata_of(snapshots: Iterable[Any], table: Table) -> Iterator[str]:
    """Yield the manifest lists and manifests of snapshots, and their statistics."""
    ids = set()
    seen: set[str] = set()
    for snapshot in snapshots:
        ids.add(snapshot.snapshot_id)
        yield snapshot.manifest_list
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path not in seen:
                seen.add(manifest.manifest_path)
                yield manifest.manifest_path
    for each in (*table.metadata.statistics, *table.metadata.partition_statistics):
        if each.snapshot_id in ids:
            yield each.statistics_path
