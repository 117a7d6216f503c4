"""A table that a connection check creates, changes and drops, to see whether a REST catalog lets it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from destination_datalake.tables.iceberg.commit import TableOperations, set_property

if TYPE_CHECKING:
    from destination_datalake.tables.catalog import TableCatalog
    from destination_datalake.tables.table import TableName


class TrialTable:
    """The table. What its methods raise is ConnectorError."""

    def __init__(self, name: TableName, catalog: TableCatalog) -> None:
        self._name = name
        self._catalog = catalog

    def create(self, location: str | None) -> None:
        """Create it at this S3 URI, or where the catalog says."""
        self._catalog.pyiceberg().create_table(self._name, Schema(NestedField(1, "id", LongType())), location)

    def change(self) -> None:
        """Commit to it, as syncs do."""
        operations = TableOperations(self._name, self._catalog)
        operations.commit(lambda _table, transaction: set_property("airbyte.check", "1", transaction))

    def drop(self) -> None:
        """Drop it with its files, if it is there."""
        with suppress(NoSuchTableError):
            self._catalog.pyiceberg().purge_table(self._name)
