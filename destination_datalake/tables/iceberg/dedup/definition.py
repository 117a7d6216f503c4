"""By which columns a table's rows are deduplicated, kept in its properties by field id, so that it survives renaming.

What a merge is about: which rows it merges into which branch, and by what.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
from pyiceberg.schema import Schema
from pyiceberg.table import Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot

from destination_datalake.files.dedup.tasks import Versions
from destination_datalake.files.plan import Deduplication
from destination_datalake.schema.types import Field, List, Struct
from destination_datalake.tables.iceberg.branches import PENDING_BRANCH, last_unique, rows_on, says_unique, still_unique
from destination_datalake.tables.iceberg.commit import set_property
from destination_datalake.tables.table import TableName, table_conflict

if TYPE_CHECKING:
    from destination_datalake.protocol.catalog import Stream

UNIQUE_BY = "airbyte.dedup"
"""The table property of the definition by which the content was merged last; this connector's appends remove it. Which
of the content's rows are unique is what its snapshots say (`branches.py`)."""

PENDING_BY = "airbyte.dedup-pending"
"""The table property of the definition by which a sync that does not deduplicate merges the rows on the pending branch,
which others have left there. A sync that deduplicates merges them by its own."""

DELETED_AT = "_ab_cdc_deleted_at"
"""The field of a record by which sources of change data capture say that its row was deleted (Airbyte CDC docs)."""

_EXTRACTED_AT = "_airbyte_extracted_at"
_RAW_ID = "_airbyte_raw_id"


@dataclass(frozen=True, slots=True)
class Definition:
    """`Deduplication`, by the ids of top-level columns."""

    key: tuple[int, ...]
    cursor: int | None = None
    deleted_at: int | None = None

    @classmethod
    def named(cls, names: Deduplication, schema: Schema) -> Definition:
        """Return the definition by columns of these names, which the schema has."""
        ids = {field.name: field.field_id for field in schema.fields}
        return cls(
            tuple(sorted(ids[name] for name in names.key)),
            ids[names.cursor] if names.cursor is not None else None,
            ids[names.deleted_at] if names.deleted_at is not None else None,
        )

    @classmethod
    def of(cls, name: str, metadata: TableMetadata) -> Definition | None:
        """Return what a property has; None if the table has none that this connector has written."""
        try:
            return msgspec.json.decode(metadata.properties.get(name, ""), type=cls)
        except msgspec.DecodeError:
            return None

    def write_to(self, name: str, transaction: Transaction) -> None:
        """Set a property, unless it is so already."""
        set_property(name, msgspec.json.encode(self).decode(), transaction)

    def has_columns(self, schema: Schema) -> bool:
        """Whether a schema has all columns of the key."""
        return all(schema.find_column_name(id_) is not None for id_ in self.key)

    def key_names(self, schema: Schema) -> str:
        """Return the names of the key's columns, as texts for users have them."""
        return ", ".join(schema.find_column_name(id_) or "a column that was dropped" for id_ in self.key)

    def versions(self, schema: Schema) -> Versions | None:
        """Return what the jobs need to know; None if a column of the key, or one of the connector's own, was dropped.

        Without the column of the cursor, the time of extraction decides; without the other, nothing is deleted.
        """
        ids = {field.field_id: field.name for field in schema.fields}
        names = {field.name: field.field_id for field in schema.fields}
        if not (all(id_ in ids for id_ in self.key) and {_EXTRACTED_AT, _RAW_ID} <= names.keys()):
            return None
        return Versions(
            self.key,
            self.cursor if self.cursor in ids else None,
            names[_EXTRACTED_AT],
            names[_RAW_ID],
            self.deleted_at if self.deleted_at in ids else None,
        )


def way_out(definition: Definition, metadata: TableMetadata) -> str:
    """Return what to do where rows cannot be merged by the key of a definition any more, without a full stop.

    It loses nothing: a column that was renamed is renamed back. Where one was dropped, rows are read as of a snapshot,
    with the columns of then (Iceberg spec: schema-id of snapshots).
    """
    pending = rows_on(PENDING_BRANCH, metadata)
    told = f"{pending}. " if pending is not None else ""
    schema = metadata.schema()
    names = [(schema.find_column_name(id_), _first_name(id_, metadata)) for id_ in definition.key]
    renamed = [f"ALTER TABLE ... RENAME COLUMN {now} TO {then}" for now, then in names if now != then]
    if renamed and definition.has_columns(schema):
        return f"{told}Rename the column back ({', '.join(renamed)})"
    told += "Refresh the stream, so that all its records are sent again, or set the primary key back"
    if pending is None or definition.has_columns(schema):
        return told
    head = metadata.refs[PENDING_BRANCH].snapshot_id
    return (
        f"{told}. A refresh gives up what is pending: SELECT * FROM ... VERSION AS OF {head} reads it with the column "
        "that was dropped, if the source does not have it any more"
    )


def stranded(metadata: TableMetadata) -> str | None:
    """Return why pending rows cannot be merged, as a clause about the table, and what to do; None if they can.

    A column of their key was dropped.
    """
    scope, schema = pending_scope(metadata), metadata.schema()
    if scope is None or scope.definition.has_columns(schema):
        return None
    key = scope.definition.key_names(schema)
    return f"its pending rows came with the primary key ({key}). {way_out(scope.definition, metadata)}"


def _first_name(id_: int, metadata: TableMetadata) -> str | None:
    """Return the name that a column was created with, as far as the table still knows."""
    schemas = sorted(metadata.schemas, key=lambda schema: schema.schema_id)
    return next((name for schema in schemas if (name := schema.find_column_name(id_)) is not None), None)


@dataclass(frozen=True, slots=True)
class MergeScope:
    """The rows of the branch `pending` are merged into those of `target`, and it is removed.

    Without such a branch, the rows of `target` are merged among themselves.
    """

    definition: Definition
    target: str
    pending: str | None

    def is_unique(self, metadata: TableMetadata) -> bool:
        """Whether no two rows of `target` have the same key."""
        return self._goes_on(metadata) and still_unique(self.target, metadata) == says_unique(self.definition.key)

    def last_unique(self, metadata: TableMetadata) -> Snapshot | None:
        """Return the last snapshot of `target` of whose rows no two have the same key; None if there is none."""
        return last_unique(self.target, self.definition.key, metadata) if self._goes_on(metadata) else None

    def _goes_on(self, metadata: TableMetadata) -> bool:
        """Whether the content was merged by the same key, and this connector has not appended to it since."""
        by = Definition.of(UNIQUE_BY, metadata)
        return self.target == MAIN_BRANCH and by is not None and by.key == self.definition.key


def pending_scope(metadata: TableMetadata) -> MergeScope | None:
    """Return the merge that a table's pending rows wait for; None if there are none."""
    by = Definition.of(PENDING_BY, metadata)
    if by is None or PENDING_BRANCH not in metadata.refs:
        return None
    return MergeScope(by, MAIN_BRANCH, PENDING_BRANCH)


def deduplication(
    stream: Stream, table: TableName, columns: Sequence[Field], *, deletes_hard: bool
) -> Deduplication | None:
    """Return by which columns of its table a stream is deduplicated; None if it is not.

    Raises TableConflict if a field of the primary key or the cursor has no column of its own.
    """
    if not stream.dedup:
        return None
    named = {column.path: column for column in columns}

    def column_of(field: str, role: str) -> str:
        found = named.get((field,))
        if found is None or isinstance(found.type, Struct | List):
            what = "has no column of its own" if found is None else "is an object or an array"
            problem = (
                f"its {role} is the field {field}, which {what}, and rows can only be compared by single values. "
                f"Choose another {role} in the connection's settings, or a sync mode without deduplication"
            )
            raise table_conflict(stream.id, table, problem)
        return found.name

    cursor = stream.cursor_field[0] if stream.cursor_field else None
    return Deduplication(
        tuple(column_of(field, "primary key") for field in stream.primary_key),
        column_of(cursor, "cursor") if cursor is not None else None,
        named[DELETED_AT,].name if deletes_hard and (DELETED_AT,) in named else None,
    )
