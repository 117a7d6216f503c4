"""Reconciliation of a stream's columns with an existing table: limits of columns, and types that conflict."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Self

from destination_datalake.errors import quoted
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.schema.columns import METADATA_COLUMNS
from destination_datalake.schema.evolution import SchemaChange, Widen, apply_changes, evolve
from destination_datalake.schema.glue import describe_type, glue_type
from destination_datalake.schema.names import METADATA_NAMES
from destination_datalake.schema.types import ColumnType, Field
from destination_datalake.tables.table import TableConflict, TableName, cannot_write, table_conflict

if TYPE_CHECKING:
    from destination_datalake.config.options import Config
    from destination_datalake.config.tables import SchemaConflicts

MAX_TYPE_BYTES = 131_072
"""The longest type of a column (Glue API: Column). Glue has the columns of Iceberg tables, too."""

HIGHEST_MAX_COLUMNS = 10_000
"""The highest `max_columns`."""

_SHOWN = 3


@dataclass(frozen=True, slots=True)
class ColumnLimits:
    """How many columns of its own a stream's table may have, and what makes fewer of them."""

    max_columns: int
    flattened: bool
    max_type_bytes: int | None = MAX_TYPE_BYTES
    """None for a catalog that is not Glue's."""

    @classmethod
    def of(cls, config: Config, stream: StreamId) -> Self:
        """Return the limits that the options configure for a stream."""
        nested, _ = config.nested_of(*stream)
        return cls(config.max_columns, nested == "flatten", None if config.catalog.type == "rest" else MAX_TYPE_BYTES)

    def is_too_long(self, type_: ColumnType | None) -> bool:
        """Whether a column of the type exceeds the catalog's limit."""
        return self.max_type_bytes is not None and type_ is not None and _glue_bytes(type_) > self.max_type_bytes

    def require(
        self,
        stream: StreamId,
        table: TableName,
        before: Mapping[str, ColumnType | None],
        after: Mapping[str, ColumnType | None],
    ) -> None:
        """Raise TableConflict if the columns that the table would get exceed a limit.

        `before` and `after` have the table's columns; the metadata columns do not count. A table that is beyond the
        limits already is not refused as long as its columns stay as they are.
        """
        if problem := next(self._problems(before, after), None):
            raise TableConflict(cannot_write(stream, table, problem))

    def _problems(
        self, before: Mapping[str, ColumnType | None], after: Mapping[str, ColumnType | None]
    ) -> Iterator[str]:
        own = [name for name in after if name not in METADATA_NAMES]
        added = sum(name not in before for name in own)
        if added and len(own) > self.max_columns:
            count = f"{len(own):,} columns" if added == len(own) else f"{len(own):,} columns, {added:,} of them new"
            yield f"it would have {count}, and max_columns is {self.max_columns:,}. {self._fewer()}"
        changed = (name for name, type_ in after.items() if type_ is not None and before.get(name) != type_)
        long = [name for name in changed if self.is_too_long(after[name])]
        if long:
            shown = ", ".join(long[:_SHOWN]) + (f" and {len(long) - _SHOWN} more" if len(long) > _SHOWN else "")
            yield (
                f"the type of column {shown} would be longer than the {MAX_TYPE_BYTES:,} bytes that the Glue Data "
                "Catalog takes. Set nested to json for the stream, or deselect fields inside the column in the "
                "connection's settings."
            )

    def _fewer(self) -> str:
        fewer = ["deselect fields in the connection's settings"]
        if self.flattened:
            fewer.insert(0, "set nested to json or struct, or a lower flatten_max_depth, for the stream")
        if self.max_columns < HIGHEST_MAX_COLUMNS:
            fewer.append("raise max_columns")
        sentence = ", or ".join(fewer)
        return f"{sentence[0].upper()}{sentence[1:]}."


def _glue_bytes(type_: ColumnType) -> int:
    return len(glue_type(type_).encode())


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
    catalog's names for those of None. Raises TableConflict if a column with the name of a metadata column has another
    type, or if a column cannot hold the stream's values and `policy` is `fail`, or if new columns exceed `limits`.
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
        Conflict(name, _table_type(existing[name], type_names.get(name, "")), describe_type(field.type), target.name)
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
