"""Rebuilds the content of an Iceberg table by a replay of archived syncs.

The replay writes to a clone of the original table. The clone has the same field IDs and partition specs as the original
table, so the last step can add the clone's files to the original table. Other syncs may write to the original table
during the replay. The last step then changes nothing, because it requires that the original table's content and pending
rows have not changed.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.schema import Schema, index_by_id
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH

from destination_datalake.aws.objects import delete_folder
from destination_datalake.tables.catalog import TableCatalog
from destination_datalake.tables.fencing import OVERWRITES_PROPERTY, TOKEN_PROPERTY
from destination_datalake.tables.iceberg.branches import (
    NEW,
    PENDING_BRANCH,
    inherited_uniqueness,
    remove_branches,
    rows_on,
    unpublished_branches,
)
from destination_datalake.tables.iceberg.commit import FENCE_PROPERTY, TableOperations, set_property
from destination_datalake.tables.iceberg.dedup.plan import PENDING_BY, UNIQUE_BY, pending_scope
from destination_datalake.tables.iceberg.maintenance.references import read_concurrently
from destination_datalake.tables.iceberg.snapshots.change import Change, change_branch
from destination_datalake.tables.iceberg.snapshots.files import BranchFiles
from destination_datalake.tables.iceberg.write_modes import (
    lowest_generation,
    lowest_generation_property,
    set_lowest_generation,
)
from destination_datalake.tables.table import (
    ARCHIVED_PROPERTY,
    LOWEST_GENERATION_PROPERTY,
    PUBLISHED_BY_PROPERTY,
    TableBusy,
    TableConflict,
    TableName,
    TableState,
)

_OF_ROWS = frozenset(
    (
        TOKEN_PROPERTY,
        OVERWRITES_PROPERTY,
        UNIQUE_BY,
        PENDING_BY,
        LOWEST_GENERATION_PROPERTY,
        FENCE_PROPERTY,
        ARCHIVED_PROPERTY,
        PUBLISHED_BY_PROPERTY,
    )
)
"""The table properties that describe a table's rows or writers. A clone does not copy these properties."""


class IcebergRebuild:
    """Rebuilds one Iceberg table, the original table, from a clone that a replay fills with rows (see `Rebuild`)."""

    def __init__(self, name: TableName, catalog: TableCatalog, scratch: str) -> None:
        """Prepare the rebuild of the table `name`, without a request.

        `scratch` is the folder for the clone's metadata: an S3 URI without a trailing slash.
        """
        self._name = name
        self._catalog = catalog
        self._scratch = scratch

    def state(self, name: TableName) -> TableState | None:
        """Return the state of the table `name`, or None if that table does not exist."""
        try:
            return TableOperations(name, self._catalog).with_latest(_state)
        except NoSuchTableError:
            return None

    def clone(self, rebuilt: TableName, marks: dict[str, str]) -> None:
        """Register the clone `rebuilt` with the original table's metadata, but without snapshots.

        Add `marks` to the properties of the clone.
        """
        table = TableOperations(self._name, self._catalog).load()
        own = {name: value for name, value in table.metadata.properties.items() if name not in _OF_ROWS}
        folder = f"{table.metadata.location.rstrip('/')}/metadata"
        if not self._catalog.access_of(self._name).has_session_credentials:
            # The clone gets its own metadata folder, because maintenance removes no orphan files from a folder with the
            # metadata of two tables. With vended credentials, the clone uses the table's folder, because the
            # credentials are valid only there.
            folder = self._scratch
            own[TableProperties.WRITE_METADATA_PATH] = folder
        metadata = table.metadata.model_copy(update={**_without_snapshots(), "properties": {**own, **marks}})
        location = f"{folder}/00000-{uuid.uuid4()}.metadata.json"
        with table.io.new_output(location).create() as output:
            output.write(metadata.model_dump_json().encode())
        self._catalog.pyiceberg().register_table(rebuilt, location)

    def begin(self) -> None:
        """Do nothing. Other writers may continue, because the final commit detects their changes."""

    def take_over(self, rebuilt: TableName, expected: TableState) -> bool:
        """Replace the content and the pending rows of the original table with the clone's content. Then drop the clone.

        Return True. If the content or the pending rows of the original table have changed since `expected`, change
        nothing and return False. Raises TableConflict if the original table lacks a column of the clone, and TableBusy
        if a file of the clone no longer exists.
        """
        clone = TableOperations(rebuilt, self._catalog).load()
        added = [file.entry for file in BranchFiles(metrics=None).on_branch(clone, MAIN_BRANCH)]
        _require_files(self._name, clone, added)
        operations = TableOperations(self._name, self._catalog)

        def build(table: Table, transaction: Transaction) -> bool:
            # Compare inside the commit: the catalog accepts it only if this state is still current.
            if _version(table.metadata) != expected.version:
                return False
            _require_same_columns(self._name, clone.schema(), table.schema())
            set_lowest_generation(lowest_generation(clone.metadata), transaction)
            uniqueness = inherited_uniqueness(MAIN_BRANCH, clone.metadata)
            properties = lowest_generation_property(transaction.table_metadata) | uniqueness
            change = Change(added, _live_files(table))
            if change.added or change.removed:
                change_branch(change, MAIN_BRANCH, table, transaction, {**properties, **NEW})
            remove_branches([PENDING_BRANCH], transaction)
            set_property(PENDING_BY, None, transaction)
            set_property(UNIQUE_BY, clone.properties.get(UNIQUE_BY), transaction)
            return True

        _, taken = operations.commit(build)
        if taken:
            self.drop(rebuilt)
        return taken

    def drop(self, rebuilt: TableName) -> None:
        """Drop the clone, and delete the folder with the clone's metadata.

        If the original table has not taken over the clone's data files, these files become orphan files.
        """
        with suppress(NoSuchTableError):
            # `drop_table` keeps the data files, because the original table may refer to them.
            self._catalog.pyiceberg().drop_table(rebuilt)
        delete_folder(self._catalog.access_of(self._name).client("s3"), self._scratch)


def _state(table: Table) -> TableState:
    metadata, files = table.metadata, BranchFiles()
    content = [file.source(metadata) for file in files.on_branch(table, MAIN_BRANCH)]
    branches, scope = unpublished_branches(metadata), pending_scope(metadata)
    unpublished = [file.source(metadata) for branch in branches for file in files.on_branch(table, branch)]
    return TableState(
        published_by=metadata.properties.get(PUBLISHED_BY_PROPERTY),
        has_pending=rows_on(PENDING_BRANCH, metadata) is not None,
        commits_whole=True,
        sources=tuple(content),
        unpublished=tuple(unpublished),
        version=_version(metadata),
        columns=tuple(table.schema().column_names),
        is_unique=scope is not None and scope.is_unique(metadata),
    )


def _version(metadata: TableMetadata) -> str:
    heads = (metadata.snapshot_by_name(branch) for branch in (MAIN_BRANCH, PENDING_BRANCH))
    return " ".join(str(head.snapshot_id) if head is not None else "none" for head in heads)


def _live_files(table: Table) -> list[IcebergFile]:
    """Return the live data files and delete files on main, each file once."""
    live = BranchFiles(metrics=None).on_branch(table, MAIN_BRANCH)
    entries = (entry for file in live for entry in (file.entry, *file.deletes))
    return [*{entry.file_path: entry for entry in entries}.values()]


def _require_files(name: TableName, clone: Table, entries: Sequence[IcebergFile]) -> None:
    """Raise TableBusy if a file of the clone no longer exists.

    The files are in the folder of the original table, which does not refer to them. If the replay takes longer than
    `orphan_retention_days`, maintenance of the original table may have removed them as orphan files.
    """

    def exists(path: str) -> bool:
        return clone.io.new_input(path).exists()

    paths = [entry.file_path for entry in entries]
    missing = [path for path, is_present in zip(paths, read_concurrently(exists, paths), strict=True) if not is_present]
    if missing:
        raise TableBusy(
            f"Cannot replace the content of table {name}: {len(missing)} of the {len(paths)} files that the replay has "
            f"written no longer exist, such as {missing[0]}. Maintenance of the table has probably removed them as "
            "orphan files. The table is unchanged. Pause the maintenance, or increase "
            "maintenance.orphan_retention_days. Then run the replay again. It starts again from the first sync."
        )


def _require_same_columns(name: TableName, clone: Schema, original: Schema) -> None:
    """Raise TableConflict if the original table lacks a column of the clone, or has it with another field ID.

    The clone has additional columns if the user has changed the options since the archived syncs.
    """
    ids = {id_: field.name for id_, field in index_by_id(original).items()}
    for id_, field in index_by_id(clone).items():
        if ids.get(id_) != field.name:
            raise TableConflict(
                f"Table {name} does not contain the column {clone.find_column_name(id_)} of the replayed rows, because "
                "the options differ from those of the table's syncs, or because the columns were changed during the "
                "replay. The table is unchanged. Restore the options and run the replay again, or replay into "
                "another table (--into)."
            )


def _without_snapshots() -> Mapping[str, Any]:
    return {
        # With the UUID of the original, engines would take the clone for the same table.
        "table_uuid": uuid.uuid4(),
        "last_sequence_number": 0,
        "current_snapshot_id": None,
        "snapshots": [],
        "snapshot_log": [],
        "metadata_log": [],
        "refs": {},
        "statistics": [],
        "partition_statistics": [],
    }
