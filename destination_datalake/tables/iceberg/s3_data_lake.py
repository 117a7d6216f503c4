"""Iceberg tables of Airbyte's S3 Data Lake destination: how to recognise and continue them.

That connector writes every sync to a branch, and moves main to the branch's head when the sync succeeds. Rows on the
branch of a failed sync are acknowledged, so the platform does not send them again. Syncs with deduplication delete
former rows by equality deletes by default.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from pyiceberg.io import FileIO
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update.snapshot import ManageSnapshots

from destination_datalake.protocol.catalog import StreamId
from destination_datalake.tables.iceberg.branches import history, summary_value
from destination_datalake.tables.iceberg.schema import column_types
from destination_datalake.tables.iceberg.snapshots.branch_files import BranchFiles, has_row_level_deletes
from destination_datalake.tables.naming import TableOwner
from destination_datalake.tables.s3_data_lake import has_its_metadata_columns
from destination_datalake.tables.table import TableName, table_conflict

_logger = logging.getLogger(__name__)

STAGING_PREFIX = "airbyte_staging"
"""The prefix of the names of its branches."""


def is_of_s3_data_lake(metadata: TableMetadata) -> bool:
    """Whether S3 Data Lake created the table, even if syncs of this connector have written to it since."""
    return TableOwner.of(metadata.properties) is None and has_its_metadata_columns(column_types(metadata))


def staged_ahead(metadata: TableMetadata) -> str | None:
    """Return the staging branch whose history contains main's head, with further rows; None without one.

    For branches with another history, for example after a compaction of main, this cannot be determined.
    """
    return next((name for name in _staging_branches(metadata) if _is_ahead(name, metadata)), None)


def publish_staged(table: TableName, transaction: Transaction) -> None:
    """Move main to the head of a staging branch that is ahead, as S3 Data Lake's next sync would. The branch stays."""
    branch = staged_ahead(transaction.table_metadata)
    if branch is None:
        return
    head = transaction.table_metadata.refs[branch].snapshot_id
    _logger.warning(
        "Table %s: its branch %s has rows that the S3 Data Lake destination acknowledged and a failed sync did not "
        "publish. They are in its content now.",
        table,
        branch,
    )
    with ManageSnapshots(transaction) as snapshots:
        snapshots.create_branch(head, MAIN_BRANCH)


def equality_deletes(metadata: TableMetadata, io: FileIO) -> str | None:
    """Return the branch, main or one ahead of it, with data files to which equality deletes apply; None without one.

    Manifests are read unless the summary of the snapshot counts no equality deletes.
    """
    branch = staged_ahead(metadata) or MAIN_BRANCH
    snapshot = metadata.snapshot_by_name(branch)
    if summary_value(snapshot, "total-equality-deletes") == "0" or not has_row_level_deletes(snapshot, io):
        return None
    return branch if any(file.has_equality_deletes for file in BranchFiles().at(snapshot, io)) else None


def require_no_equality_deletes(stream: StreamId, name: TableName, table: Table) -> None:
    """Raise TableConflict if equality deletes apply to the content, or to rows that will be published."""
    if (branch := equality_deletes(table.metadata, table.io)) is not None:
        problem = (
            f"rows of its branch {branch} are deleted by equality deletes, which this connector does not apply when it "
            f"deduplicates. {how_to_remove(name, branch)}"
        )
        raise table_conflict(stream, name, problem)


def how_to_remove(table: TableName, branch: str) -> str:
    """Return the statements with which Spark applies the equality deletes of a branch, as an imperative sentence."""
    name = f"table => '{table}'"
    publish = f"CALL system.fast_forward({name}, branch => 'main', to => '{branch}') and then "
    return (
        f"Let Spark apply them, once: {publish if branch != MAIN_BRANCH else ''}CALL system.rewrite_data_files({name}, "
        "options => map('delete-file-threshold', '1'))"
    )


def notes(name: TableName, metadata: TableMetadata, io: FileIO) -> Iterator[str]:
    """Yield what is special about syncs to a table of S3 Data Lake, as clauses about it."""
    if (branch := staged_ahead(metadata)) is not None:
        yield f"a sync that appends publishes the rows of its branch {branch}, which a failed sync has left"
    for diverged in _diverged_branches(metadata):
        yield (
            f"its branch {diverged} has another history than main, as after a compaction of main. If the last sync of "
            "S3 Data Lake failed, it has rows that no sync publishes: refresh the stream. If not, drop it (ALTER TABLE "
            f"{name} DROP BRANCH {diverged})"
        )
    if (branch := equality_deletes(metadata, io)) is not None:
        yield (
            "it has equality deletes, so syncs with deduplication are refused, others are not. "
            f"{how_to_remove(name, branch)}"
        )


def _diverged_branches(metadata: TableMetadata) -> Iterator[str]:
    if MAIN_BRANCH not in metadata.refs:
        return
    published = {snapshot.snapshot_id for snapshot in history(MAIN_BRANCH, metadata)}
    for name in _staging_branches(metadata):
        if metadata.refs[name].snapshot_id not in published and not _is_ahead(name, metadata):
            yield name


def _staging_branches(metadata: TableMetadata) -> list[str]:
    return sorted(name for name in metadata.refs if name.startswith(STAGING_PREFIX))


def _is_ahead(name: str, metadata: TableMetadata) -> bool:
    """Whether the history of a branch contains main's head, followed by further snapshots."""
    main, snapshots = metadata.refs.get(MAIN_BRANCH), [*history(name, metadata)]
    return main is None or any(snapshot.snapshot_id == main.snapshot_id for snapshot in snapshots[1:])
