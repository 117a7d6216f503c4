"""How a table that is there already comes to fit a stream, and what is said where the two cannot meet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from destination_datalake.protocol.catalog import StreamId
from destination_datalake.schema.columns import METADATA_COLUMNS
from destination_datalake.schema.evolution import SchemaChange, Widen, evolve
from destination_datalake.schema.glue import type_in_words
from destination_datalake.schema.types import ColumnType, Field
from destination_datalake.tables.table import TableConflict, TableName

if TYPE_CHECKING:
    from destination_datalake.config.options import SchemaConflicts

COMMENT_BYTES = 2048
"""The longest comment that Glue takes (Glue API: Description)."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """A column that cannot hold what the stream sends for it, both types in words, and the column that does instead."""

    column: str
    there: str
    sent: str
    beside: str


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """What must happen to a table, in this order, and the stream's columns as they must then be written."""

    changes: tuple[SchemaChange, ...]
    columns: tuple[Field, ...]
    conflicts: tuple[Conflict, ...]

    def comment(self, text: str) -> str:
        """Return a table's comment with a line for each conflict, after whatever is there; a line is added once.

        A line that would make it longer than Glue allows is left out.
        """
        for conflict in self.conflicts:
            begins = f"Column {conflict.beside} holds "
            line = (
                f"{begins}what is sent for {conflict.column} as {conflict.sent}; {conflict.column} is {conflict.there}."
            )
            longer = f"{text}\n{line}" if text else line
            if not any(each.startswith(begins) for each in text.splitlines()) and len(longer.encode()) <= COMMENT_BYTES:
                text = longer
        return text


@dataclass(frozen=True, slots=True)
class Reconciler:
    """A stream and a table, and what is to happen where their types conflict."""

    table: TableName
    stream: StreamId
    conflicts: SchemaConflicts

    def to(
        self, columns: Sequence[Field], there: Mapping[str, ColumnType | None], words: Mapping[str, str]
    ) -> Reconciliation:
        """Return what lets the stream's columns, and ours before them, be written to a table that has others.

        `there` has the table's columns, `words` the catalog's words for their types. Raises TableConflict if a column
        of the table bears the name of one of ours and is something else, or if one cannot hold what the stream sends
        for it and that is not to be.
        """
        sent = (*METADATA_COLUMNS, *columns)
        evolution = evolve(there, sent)
        ours = len(METADATA_COLUMNS)
        widened = {change.path[0] for change in evolution.changes if isinstance(change, Widen)}
        for column, fitted in zip(METADATA_COLUMNS, evolution.columns[:ours], strict=True):
            if fitted != column or column.name in widened:
                raise self._refusal(
                    f"its column {column.name} has another type than this connector writes. Rename that column"
                )
        spelled = {name.lower(): name for name in there}
        conflicts = tuple(
            Conflict(name, _in_words(there[name], words[name]), type_in_words(field.type), home.name)
            for field, home in zip(sent, evolution.columns, strict=True)
            if (name := spelled.get(field.name.lower(), home.name)) != home.name
        )
        if conflicts and self.conflicts == "fail":
            raise self._refusal(_described(conflicts))
        return Reconciliation(evolution.changes, evolution.columns[ours:], conflicts)

    def _refusal(self, problem: str) -> TableConflict:
        return TableConflict(
            f"Cannot write stream {self.stream} to table {self.table}: {problem}, or choose another "
            "lakeformation_database_name."
        )


def _described(conflicts: Sequence[Conflict]) -> str:
    each = [f"column {conflict.column} is {conflict.there} and {conflict.sent} is sent" for conflict in conflicts]
    beside = ", ".join(conflict.beside for conflict in conflicts)
    return (
        f"{'; '.join(each)}; and schema_conflicts is fail. Set schema_conflicts to new_column, which writes such "
        f"values to {beside}, or rename or convert the column in the table"
    )


def _in_words(type_: ColumnType | None, words: str) -> str:
    return words if type_ is None else type_in_words(type_)
