"""Reconciliation of a stream's columns with an existing table, and the messages about types that conflict."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from destination_datalake.errors import quoted
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.schema.columns import METADATA_COLUMNS
from destination_datalake.schema.evolution import SchemaChange, Widen, apply_changes, evolve
from destination_datalake.schema.glue import describe_type
from destination_datalake.schema.types import ColumnType, Field
from destination_datalake.tables.limits import ColumnLimits
from destination_datalake.tables.table import TableName, table_conflict

if TYPE_CHECKING:
    from destination_datalake.config.tables import SchemaConflicts

_logger = logging.getLogger(__name__)

COMMENT_BYTES = 2048
"""The longest comment that Glue takes (Glue API: Description)."""


_LONGEST_TYPE = 200
"""Characters of a type in the log: that of a struct has all of its fields."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """A table's column that cannot hold the stream's values, both types as text, and the column that gets them."""

    column: str
    table_type: str
    stream_type: str
    redirected_to: str


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """The changes that a table needs, in order, and the stream's columns as they are written after them."""

    changes: tuple[SchemaChange, ...]
    columns: tuple[Field, ...]
    conflicts: tuple[Conflict, ...]

    def comment(self, existing: str) -> str:
        """Return a table's existing comment with a line appended for each conflict that it does not mention yet.

        A line that would make the comment longer than Glue allows is left out.
        """
        for conflict in self.conflicts:
            prefix = f"Column {conflict.redirected_to} holds "
            line = (
                f"{prefix}what is sent for {conflict.column} as {conflict.stream_type}; "
                f"{conflict.column} is {conflict.table_type}."
            )
            longer = f"{existing}\n{line}" if existing else line
            mentioned = any(each.startswith(prefix) for each in existing.splitlines())
            if not mentioned and len(longer.encode()) <= COMMENT_BYTES:
                existing = longer
        return existing


def reconcile(
    stream: StreamId,
    table: TableName,
    columns: Sequence[Field],
    existing: Mapping[str, ColumnType | None],
    type_names: Mapping[str, str],
    policy: SchemaConflicts,
    limits: ColumnLimits,
    metadata: Sequence[Field] = METADATA_COLUMNS,
) -> Reconciliation:
    """Return what lets the metadata columns and the stream's own be written to an existing table.

    `existing` has the types of the table's columns (None: a type that this connector never writes), `type_names` the
    catalog's names for them. Raises TableConflict if a column with the name of a metadata column has another type, or
    if a column cannot hold the stream's values and `policy` is `fail`, or if new columns exceed `limits`.
    """
    sent = (*metadata, *columns)
    evolution = evolve(existing, sent)
    widened = {change.path[0] for change in evolution.changes if isinstance(change, Widen)}
    for column, written in zip(metadata, evolution.columns, strict=False):
        if written != column or column.name in widened:
            raise table_conflict(
                stream,
                table,
                f"its column {column.name} has another type than this connector writes. Rename that column",
            )
    # Catalogs compare names without regard to case; messages use the table's spelling.
    spelling = {name.lower(): name for name in existing}
    conflicts = tuple(
        Conflict(name, _table_type(existing[name], type_names[name]), describe_type(field.type), target.name)
        for field, target in zip(sent, evolution.columns, strict=True)
        if (name := spelling.get(field.name.lower(), target.name)) != target.name
    )
    if conflicts and policy == "fail":
        raise table_conflict(stream, table, _describe(conflicts))
    for conflict in conflicts:
        _warn_once(stream, table, conflict)
    limits.require(stream, table, existing, apply_changes(existing, evolution.changes))
    return Reconciliation(evolution.changes, evolution.columns[len(metadata) :], conflicts)


@cache
def _warn_once(stream: StreamId, table: TableName, conflict: Conflict) -> None:
    """Warn of a column that is written in place of another one; once, though tables are reconciled for commits."""
    _logger.warning(
        "Table %s: column %s is %s, which cannot hold the %s that stream %s sends. Its values are written to column "
        "%s, and %s is null in new rows.",
        table,
        quoted(conflict.column),
        conflict.table_type[:_LONGEST_TYPE],
        conflict.stream_type[:_LONGEST_TYPE],
        stream,
        quoted(conflict.redirected_to),
        quoted(conflict.column),
    )


def _describe(conflicts: Sequence[Conflict]) -> str:
    each = [f"column {found.column} is {found.table_type} and {found.stream_type} is sent" for found in conflicts]
    targets = ", ".join(found.redirected_to for found in conflicts)
    return (
        f"{'; '.join(each)}; and schema_conflicts is fail. Set schema_conflicts to new_column, which writes such "
        f"values to {targets}, or rename or convert the column in the table"
    )


def _table_type(type_: ColumnType | None, type_name: str) -> str:
    return type_name if type_ is None else describe_type(type_)
