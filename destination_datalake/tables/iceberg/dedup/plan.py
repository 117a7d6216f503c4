"""The definition by which a table's rows are deduplicated, and the plan of a merge for one state of the table.

A table property stores the definition with the field IDs of its columns, so the definition stays valid if a column is
renamed. A plan keeps only the metrics of the columns in the definition.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import DoubleType, FloatType

from destination_datalake.files.dedup.tasks import IndexPart, Versions
from destination_datalake.files.parquet import field_id
from destination_datalake.files.plan import Deduplication
from destination_datalake.schema.names import EXTRACTED_AT, RAW_ID
from destination_datalake.schema.types import Field, List, Struct
from destination_datalake.tables.iceberg.branches import (
    PENDING_BRANCH,
    inherited_uniqueness,
    last_unique,
    rows_on,
    unique_property,
)
from destination_datalake.tables.iceberg.commit import set_property
from destination_datalake.tables.iceberg.rework import Unsuitable, require_parquet, rewritable_schema
from destination_datalake.tables.iceberg.snapshots.files import BranchFiles, KeyColumns, LiveFile
from destination_datalake.tables.table import TableName, table_conflict

if TYPE_CHECKING:
    from destination_datalake.protocol.catalog import Stream

UNIQUE_BY = "airbyte.dedup"
"""Table property with the definition of the last merge into the content, which is what readers see.

When this connector appends rows without deduplication, it removes the property. A separate snapshot property records
which rows are unique (`branches.unique_property`).
"""

PENDING_BY = "airbyte.dedup-pending"
"""Table property with the definition for deduplicating the rows on the pending branch.

A sync without deduplication merges the pending rows by this definition. A sync with deduplication uses its own
definition.
"""

DELETED_AT = "_ab_cdc_deleted_at"
"""The field in which change-data-capture sources send the time when a row was deleted (Airbyte CDC docs)."""


@dataclass(frozen=True, slots=True)
class Definition:
    """The columns by which rows are deduplicated, like `Deduplication` but with field IDs instead of column names.

    All columns are top-level columns.
    """

    key: tuple[int, ...]
    cursor: int | None = None
    deleted_at: int | None = None

    @classmethod
    def named(cls, names: Deduplication, schema: Schema) -> Definition:
        """Return the definition with the field IDs of the named columns. The schema must contain these columns."""
        ids = {field.name: field.field_id for field in schema.fields}
        return cls(
            # Sort the IDs, because the order of the columns does not change a key.
            tuple(sorted(ids[name] for name in names.key)),
            ids[names.cursor] if names.cursor is not None else None,
            ids[names.deleted_at] if names.deleted_at is not None else None,
        )

    @classmethod
    def load(cls, name: str, metadata: TableMetadata) -> Definition | None:
        """Return the definition in the table property `name`. None if the property is missing or cannot be decoded."""
        try:
            # Other writers can change table properties, so an invalid value counts as missing.
            return _DEFINITION.decode(metadata.properties.get(name, ""))
        except (ValueError, RecursionError):
            return None

    def write_to(self, name: str, transaction: Transaction) -> None:
        """Store this definition in the table property `name`. Do nothing if the property already has this value."""
        set_property(name, msgspec.json.encode(self).decode(), transaction)

    def has_columns(self, schema: Schema) -> bool:
        """Return whether the schema contains all columns of the key."""
        return all(schema.find_column_name(id_) is not None for id_ in self.key)

    def key_names(self, schema: Schema) -> str:
        """Return the names of the key columns for a message, separated by commas."""
        return ", ".join(schema.find_column_name(id_) or "a dropped column" for id_ in self.key)

    def versions(self, schema: Schema) -> Versions | None:
        """Return the columns by which jobs compare versions: rows with the same key.

        Return None if a key column was dropped, or if a metadata column that the comparison needs was dropped. If the
        table has no cursor column, jobs compare the time of extraction instead. If the table has no deletion column,
        jobs delete no row.
        """
        ids = {field.field_id: field.name for field in schema.fields}
        names = {field.name: field.field_id for field in schema.fields}
        # Another engine may have renamed or dropped columns since the property was set.
        if not (all(id_ in ids for id_ in self.key) and {EXTRACTED_AT, RAW_ID} <= names.keys()):
            return None
        return Versions(
            self.key,
            self.cursor if self.cursor in ids else None,
            names[EXTRACTED_AT],
            names[RAW_ID],
            self.deleted_at if self.deleted_at in ids else None,
        )


_DEFINITION = msgspec.json.Decoder(Definition)


def remedy_for_key(definition: Definition, metadata: TableMetadata) -> str:
    """Return what a user can do if this connector can no longer merge rows by this key, without a final full stop.

    No row is lost. If a column was renamed, the user can rename it back. If a column was dropped, the user can read the
    pending rows as of a snapshot whose schema still contains the column (Iceberg spec: schema-id of snapshots).
    """
    pending = rows_on(PENDING_BRANCH, metadata)
    remedy = f"{pending}. " if pending is not None else ""
    schema = metadata.schema()
    names = [(schema.find_column_name(id_), _first_name(id_, metadata)) for id_ in definition.key]
    renamed = [
        f"ALTER TABLE ... RENAME COLUMN {name} TO {first_name}" for name, first_name in names if name != first_name
    ]
    if renamed and definition.has_columns(schema):
        return f"{remedy}Rename the column back ({', '.join(renamed)})"
    remedy += "Refresh the stream to send all its records again, or restore the earlier primary key"
    if pending is None or definition.has_columns(schema):
        return remedy
    head = metadata.refs[PENDING_BRANCH].snapshot_id
    return (
        f"{remedy}. A refresh discards the pending rows. If the source no longer contains the dropped column, first "
        f"read the pending rows with this column: SELECT * FROM ... VERSION AS OF {head}"
    )


def why_unmergeable(metadata: TableMetadata) -> str | None:
    """Return why the pending rows of a table cannot be merged, as a clause with a remedy.

    Return None if the rows can be merged, or if no rows are pending. This function finds only one reason: a column of
    the key was dropped.
    """
    scope, schema = pending_scope(metadata), metadata.schema()
    if scope is None or scope.definition.has_columns(schema):
        return None
    key = scope.definition.key_names(schema)
    return f"its pending rows were written with the primary key ({key}). {remedy_for_key(scope.definition, metadata)}"


def _first_name(id_: int, metadata: TableMetadata) -> str | None:
    """Return a column's name in the oldest schema that contains the column. None if no schema contains it."""
    schemas = sorted(metadata.schemas, key=lambda schema: schema.schema_id)
    return next((name for schema in schemas if (name := schema.find_column_name(id_)) is not None), None)


@dataclass(frozen=True, slots=True)
class MergeScope:
    """The branches that a merge combines.

    The merge moves the rows on the branch `pending` to the branch `target`, keeps only the latest row per key, and
    removes the branch `pending`. If `pending` is None, the merge combines only the rows on `target` with each other.
    """

    definition: Definition
    target: str
    pending: str | None

    def is_unique(self, metadata: TableMetadata) -> bool:
        """Return whether the table records that the rows on `target` are unique by the key."""
        return self._has_same_key(metadata) and inherited_uniqueness(self.target, metadata) == unique_property(
            self.definition.key
        )

    def last_unique(self, metadata: TableMetadata) -> Snapshot | None:
        """Return the last snapshot of `target` whose rows are unique by the key. None if there is no such snapshot."""
        return last_unique(self.target, self.definition.key, metadata) if self._has_same_key(metadata) else None

    def _has_same_key(self, metadata: TableMetadata) -> bool:
        """Return whether `target` is main, and the last merge into main had the same key.

        Return False if this connector has appended rows to main without deduplication since that merge.
        """
        by = Definition.load(UNIQUE_BY, metadata)
        return self.target == MAIN_BRANCH and by is not None and by.key == self.definition.key


def pending_scope(metadata: TableMetadata) -> MergeScope | None:
    """Return the scope of a merge of the table's pending rows into main. None if the table has no pending rows."""
    by = Definition.load(PENDING_BY, metadata)
    if by is None or PENDING_BRANCH not in metadata.refs:
        return None
    return MergeScope(by, MAIN_BRANCH, PENDING_BRANCH)


def deduplication(
    stream: Stream, table: TableName, columns: Sequence[Field], *, deletes_hard: bool
) -> Deduplication | None:
    """Return the names of the columns by which the stream is deduplicated, or None without deduplication.

    Raises TableConflict if a field of the primary key, or the cursor field, has no column or a column of objects or
    arrays. With `deletes_hard`, the result contains the deletion column, so that a merge deletes keys.
    """
    if not stream.dedup:
        return None
    named = {column.path: column for column in columns}

    def column_of(field: str, role: str) -> str:
        column = named.get((field,))
        if column is None or isinstance(column.type, Struct | List):
            reason = "has no column of its own" if column is None else "is an object or an array"
            problem = (
                f"the {role} of the stream is the field {field}, which {reason}. Rows can be compared only by single "
                f"values. Choose another {role} in the connection's settings, or a sync mode without deduplication"
            )
            raise table_conflict(stream.id, table, problem)
        return column.name

    cursor = stream.cursor_field[0] if stream.cursor_field else None
    return Deduplication(
        tuple(column_of(field, "primary key") for field in stream.primary_key),
        column_of(cursor, "cursor") if cursor is not None else None,
        named[DELETED_AT,].name if deletes_hard and (DELETED_AT,) in named else None,
    )


# --- the plan ---------------------------------------------------------------------------------------------------------


_ROWS_OF_A_PART = 1_000_000
"""Maximum number of pending rows per task that finds the latest row of each key.

If more rows are pending, several tasks divide the keys among themselves.
"""


@dataclass(frozen=True, slots=True)
class MergePlan:
    """The files that take part in a merge, for one state of the table.

    The `stored` files contain the unique rows of the target branch. The merge combines the rows in the `pending` files
    with each other and with the stored rows. The last `arriving` pending files are on the pending branch. The other
    pending files are already on the target branch, because another writer has added rows to the target branch or
    replaced its content. Such a file stays unless the merge removes some rows of the file.
    """

    table: Table
    scope: MergeScope
    versions: Versions
    schema: pa.Schema
    pending: tuple[LiveFile, ...]
    arriving: int
    stored: tuple[LiveFile, ...]

    @property
    def metadata(self) -> TableMetadata:
        """The table's metadata at the time of the plan."""
        return self.table.metadata

    @property
    def pending_head(self) -> Snapshot | None:
        """The head of the pending branch, which contains the arriving files. None if the scope has no such branch."""
        return self.metadata.snapshot_by_name(self.scope.pending) if self.scope.pending is not None else None

    @property
    def paths(self) -> frozenset[str]:
        """The URIs of all data files and delete files that jobs may read."""
        return frozenset(path for file in (*self.pending, *self.stored) for path in file.state)

    @property
    def columns(self) -> pa.Schema:
        """The columns by which jobs compare the versions of a row, with the present types of these columns."""
        return pa.schema([field for field in self.schema if field_id(field) in self.versions.columns])

    @property
    def pending_in_target(self) -> int:
        """The number of pending files that are already on the target branch. These files come first in `pending`."""
        return len(self.pending) - self.arriving

    def arrives(self, number: int) -> bool:
        """Return whether the pending file at index `number` of `pending` is on the pending branch."""
        return number >= self.pending_in_target

    @property
    def parts(self) -> int:
        """The number of parts into which the merge divides the keys. One task per part finds the latest rows."""
        # The two minus signs round the quotient up.
        return max(1, -(-sum(file.entry.record_count for file in self.pending) // _ROWS_OF_A_PART))

    def may_change(self, index: Sequence[IndexPart]) -> Iterator[tuple[LiveFile, tuple[IndexPart, ...]]]:
        """Yield the stored files that may contain keys of the pending rows.

        `index` contains the latest pending row of each key. Each file comes with the parts of the index whose keys the
        file may contain.
        """
        key = KeyColumns.for_fields(self.versions.key, self.metadata.schema())
        partitions = self._partitions()
        for file in self.stored:
            # Partition values of different specs cannot be compared.
            has_same_spec = file.entry.spec_id == self.pending[0].entry.spec_id
            if partitions is not None and has_same_spec and file.partition not in partitions:
                continue
            if parts := tuple(part for part in index if key.may_have(file.entry, part)):
                yield file, parts

    def _partitions(self) -> set[tuple[int, str]] | None:
        """Return the partitions that can contain rows with the keys of pending rows. None if any partition can.

        If the source of every partition field is a key column, rows with the same key are in the same partition. If all
        pending files then have the same partition spec, return the partitions of these files.
        """
        metadata = self.metadata
        specs = {file.entry.spec_id for file in self.pending}
        if len(specs) != 1:
            return None
        fields = metadata.specs()[specs.pop()].fields
        for field in fields:
            if isinstance(field.transform, VoidTransform):
                continue
            # 0.0 and -0.0 are the same key, but belong to different partitions.
            is_exact = not isinstance(_type(field.source_id, metadata.schema()), FloatType | DoubleType)
            if field.source_id not in self.versions.key or not is_exact:
                return None
        return {file.partition for file in self.pending}


def plan_merge(table: Table, scope: MergeScope, files: BranchFiles) -> MergePlan | None:
    """Plan a merge for the table's present state. Return None if no rows are pending.

    Raises Unsuitable if the rows cannot be merged: a key column or a metadata column was dropped, a column has an
    unsupported type, equality deletes apply to a file, a file is not a Parquet file, or the table lists a file twice.
    Raises TableConflict if a manifest cannot be read completely.
    """
    schema, versions = table.schema(), scope.definition.versions(table.schema())
    if versions is None:
        raise Unsuitable(
            f"its rows are deduplicated by ({scope.definition.key_names(schema)}), but a column of this key or a "
            f"metadata column of the connector was dropped. {remedy_for_key(scope.definition, table.metadata)}"
        )
    arrow = rewritable_schema(table.metadata)
    arriving = files.on_branch(table, scope.pending) if scope.pending is not None else []
    content = files.on_branch(table, scope.target)
    # Check each data file: a table may contain delete files that apply to no data file, for example after a compaction.
    if any(file.has_equality_deletes for file in (*arriving, *content)):
        raise Unsuitable(
            "another engine added equality deletes, which this connector does not apply. Compact the table (Athena: "
            "OPTIMIZE; Spark: rewrite_data_files with delete-file-threshold 1), and run the sync again"
        )
    require_parquet((*arriving, *content))
    # A commit removes files by path, so it would remove all entries of a file that is listed twice. Also, the merge
    # would read the rows of such a file twice.
    if len({file.path for file in (*arriving, *content)}) < len(arriving) + len(content):
        raise Unsuitable(
            "it lists a file more than once, so it contains the rows of this file more than once. Rewrite the "
            "table's files (Spark: rewrite_data_files with rewrite-all), and run the sync again"
        )
    unique = _unique(content, table, scope, files)
    pending = [*(file for file in content if file.path not in unique), *arriving]
    if not pending:
        return None
    stored = tuple(file for file in content if file.path in unique)
    return MergePlan(table, scope, versions, arrow, tuple(pending), len(arriving), stored)


def _unique(content: Sequence[LiveFile], table: Table, scope: MergeScope, files: BranchFiles) -> frozenset[str]:
    """Return the paths of the content files whose rows, taken together, are unique by the key.

    These files belong to the last snapshot with unique rows. Leaves out a file that has lost a delete file since this
    snapshot, because the deleted rows are visible again.
    """
    if scope.is_unique(table.metadata):
        return frozenset(file.path for file in content)
    if (snapshot := scope.last_unique(table.metadata)) is None:
        return frozenset()
    deletes = {file.path: set(file.state) for file in files.at(snapshot, table.io)}
    return frozenset(file.path for file in content if file.path in deletes and deletes[file.path] <= set(file.state))


def _type(id_: int, schema: Schema) -> object:
    return schema.find_type(id_) if schema.find_column_name(id_) is not None else None
