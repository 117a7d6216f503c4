"""Erases the rows with given IDs from one table: from all branches, and from the table's history.

One commit replaces the files that contain such rows on every branch, and removes the snapshots that refer to such a
file. The manifests of a branch's new head contain none of the IDs as a bound or partition value of a removed file.
After the commit, the erasure deletes the files to which no snapshot refers any more. A request can keep recent
snapshots. Such snapshots stay in the table with their files, even if they contain rows to erase.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import compress
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import RemoveSnapshotRefUpdate, SetSnapshotRefUpdate

from destination_datalake.aws.errors import explain
from destination_datalake.aws.objects import S3Address
from destination_datalake.files.dedup.tasks import Removal, RemoveTask, Versions
from destination_datalake.files.ids import search
from destination_datalake.files.jobs import results_or_raise
from destination_datalake.files.plan import UNKNOWN, SourceFile
from destination_datalake.files.scan import (
    ColumnMatches,
    column_value_tasks,
    find_by_column_value,
    merge_column_matches,
)
from destination_datalake.tables.iceberg.branches import history, inherited_uniqueness, summary_value
from destination_datalake.tables.iceberg.commit import TableOperations, is_fence, is_unneeded_fence
from destination_datalake.tables.iceberg.erasure.plan import (
    IdColumn,
    IdFilter,
    MatchesByFile,
    Planner,
    TablePlan,
    is_kept,
    manifest_reveals_id,
)
from destination_datalake.tables.iceberg.maintenance.cleanup import (
    Expired,
    ExpiryPlan,
    add_latest,
    delete_expired,
    is_of_a_table,
    list_pages,
    remove_expired,
    table_folder,
    unreferenced_files,
)
from destination_datalake.tables.iceberg.maintenance.references import (
    Deletion,
    File,
    MaintenanceSkipped,
    References,
    is_inside,
    read_concurrently,
)
from destination_datalake.tables.iceberg.pyiceberg_internals import apply
from destination_datalake.tables.iceberg.rework import Removals, Rework, StalePlan, folder_of_new_file
from destination_datalake.tables.iceberg.snapshots.change import Change, change_branch
from destination_datalake.tables.iceberg.snapshots.files import Entries, LiveFile, unneeded_deletes
from destination_datalake.tables.table import LOWEST_GENERATION_PROPERTY, TableConflict, TableName

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import ObjectVersionTypeDef

    from destination_datalake.files.ids import Ids
    from destination_datalake.files.plan import WrittenFile
    from destination_datalake.tables.catalog import TableCatalog
    from destination_datalake.tables.context import Executors


_ATTEMPTS = 20
"""Maximum number of attempts. Syncs may commit every few seconds, so an erasure may conflict with many commits.

A retry searches only the files that were not searched before.
"""

ERASURE = "airbyte.erasure"
"""Summary property of a snapshot that an erasure has added. The value is the ID of the erasure request."""


@dataclass(frozen=True, slots=True)
class FileErased:
    """A file that contained rows to erase.

    `rows` is the number of these rows. `new` is the URI of the file that replaces this file. If all rows were erased,
    or if the file belonged to no branch's head snapshot, `new` is None. `raw_ids` contains the row IDs of the erased
    rows (see `FileMatches`).
    """

    uri: str
    rows: int
    new: str | None
    raw_ids: bytes | None = None


@dataclass(frozen=True, slots=True)
class ErasureRequest:
    """A request to erase the rows with the given IDs from one table.

    `few` contains the IDs as Python values, or is None if there are too many. `codec` is the Parquet compression codec
    of rewritten files. The erasure keeps snapshots that are younger than `keep`. If a tag refers to another snapshot
    with such rows, the erasure drops the tag if `drop_tags` is set, and otherwise raises TableConflict.
    """

    id: str
    ids: Ids
    few: Sequence[Any] | None
    codec: str
    keep: timedelta | None = None
    drop_tags: bool = False


@dataclass(frozen=True, slots=True)
class _Result:
    """The result of an erasure's commit. `snapshots` is the number of snapshots that the commit has expired."""

    expiry: ExpiryPlan
    snapshots: int
    erased: list[FileErased]


class TableErasure(Rework[TablePlan, _Result]):
    """Erases rows from one table. `column` is the ID column as defined by the schema when the erasure begins."""

    def __init__(
        self, name: TableName, catalog: TableCatalog, executors: Executors, column: IdColumn, request: ErasureRequest
    ) -> None:
        super().__init__(
            TableOperations(name, catalog),
            _ATTEMPTS,
            f"Cannot erase rows from table {name}",
            "Run the command again when fewer writers change the table. The command then continues its work.",
        )
        self.name = name
        self.column = column
        self.request = request
        self.snapshots_expired = self.files_searched = self.files = 0
        self._executors = executors
        self._planner = Planner(column)
        self._located: dict[str, Any] = {}
        self._removals = Removals(executors)
        self._mark_for_deletion: Callable[[Sequence[str], S3Address], None]

    def find(self) -> tuple[TablePlan, MatchesByFile] | None:
        """Search the files of all snapshots for rows to erase, without changing the table.

        Return the plan and the matching rows, or None if the table does not exist. Raises TableConflict, TableBusy,
        ConnectorError, and AWS errors.
        """

        def search(plan: TablePlan) -> tuple[TablePlan, MatchesByFile]:
            self._locate(plan)
            return plan, self._matches(plan)

        with suppress(NoSuchTableError):
            return self.with_plan(search)
        return None

    def require(self) -> None:
        """Raise TableConflict if the erasure is impossible.

        Either a tag that must not be dropped refers to a snapshot with rows to erase, or a file that contains such rows
        cannot be rewritten or removed.
        """
        if (search := self.find()) is None:
            return
        plan, matches = search
        self._require_no_tags(plan, matches)
        self._require_no_deleted_rows(plan, matches)
        for head in plan.heads.values():
            for path in head.keys() & matches.keys():
                if (reason := matches[path].unsuitable) is not None:
                    raise TableConflict(f"Cannot erase rows from table {self.name}: its file {path} {reason}.")

    def kept_snapshots(self, plan: TablePlan) -> set[int]:
        """Return the IDs of the snapshots that are younger than the request's `keep`, so the erasure keeps them."""
        since = self._kept_since
        return {snapshot.snapshot_id for snapshot in plan.metadata.snapshots if is_kept(snapshot, since)}

    def kept(self, plan: TablePlan, matches: MatchesByFile) -> set[str]:
        """Return the URIs of the files with matching rows that stay, because only kept snapshots refer to them.

        Leaves out files in the head snapshot of a branch, because the erasure replaces these files.
        """
        kept_ids, heads = self.kept_snapshots(plan), {path for head in plan.heads.values() for path in head}
        other_snapshot_files = (files for id_, files in plan.of_snapshot.items() if id_ not in kept_ids)
        return matches.keys() - heads.union(*other_snapshot_files)

    def run(self, mark_for_deletion: Callable[[Sequence[str], S3Address], None]) -> list[FileErased]:
        """Erase the rows from all branches, and from all snapshots that are not kept.

        Return the files that contained the rows. Before the commit, this method calls `mark_for_deletion` with the URIs
        of the objects that the commit makes unreferenced, and with the table's folder. `mark_for_deletion` must record
        the URIs, so that a later run can delete the objects if this run is killed.

        Raises the same errors as `find`. Also raises CommitStateUnknown if the result of the commit is unknown, and
        Incomplete or Disagreement if the deletion of files after the commit fails.
        """
        self._mark_for_deletion = mark_for_deletion
        try:
            committed = self.rework()
        except NoSuchTableError:
            return []
        return [] if committed is None else self._finish(committed[1])

    # --- the search

    def plan(self, table: Table) -> TablePlan:
        """Return the plan for the present state of the table. Raises the same errors as `Planner.plan`."""
        id_filter = IdFilter(self.column, self.request.ids, self.request.few, table.metadata)
        plan = self._planner.plan(table, id_filter)
        self.files = plan.files
        return plan

    def sources(self, plan: TablePlan) -> frozenset[str]:
        """Return the URIs of the files that may contain rows to erase, and of the delete files of these files."""
        return frozenset(path for file in plan.candidates.values() for path in file.state)

    def _locate(self, plan: TablePlan) -> None:
        """Search the candidate files of the plan that have not been searched yet.

        Raises StalePlan if a candidate file is missing and the table has changed since the plan was made. Raises
        TableConflict if a file is missing although the table is unchanged, or if a file is unreadable.
        """
        unknown = [file for path, file in plan.candidates.items() if path not in self._located]
        if not unknown:
            return
        matches = self.located([file.source(plan.metadata) for file in unknown])
        if matches.unreadable:
            raise TableConflict(
                f"Cannot erase rows from table {self.name}: its file {matches.unreadable[0]} does not match the "
                "table's metadata, so the connector cannot determine whether the file contains such rows. Rewrite "
                "this file with another engine, and run the command again."
            )
        missing = {*matches.missing}
        self._located |= {file.path: matches.files.get(file.path) for file in unknown if file.path not in missing}
        self.files_searched += matches.searched
        if missing:
            # Another writer may have replaced and deleted the file, so plan again.
            if self.operations.load().metadata_location != plan.table.metadata_location:
                raise StalePlan
            raise TableConflict(
                f"Cannot erase rows from table {self.name}: it refers to {min(missing)}, which does not exist. If the "
                "bucket has versioning, remove the object's delete marker. Otherwise, roll the table back to a "
                "snapshot that does not refer to this object, and expire the other snapshots."
            )

    def located(self, sources: Sequence[SourceFile]) -> ColumnMatches:
        """Search files of the table or its folder for the IDs, and return the matching rows.

        Raises ConnectorError if a job fails.
        """
        column, tasks = self.column, 4 * self._executors.parallelism()
        job = column_value_tasks(sources, column.arrow, column.path, self.operations.access, tasks)
        return merge_column_matches(
            results_or_raise(search(self._executors.run, find_by_column_value, self.request.ids, job))
        )

    def _matches(self, plan: TablePlan) -> MatchesByFile:
        return {path: rows for path in plan.candidates if (rows := self._located.get(path)) is not None}

    def _require_no_tags(self, plan: TablePlan, matches: MatchesByFile) -> None:
        if not self.request.drop_tags and (tags := plan.tags(matches, self._kept_since)):
            raise TableConflict(
                f"Cannot erase rows from table {self.name}: snapshots with these rows have tags ({', '.join(tags)}), "
                "and tags cannot be changed. Drop tags that you do not need (Spark: ALTER TABLE ... DROP TAG), or "
                "run the command with --drop-tags."
            )

    def _require_no_deleted_rows(self, plan: TablePlan, matches: MatchesByFile) -> None:
        """Raise TableConflict if a position delete file that contains rows to erase would stay on a branch."""
        for branch, head in plan.heads.items():
            losing = [file for path, file in head.items() if path in matches]
            unneeded = {deletes.file_path for deletes in unneeded_deletes(losing, plan.live[branch])}
            candidates = plan.of_snapshot[plan.metadata.refs[branch].snapshot_id]
            if remaining := (candidates & matches.keys()) - head.keys() - unneeded:
                raise TableConflict(
                    f"Cannot erase rows from table {self.name}: another engine wrote copies of deleted rows to its "
                    f"position delete file {min(remaining)}, which other files need. Compact the table (Athena: "
                    "OPTIMIZE; Spark: rewrite_data_files with delete-file-threshold 1 and remove-dangling-deletes), "
                    "and run the command again."
                )

    @property
    def _kept_since(self) -> datetime | None:
        return None if self.request.keep is None else datetime.now(UTC) - self.request.keep

    # --- the rewrite

    def run_jobs(self, plan: TablePlan) -> None:
        """Search the candidate files. Then rewrite the files with matching rows in the head snapshots of branches."""
        self._locate(plan)
        matches, metadata = self._matches(plan), plan.metadata
        folder = f"{plan.table.location().rstrip('/')}/data"
        tasks: dict[Hashable, RemoveTask] = {}
        for head in plan.heads.values():
            for path in head.keys() & matches.keys():
                file = head[path]
                if (key := _key(file, metadata)) not in self._removals.results:
                    tasks[key] = RemoveTask(
                        uuid4().hex,
                        (Removal(file.source(metadata), erased=matches[path].rows),),
                        Versions((), None, self.column.field.field_id, self.column.field.field_id),
                        plan.schema,
                        folder_of_new_file(path, folder),
                        self.request.codec,
                        # A position delete would hide the rows, but the file would still contain them.
                        "copy_on_write",
                        self.operations.access,
                    )
        self._removals.run(tasks)

    # --- the commit

    def change(self, plan: TablePlan, table: Table, transaction: Transaction) -> _Result | None:
        """Replace the files with matching rows on all branches. Remove the former snapshots that refer to such files.

        Also remove the snapshots that refer to a revealing manifest (see `TablePlan`). Kept snapshots stay.
        """
        # Another writer may have added files with rows to erase since the search.
        if not plan.candidates.keys() <= self._located.keys():
            raise StalePlan
        matches = self._matches(plan)
        self._require_no_tags(plan, matches)
        self._require_no_deleted_rows(plan, matches)
        snapshots_with_rows = plan.snapshots_with_rows(matches)
        if not snapshots_with_rows:
            return None
        new: dict[str, str | None] = {}
        changes = {branch: self._change(plan, branch, matches, new) for branch in plan.branches(matches)}
        for branch, change in changes.items():
            self._end_branch(branch, change, plan.revealing_manifests, table, transaction)
        kept_since = self._kept_since
        expired_snapshots = {
            id_: snapshot for id_, snapshot in snapshots_with_rows.items() if not is_kept(snapshot, kept_since)
        }
        self._move_fences(expired_snapshots.keys(), transaction)
        full = transaction.table_metadata
        retained_ids = {snapshot.snapshot_id for snapshot in table.metadata.snapshots} | {
            ref.snapshot_id for ref in full.refs.values()
        }
        # This transaction has added two snapshots to each branch on which it replaces files. Remove the first of the
        # two again.
        intermediate = [snapshot for snapshot in full.snapshots if snapshot.snapshot_id not in retained_ids]
        ids = (*expired_snapshots, *(snapshot.snapshot_id for snapshot in intermediate))
        expired = Expired(ids, tuple(plan.tags(matches, kept_since)))
        remove_expired(expired, full, transaction)
        expiry = ExpiryPlan(expired, full, transaction.table_metadata, table.metadata_location)
        erased = [FileErased(path, rows.count, new.get(path), rows.raw_ids) for path, rows in sorted(matches.items())]
        # Before the commit: if the process is killed after it, the journal still names the objects. If the commit
        # fails, the marks do no harm, because each deletion checks the references again.
        unneeded = [*matches, *_metadata_of([*expired_snapshots.values(), *intermediate], table)]
        self._mark_for_deletion(unneeded, table_folder(table))
        return _Result(expiry, len(expired_snapshots), erased)

    def unused(self, outcome: _Result | None) -> list[WrittenFile]:
        """Return the new files that the commit did not add to the table."""
        used = {file.new for file in outcome.erased} if outcome is not None else set()
        return [file for file in self._removals.written if file.uri not in used]

    def _change(self, plan: TablePlan, branch: str, matches: MatchesByFile, new: dict[str, str | None]) -> Change:
        """Return the change of one branch. Also add the URI of each new file to `new`, by the path of the old file.

        If no new file replaces an old file, add None. Raises StalePlan if a file has not been rewritten yet, or if a
        new file no longer fits the schema.
        """
        entries, head = Entries(plan.metadata), plan.heads[branch]
        losing = [head[path] for path in sorted(head.keys() & matches.keys())]
        added = list[IcebergFile]()
        for file in losing:
            result = self._removals.result(_key(file, plan.metadata))
            new[file.path] = None
            if result.rewritten is not None:
                entry = entries.of_compacted(result.rewritten, file.entry, file.entry.sort_order_id)
                if entry is None:
                    raise StalePlan
                added.append(entry)
                new[file.path] = result.rewritten.uri
        removed = [*(file.entry for file in losing), *unneeded_deletes(losing, plan.live[branch])]
        return Change(added, removed, frozenset(file.manifest for file in losing))

    def _end_branch(
        self, branch: str, change: Change, revealing_manifests: frozenset[str], table: Table, transaction: Transaction
    ) -> None:
        """Add two snapshots to a branch, or only the second one if the change removes no file.

        The first snapshot replaces files, so its manifests contain entries of the removed files. The manifests of the
        second snapshot contain no such entries. `change` removes the first snapshot again.
        """
        own = {**_generation_property(branch, table.metadata), **inherited_uniqueness(branch, table.metadata)}
        properties = {**own, ERASURE: self.request.id}
        if change.removed:
            change_branch(change, branch, table, transaction, properties)
        # Manifests also record removed files. A rewritten manifest contains only live entries.
        renewed = Change(same_rows=True, renewed=revealing_manifests)
        change_branch(renewed, branch, table, transaction, properties)

    def _move_fences(self, snapshots: Iterable[int], transaction: Transaction) -> None:
        """Move or remove the fence tags on the given snapshots, because a tag would keep its snapshot from removal.

        Each fence tag that is still needed moves to the head of main.
        """
        metadata = transaction.table_metadata
        for name, ref in metadata.refs.items():
            if not is_fence(name, ref) or ref.snapshot_id not in set(snapshots):
                continue
            if is_unneeded_fence(name, ref):
                apply(transaction, (RemoveSnapshotRefUpdate.model_validate({"ref-name": name}),))
                continue
            # A fence tag protects its number, not its snapshot, so it may refer to any snapshot.
            head = metadata.refs[MAIN_BRANCH].snapshot_id
            moved = {
                "ref-name": name,
                "type": ref.snapshot_ref_type,
                "snapshot-id": head,
                "max-ref-age-ms": ref.max_ref_age_ms,
            }
            apply(transaction, (SetSnapshotRefUpdate.model_validate(moved),))

    # --- after the commit

    def _finish(self, result: _Result) -> list[FileErased]:
        """Delete the files to which no snapshot refers after the commit. Return the files that contained the rows.

        Files outside the table's folder stay, and `UnreferencedFiles` finds them. Raises Incomplete, Disagreement, and
        AWS errors.
        """
        self.snapshots_expired += result.snapshots
        s3 = self.operations.access.client("s3")
        folder = S3Address.parse(result.expiry.before.location.rstrip("/"))
        with suppress(MaintenanceSkipped):  # Raised if another table has replaced this one.
            delete_expired(result.expiry, self.operations, Deletion(s3, folder), Deletion(s3, folder))
        return result.erased


def _key(file: LiveFile, metadata: TableMetadata) -> Hashable:
    """Return the key for the result of a removal: the paths of the file and its delete files, and the schema ID."""
    return file.state, metadata.current_schema_id


def _generation_property(branch: str, metadata: TableMetadata) -> dict[str, str]:
    """Return the summary property with the lowest generation of a branch's rows. Empty if no snapshot records it.

    The platform assigns each refresh of a stream a generation number. The value comes from the latest snapshot of the
    branch that has this property.
    """
    recorded = (summary_value(snapshot, LOWEST_GENERATION_PROPERTY) for snapshot in history(branch, metadata))
    lowest = next((value for value in recorded if value is not None), None)
    return {} if lowest is None else {LOWEST_GENERATION_PROPERTY: lowest}


def _metadata_of(snapshots: Iterable[Any], table: Table) -> Iterator[str]:
    """Yield the paths of the manifest lists, manifests and statistics files of these snapshots."""
    ids = set()
    yielded_paths: set[str] = set()
    for snapshot in snapshots:
        ids.add(snapshot.snapshot_id)
        yield snapshot.manifest_list
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path not in yielded_paths:
                yielded_paths.add(manifest.manifest_path)
                yield manifest.manifest_path
    for statistics in (*table.metadata.statistics, *table.metadata.partition_statistics):
        if statistics.snapshot_id in ids:
            yield statistics.statistics_path


_OUTSIDE = (
    "the table no longer references this object. The object is outside the table's folder, so other tables may use it, "
    "and the command does not delete it. If no other table uses the object, delete all its versions. Otherwise, erase "
    "the rows from that table. Then run the command again"
)

NO_ROWS = (".metadata.json", ".metadata.json.gz", ".puffin", ".stats", "version-hint.text")
"""Suffixes of metadata files that contain neither rows nor bounds. Searches skip these files."""


# --- unreferenced files with rows, left by killed syncs and interrupted erasures --------------------------------------


# A running sync also has unreferenced files, which it is about to commit. So this code deletes an unreferenced file
# only if an erasure's journal marks the file for deletion, or if the file is older than the longest time between a
# writer's upload and commit. Two readers that share no code determine which files are unreferenced.


@dataclass(frozen=True, slots=True)
class UnreferencedFile:
    """An unreferenced object that may contain one of the IDs, or that an erasure has marked for deletion.

    `rows` is the number of rows with one of the IDs. For marked objects, metadata files and unreadable files, `rows` is
    -1. `deletable` states whether the object may be deleted now. `since` is the time of the object's last modification.
    `obstacle` is a clause that explains why no run may delete the object, or empty if a run may delete it later. `uri`
    is a prefix if the caller may not list the objects with this prefix.
    """

    uri: str
    rows: int
    deletable: bool
    since: datetime
    obstacle: str = ""


@dataclass(frozen=True, slots=True)
class UnreferencedFiles:
    """Finds and deletes the unreferenced files of one table that may contain one of the IDs.

    `are_marked` returns, for each URI, whether an erasure's journal marks the object for deletion. An object that is
    not marked may be deleted only if it is older than `age`. `marked_prefixes` contains the prefixes of the marked
    objects' URIs, because the table's data and metadata folders do not contain all of these objects.
    """

    erasure: TableErasure
    age: timedelta
    are_marked: Callable[[Sequence[str]], list[bool]]
    marked_prefixes: Collection[str] = ()

    def find(self, now: datetime) -> Iterator[UnreferencedFile]:
        """Yield the unreferenced files that may contain one of the IDs, or that are marked for deletion.

        Skips marked objects outside the table's folder that contain no ID, for example because another table to which
        they also belong has replaced them. If such an object has noncurrent versions, searches these versions, too.

        Raises MaintenanceSkipped, Incomplete, Disagreement, ConnectorError, errors from reading metadata, and S3
        errors.
        """
        try:
            s3, folder, references = self._referenced()
        except NoSuchTableError:
            return
        for files in unreferenced_files(list_pages(s3, folder), folder, references):
            marked = dict(zip(files, self.are_marked([file.path for file in files]), strict=True))
            unmarked = [file for file, is_marked in marked.items() if not is_marked]
            rows = self._rows(
                [SourceFile(file.path, file.size, UNKNOWN) for file in unmarked if file.path.endswith(".parquet")]
            )
            manifests = {file.path: None for file in unmarked if file.path.endswith(".avro")}
            rows |= dict.fromkeys(self._revealing_manifests(manifests, s3), -1)
            for file, is_marked in marked.items():
                if is_marked:
                    yield UnreferencedFile(file.path, -1, True, file.modified)
            for file in unmarked:
                if file.path in rows:
                    is_old = file.modified < now - self.age
                    yield UnreferencedFile(file.path, rows[file.path], is_old, file.modified)
        yield from self._unlisted(s3, folder, references)

    def _unlisted(self, s3: S3Client, folder: S3Address, references: References) -> Iterator[UnreferencedFile]:
        """Yield the marked objects that are in neither the table's data folder nor its metadata folder."""
        versions: dict[str, list[ObjectVersionTypeDef]] = {}
        for prefix in self.marked_prefixes:
            if prefix == f"{folder}/":
                continue
            try:
                for uri, version in self._marked_versions(prefix, s3):
                    versions.setdefault(uri, []).append(version)
            except s3.exceptions.ClientError as error:
                failure = explain(error, doing="list the versions of", resource=prefix)
                if failure is None or failure.missing is None:
                    raise
                obstacle = (
                    f"objects with rows to erase may have this prefix, but could not be listed: {failure.message}"
                )
                yield UnreferencedFile(prefix, -1, False, datetime.now(UTC), obstacle)
        unreferenced = [file.path for file in references.unreferenced(File(uri, 0) for uri in versions)]
        outside = {uri: versions[uri] for uri in unreferenced if not is_inside(uri, folder)}
        for uri in unreferenced:
            if uri not in outside and not is_of_a_table(S3Address.parse(uri).key, folder):
                # Another target searches the noncurrent versions in the table's folder.
                for version in versions[uri]:
                    if version["IsLatest"]:
                        yield UnreferencedFile(uri, -1, True, version["LastModified"])
        # A search identifies a file by its URI, so one search must not contain two versions of the same object.
        for number in range(max(map(len, outside.values()), default=0)):
            batch = {uri: of_uri[number] for uri, of_uri in outside.items() if number < len(of_uri)}
            for uri, rows in self._rows_of_versions(batch, s3).items():
                yield UnreferencedFile(uri, rows, False, batch[uri]["LastModified"], _OUTSIDE)

    def _marked_versions(self, prefix: str, s3: S3Client) -> Iterator[tuple[str, ObjectVersionTypeDef]]:
        """Yield the URI and the listing's entry of each version of the marked objects with a prefix."""
        bucket, key = S3Address.parse(prefix)
        for page in s3.get_paginator("list_object_versions").paginate(Bucket=bucket, Prefix=key):
            listed = page.get("Versions", [])
            uris = [str(S3Address(bucket, version["Key"])) for version in listed]
            yield from compress(zip(uris, listed, strict=True), self.are_marked(uris))

    def _rows_of_versions(self, versions: Mapping[str, ObjectVersionTypeDef], s3: S3Client) -> dict[str, int]:
        """Return the number of rows with one of the IDs, by the object's URI.

        -1 if the object is a manifest or manifest list that contains one of the IDs, or is unreadable. Leaves out all
        other objects.
        """
        ids = {uri: None if version["IsLatest"] else version["VersionId"] for uri, version in versions.items()}
        manifests = {uri: id_ for uri, id_ in ids.items() if uri.endswith(".avro")}
        rows = dict.fromkeys(self._revealing_manifests(manifests, s3), -1)
        return rows | self._rows(
            [
                SourceFile(uri, versions[uri]["Size"], UNKNOWN, version=id_)
                for uri, id_ in ids.items()
                if not uri.endswith((".avro", *NO_ROWS))
            ]
        )

    def delete(self, files: Sequence[UnreferencedFile]) -> list[UnreferencedFile]:
        """Delete the deletable files to which the table still does not refer. Return the deleted files."""
        s3, folder, references = self._referenced()
        wanted = {file.uri: file for file in files if file.deletable}
        dead = references.unreferenced(File(uri, 0) for uri in wanted)
        Deletion(s3, folder).delete(dead)
        return [wanted[file.path] for file in dead]

    def _referenced(self) -> tuple[S3Client, S3Address, References]:
        """Return the S3 client, the folder of the table, and the references in the latest state of the table."""
        operations = self.erasure.operations
        table, s3 = operations.load(), operations.access.client("s3")
        folder, references = table_folder(table), References(table.io, s3)
        add_latest(references, table, operations)
        return s3, folder, references

    def _revealing_manifests(self, manifests: Mapping[str, str | None], s3: S3Client) -> list[str]:
        """Return the URIs of the manifests and manifest lists that contain one of the IDs or cannot be read.

        `manifests` contains the version ID of each manifest by its URI, or None for the current version.
        """
        field, ids = self.erasure.column.field, self.erasure.request.ids

        def reveals_id(uri: str) -> bool | None:
            return manifest_reveals_id(s3, uri, [field.field_type], ids, field.field_id, manifests[uri])

        results = read_concurrently(reveals_id, manifests)
        return [uri for uri, is_revealing in zip(manifests, results, strict=True) if is_revealing is not False]

    def _rows(self, files: Sequence[SourceFile]) -> dict[str, int]:
        """Return the number of rows with one of the IDs, by the URI of the file. -1 if a file cannot be read.

        Leaves out files without such rows.
        """
        if not files:
            return {}
        matches = self.erasure.located(files)
        return {uri: rows.count for uri, rows in matches.files.items()} | dict.fromkeys(matches.unreadable, -1)
