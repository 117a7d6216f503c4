"""Commits to one table whose new columns are governed before rows in them become visible."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from pyiceberg.table import Table, Transaction

from destination_datalake.tables.iceberg.schema import column_types

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from destination_datalake.lake_formation.governance import Governance
    from destination_datalake.tables.iceberg.metadata.operations import TableOperations
    from destination_datalake.tables.table import TableName

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Ungoverned:
    """No row may be committed yet: the table, or columns that are new to this sync, are not governed."""

    new: frozenset[str]


class GovernedCommits:
    """Commits to a table of Lake Formation's."""

    def __init__(self, name: TableName, operations: TableOperations, governance: Governance) -> None:
        self._name = name
        self._operations = operations
        self._governance = governance
        self._governed_fields: frozenset[int] = frozenset()

    def commit(
        self, build: Callable[[Table, Transaction], _Result | Ungoverned], table: Table | None = None
    ) -> tuple[Table, _Result]:
        """Commit as TableOperations does; a new schema alone, if `build` asks for that, and then what else it builds.

        So the columns have LF-Tags and grants before rows in them become visible.
        """
        while True:
            table, result = self._operations.commit(build, table)
            if not isinstance(result, Ungoverned):
                return table, result
            self._governance.govern_table(
                *self._name, column_types(table.metadata), result.new, table.metadata.table_uuid
            )
            self._governed_fields = frozenset(field.field_id for field in table.metadata.schema().fields)

    def ungoverned(self, metadata: TableMetadata) -> Ungoverned | None:
        """Return what `build` answers if the schema is to be committed alone; None if it need not be."""
        # A column that was dropped and added again, by whomever, has another field id.
        new = frozenset(each.name for each in metadata.schema().fields if each.field_id not in self._governed_fields)
        governed = self._governance.is_governed(*self._name, column_types(metadata), new, metadata.table_uuid)
        return None if governed else Ungoverned(new)
