"""Append: rows are in the table's content as soon as they are committed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH

from destination_datalake.protocol.catalog import Stream
from destination_datalake.tables.iceberg.dedup.definition import UNIQUE_BY, MergeScope, pending_scope, remove_definition
from destination_datalake.tables.iceberg.metadata.operations import TableOperations
from destination_datalake.tables.iceberg.write_modes.mode import WriteMode, release_token
from destination_datalake.tables.table import TableName


class Append(WriteMode):
    """Writes to main: readers see each commit at once. Any number of syncs may append at the same time.

    Rows that wait for their deduplication are older than those of this sync, and merged first.
    """

    def __init__(self, table: TableName, stream: Stream) -> None:
        super().__init__(table, stream, MAIN_BRANCH)
        self._leftover_merge: MergeScope | None = None

    def begin(self, table: Table, transaction: Transaction) -> None:
        """Adopt the rows of pending overwrites; remove their branches and the fencing token of their writer."""
        self._leftover_merge = pending_scope(table.metadata)
        if self._leftover_merge is None:
            self._take_over(table, transaction)
        else:
            release_token(transaction)

    @property
    def leftover_merge(self) -> MergeScope | None:
        """What has to be merged before rows are added that are not to be deduplicated."""
        return self._leftover_merge

    def require(self, metadata: TableMetadata) -> None:
        """Do nothing: no sync can take main over."""

    def append_files(
        self, files: Iterable[IcebergFile], table: Table, transaction: Transaction, origin: Mapping[str, str]
    ) -> None:
        """Add the files to main, whose rows are not unique by a key any more."""
        super().append_files(files, table, transaction, origin)
        remove_definition(UNIQUE_BY, transaction)

    def publish(self, operations: TableOperations) -> None:
        """Do nothing: the rows are on main."""
