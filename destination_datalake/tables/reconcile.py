"""Compare a stream's columns with the columns of an existing table: missing columns, type conflicts, limits."""

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
from destination_datalake.schema.json_schema import Untyped
from destination_datalake.schema.names import METADATA_NAMES
from destination_datalake.schema.types import ColumnType, Field
from destination_datalake.tables.naming import TableOwner, untyped_in
from destination_datalake.tables.table import (
    ARCHIVED_PROPERTY,
    TableConflict,
    TableName,
    cannot_write,
    table_conflict,
)

if TYPE_CHECKING:
    from destination_datalake.config.options import Config
    from destination_datalake.config.tables import SchemaConflicts
    from destination_datalake.files.plan import FilePlan
    from destination_datalake.tables.context import TableContext
    from destination_datalake.tables.layout import TableLayout

MAX_TYPE_BYTES = 131_072
"""Maximum size of a column's type in bytes (Glue API: Column). Glue also applies this limit to Iceberg tables."""

HIGHEST_MAX_COLUMNS = 10_000
"""The highest value of the option `max_columns`."""

_MAX_COLUMNS_IN_MESSAGE = 3


@dataclass(frozen=True, slots=True)
class ColumnLimits:
    """Limits for the columns of a stream's table, without the metadata columns.

    `flattened` states whether the option `nested` flattens objects, which adds columns.
    """

    max_columns: int
    flattened: bool
    max_type_bytes: int | None = MAX_TYPE_BYTES
    """Maximum size of a column's type in bytes, or None for a REST catalog, which has no such limit."""

    @classmethod
    def for_stream(cls, config: Config, stream: StreamId) -> Self:
        """Return the limits that the options and the catalog set for a stream's table."""
        nested, _ = config.nested_of(*stream)
        return cls(config.max_columns, nested == "flatten", None if config.catalog.type == "rest" else MAX_TYPE_BYTES)

    def is_too_long(self, type_: ColumnType | None) -> bool:
        """Return whether the type is too long for the catalog, when written in Glue's notation."""
        return self.max_type_bytes is not None and type_ is not None and _glue_bytes(type_) > self.max_type_bytes

    def require(
        self,
        stream: StreamId,
        table: TableName,
        before: Mapping[str, ColumnType | None],
        after: Mapping[str, ColumnType | None],
    ) -> None:
        """Raise TableConflict if new or changed columns exceed a limit.

        `before` and `after` contain the table's columns before and after the change. If only unchanged columns exceed a
        limit, this method raises no error.
        """
        if problem := next(self._problems(before, after), None):
            raise TableConflict(cannot_write(stream, table, problem))

    def _problems(
        self, before: Mapping[str, ColumnType | None], after: Mapping[str, ColumnType | None]
    ) -> Iterator[str]:
        columns = [name for name in after if name not in METADATA_NAMES]
        total, added = len(columns), sum(name not in before for name in columns)
        if added and total > self.max_columns:
            count = f"{total:,} columns" if added == total else f"{total:,} columns, {added:,} of them new"
            yield f"it would have {count}, but max_columns is {self.max_columns:,}. {self._remedies()}"
        changed = (name for name, type_ in after.items() if type_ is not None and before.get(name) != type_)
        too_long = [name for name in changed if self.is_too_long(after[name])]
        if too_long:
            names, more = ", ".join(too_long[:_MAX_COLUMNS_IN_MESSAGE]), len(too_long) - _MAX_COLUMNS_IN_MESSAGE
            yield (
                f"the types of these columns would exceed the limit of {MAX_TYPE_BYTES:,} bytes in the Glue Data "
                f"Catalog: {names}{f' and {more} more' if more > 0 else ''}. Set nested to json for the stream, or "
                "deselect fields inside these columns in the connection's settings."
            )

    def _remedies(self) -> str:
        remedies = ["deselect fields in the connection's settings"]
        if self.flattened:
            remedies.insert(0, "set nested to json or struct for the stream, or lower flatten_max_depth")
        if self.max_columns < HIGHEST_MAX_COLUMNS:
            remedies.append("raise max_columns")
        sentence = ", or ".join(remedies)
        return f"{sentence[0].upper()}{sentence[1:]}."


def _glue_bytes(type_: ColumnType) -> int:
    return len(glue_type(type_).encode())


_logger = logging.getLogger(__name__)

COMMENT_BYTES = 2048
"""Maximum size of a table's comment in bytes (Glue API: Description)."""


_MAX_TYPE_IN_LOG = 200
"""Maximum length of a type in the log, in characters. The type of a struct contains all its fields and can be long."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """A column of a table that cannot hold the stream's values.

    `table_type` describes the type of the column, and `stream_type` describes the type of the values. A sync writes the
    values to the column `redirected_to` instead.
    """

    column: str
    table_type: str
    stream_type: str
    redirected_to: str


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """The result of comparing a stream's columns with an existing table.

    `changes` contains the changes that the table needs, in the order in which a sync must make them. `columns` contains
    the stream's columns with their final names and types. `conflicts` describes the table's columns that cannot hold
    the stream's values.
    """

    changes: tuple[SchemaChange, ...]
    columns: tuple[Field, ...]
    conflicts: tuple[Conflict, ...]

    @property
    def redirected(self) -> dict[str, str]:
        """A mapping from the name of each column with a conflict to the column that stores the values instead."""
        return {conflict.column: conflict.redirected_to for conflict in self.conflicts}

    def comment(self, existing: str) -> str:
        """Return the table comment `existing` with an additional line for each conflict that it does not mention.

        Omit lines that would make the comment longer than Glue allows.
        """
        comment = existing
        for conflict in self.conflicts:
            prefix = f"Column {conflict.redirected_to} holds "
            # Do not change this line, because comments written by earlier versions of the connector contain it.
            line = (
                f"{prefix}what is sent for {conflict.column} as {conflict.stream_type}; "
                f"{conflict.column} is {conflict.table_type}."
            )
            longer = f"{comment}\n{line}" if comment else line
            is_mentioned = any(present.startswith(prefix) for present in comment.splitlines())
            if not is_mentioned and len(longer.encode()) <= COMMENT_BYTES:
                comment = longer
        return comment


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
    """Return the changes that let an existing table hold the metadata columns and the stream's columns.

    `existing` maps the table's columns to their types, or to None for a type that this connector never writes. If
    `existing` maps a column to None, `type_names` maps the same column to the catalog's name of its type.

    Raises TableConflict if a metadata column has a different type in the table, if a column cannot hold the stream's
    values and `policy` is `fail`, or if new or changed columns exceed `limits`.
    """
    if (problem := foreign_metadata_column(existing, metadata)) is not None:
        raise table_conflict(stream, table, problem)
    sent = (*metadata, *columns)
    evolution = evolve(existing, sent)
    # Catalogs ignore case when they compare names. Messages use the table's spelling.
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


def foreign_metadata_column(existing: Mapping[str, ColumnType | None], metadata: Sequence[Field]) -> str | None:
    """Return a problem if a metadata column has a different type in the table, otherwise None.

    The problem is a clause about the table, followed by a remedy.
    """
    evolution = evolve(existing, metadata)
    widened = {change.path[0] for change in evolution.changes if isinstance(change, Widen)}
    for column, written in zip(metadata, evolution.columns, strict=True):
        if written != column or column.name in widened:
            return (
                f"the type of its column {column.name} differs from the type of the connector's metadata column. "
                "Rename the column"
            )
    return None


@cache
def _warn_once(stream: StreamId, table: TableName, conflict: Conflict) -> None:
    """Log a warning that a sync writes values to another column. The cache prevents a repetition at each commit."""
    _logger.warning(
        "Table %s: column %s has type %s, which cannot store the type %s that stream %s sends. These values are "
        "written to column %s. In new rows, column %s is null.",
        table,
        quoted(conflict.column),
        conflict.table_type[:_MAX_TYPE_IN_LOG],
        conflict.stream_type[:_MAX_TYPE_IN_LOG],
        stream,
        quoted(conflict.redirected_to),
        quoted(conflict.column),
    )


def _describe(conflicts: Sequence[Conflict]) -> str:
    problems = [
        f"column {conflict.column} has type {conflict.table_type}, but the stream sends {conflict.stream_type}"
        for conflict in conflicts
    ]
    targets = ", ".join(conflict.redirected_to for conflict in conflicts)
    return (
        f"{'; '.join(problems)}; schema_conflicts is fail. Set schema_conflicts to new_column to write such values to "
        f"{targets}, or rename or convert the column in the table"
    )


def _table_type(type_: ColumnType | None, type_name: str) -> str:
    return type_name if type_ is None else describe_type(type_)


# --- The columns of one sync ------------------------------------------------------------------------------------------
# Iceberg and Hive tables name the stream's columns in the same way, and compare them with the table in the same way.


class StreamTable:
    """The base class of `IcebergTable` and `HiveTable`, which maps the stream's columns to the table's columns."""

    def __init__(
        self, name: TableName, layout: TableLayout, plan: FilePlan, owner: TableOwner, context: TableContext
    ) -> None:
        self.name = name
        self._stream = layout.stream
        self._layout = layout
        self._location = layout.location
        self._columns = plan.columns
        """The stream's columns with the names and types that they would have in a new table."""
        self._plan = plan
        self._owner = owner
        self._catalog = context.catalog
        self._sync = context.sync
        self._archives = context.archives
        self._journal = context.journal

    def _parameters_of_new_table(self) -> dict[str, str]:
        archived = {ARCHIVED_PROPERTY: "true"} if self._archives else {}
        return {**self._owner.parameters(), **self._owner.name_parameters({}, self._columns), **archived}

    def _named(
        self,
        owner: TableOwner,
        parameters: Mapping[str, str],
        sources: Mapping[str, str | None],
        types: Mapping[str, ColumnType | None],
    ) -> tuple[Field, ...]:
        """Return the stream's columns with their names in the existing table.

        `owner` contains the naming rules of this table. The other parameters are those of `TableOwner.name_columns`,
        and `sources` corresponds to `existing` there.
        """
        untyped = untyped_in(parameters)
        is_as_new = untyped is Untyped.INFER and owner.naming == self._owner.naming
        columns = self._columns if is_as_new else self._layout.columns(owner.naming, untyped)
        return owner.name_columns(self.name, parameters, sources, columns, types)

    def _reconciled(
        self, columns: Sequence[Field], existing: Mapping[str, ColumnType | None], type_names: Mapping[str, str]
    ) -> Reconciliation:
        """Compare the stream's named columns with the existing table, and record the conflicts in the journal.

        Raises TableConflict in the same cases as the function `reconcile`.
        """
        config, limits = self._layout.config, ColumnLimits.for_stream(self._layout.config, self._stream.id)
        policy, metadata = config.schema_conflicts, self._plan.metadata
        reconciled = reconcile(self._stream.id, self.name, columns, existing, type_names, policy, limits, metadata)
        self._journal.redirected(self.name, reconciled.redirected)
        return reconciled
