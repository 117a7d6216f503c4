"""Decides which existing Iceberg tables this connector can write to, and continues tables of S3 Data Lake.

The connector rejects a table if some engine would not read the connector's rows in this table correctly.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from pyiceberg.io import FileIO
from pyiceberg.partitioning import PartitionField
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update.snapshot import ManageSnapshots
from pyiceberg.transforms import TruncateTransform, VoidTransform
from pyiceberg.types import DecimalType, IcebergType, ListType, MapType, NestedField, StructType

from destination_datalake.files.plan import DataFile
from destination_datalake.partitioning.spec import parse_transform
from destination_datalake.protocol.catalog import Stream, StreamId
from destination_datalake.schema.columns import CHANGE
from destination_datalake.schema.evolution import AddColumn, SchemaChange
from destination_datalake.schema.names import GENERATION_ID, META
from destination_datalake.tables.iceberg.branches import copy_hint, history, summary_value
from destination_datalake.tables.iceberg.layout import source_paths
from destination_datalake.tables.iceberg.schema import column_types
from destination_datalake.tables.iceberg.snapshots.files import BranchFiles, has_row_level_deletes
from destination_datalake.tables.migration import how_to_continue
from destination_datalake.tables.naming import TableOwner
from destination_datalake.tables.s3_data_lake import has_epoch_metadata_columns
from destination_datalake.tables.table import TableConflict, TableName, table_conflict

_NEWEST_FORMAT = 2

_METADATA_FIELDS = frozenset(
    {META, f"{META}.sync_id", f"{META}.changes", f"{META}.changes.element"}
    | {f"{META}.changes.element.{field.name}" for field in CHANGE.fields}
)
"""The paths of the nested fields in the metadata columns, and of the fields that contain them."""

UNREADABLE = (
    "this connector cannot read its metadata, because the connector supports format versions 1 and 2, without "
    "features of later versions, such as partition fields of several columns. Copy the table to a new table with the "
    "property format-version 2"
)
"""The reason for rejecting a table with an unsupported format version. A clause about the table, with a remedy."""


def no_iceberg_table(glue_table: Mapping[str, Any], stream: Stream) -> str:
    """Return why the stream cannot be written to an existing table that is not an Iceberg table, with a remedy."""
    new_table = "table_prefix or another lakeformation_database_name to create a new table"
    if stream.dedup:
        return (
            f"it is not an Iceberg table, and only Iceberg tables support deduplication. Set {new_table}, or choose a "
            "sync mode without deduplication (append, overwrite) and set table_type to HIVE to continue the table."
        )
    remedy = how_to_continue(glue_table) or "table_type to HIVE to continue the table"
    return f"it is not an Iceberg table. Set {remedy}, or set {new_table}."


def newer_format(metadata: TableMetadata) -> str | None:
    """Return why the table's format version is unsupported, or None if it is supported.

    The result is a clause about the table, with a remedy. A table with an unsupported version cannot be changed at all.
    """
    if metadata.format_version <= _NEWEST_FORMAT:
        return None
    return (
        f"its format-version is {metadata.format_version}, but this connector supports only versions 1 and 2. Copy "
        f"the table to a new table with the property format-version 2{copy_hint(metadata)}"
    )


def incompatibility(metadata: TableMetadata) -> str | None:
    """Return why this connector cannot write to the table, or None if it can.

    The result is a clause about the table, with a remedy.
    """
    if (problem := newer_format(metadata)) is not None:
        return problem
    for field in metadata.spec().fields:
        if (problem := _unwritable(field, metadata.schema())) is not None:
            return f"{problem}. Remove that partition field (ALTER TABLE ... DROP PARTITION FIELD {field.name})"
    for sorted_by in metadata.sort_order().fields:
        if metadata.schema().find_column_name(sorted_by.source_id) is None:
            return (
                "its sort order contains a dropped column. Set another sort order (ALTER TABLE ... WRITE ORDERED BY "
                "...)"
            )
    if ambiguous := _names_equal_but_for_case(metadata.schema().as_struct(), ""):
        return (
            f"its columns {' and '.join(ambiguous)} differ only in upper and lower case, so Glue, Athena and Spark "
            "cannot distinguish these columns. Rename one of them (ALTER TABLE ... RENAME COLUMN ... TO ...)"
        )
    return None


def required_field_within(schema: Schema, written: Collection[str]) -> str | None:
    """Return the path of a required field inside a written column, or of a required nested column, or None.

    Such a field is a problem: data files do not count the nulls of nested fields separately, so the connector would not
    notice missing values. The function skips fields of the metadata columns, because the connector always writes these
    fields, except for values that the platform may not send.
    """
    columns = (field for field in schema.fields if field.name in written and not field.field_type.is_primitive)
    paths = (path for field in columns for path, nested in _flattened(field, "") if nested.required)
    return next((path for path in paths if path not in _METADATA_FIELDS), None)


def require_all_written(
    stream: Stream, table: TableName, metadata: TableMetadata, written: Collection[str], changes: Sequence[SchemaChange]
) -> None:
    """Raise TableConflict if rows with the written columns do not fit the table, whatever their values.

    The rows do not fit if the table requires a value that rows may lack. They also do not fit if a schema change adds a
    column with the name of a partition field, even one of a former partition spec (Iceberg: PartitionSpec).
    """
    schema = metadata.schema()

    def require(column: str | None, why: str) -> None:
        if column is not None:
            raise _required_conflict(stream.id, table, column, why, schema)

    unwritten = (field.name for field in schema.fields if field.required and field.name not in written)
    require(next(unwritten, None), "the stream has no such field")
    required = {path for field in schema.fields for path, nested in _flattened(field, "") if nested.required}
    unsent = {f"{META}.sync_id": stream.sync_id, GENERATION_ID: stream.generation}
    absent = (path for path, value in unsent.items() if value is None and path in required)
    require(next(absent, None), "the platform sends no value for this column")
    require(required_field_within(schema, written), "the connector cannot detect missing values of nested fields")
    new = {".".join(change.path).lower() for change in changes if isinstance(change, AddColumn)}
    names = (field.name for spec in metadata.partition_specs for field in spec.fields)
    if (name := next((name for name in names if name.lower() in new), None)) is not None:
        raise table_conflict(
            stream.id,
            table,
            f"its partition field {name} has the same name as a new column of the stream, and no engine can read a "
            "table with both. Rename the stream's field, or choose another table_prefix",
        )


def require_values_fit(stream: StreamId, table: TableName, file: DataFile, metadata: TableMetadata) -> None:
    """Raise TableConflict if a file has nulls in a required column, or a partition value with too many digits.

    A truncating partition transform rounds down: -9.9 becomes -10.0, which does not fit decimal(2, 1). No engine writes
    such a partition (Iceberg: DecimalUtil.toReusedFixLengthBytes).
    """
    schema = metadata.schema()
    required = {field.name for field in schema.fields if field.required and field.field_type.is_primitive}
    if (column := min(required & file.with_nulls, default=None)) is not None:
        raise _required_conflict(stream, table, column, "some records contain no value for this column", schema)
    for field, value in zip(metadata.spec().fields, file.partition, strict=False):
        if isinstance(value, Decimal) and isinstance(field.transform, TruncateTransform):
            type_ = schema.find_type(field.source_id)
            if isinstance(type_, DecimalType) and len(value.as_tuple().digits) > type_.precision:
                raise table_conflict(
                    stream,
                    table,
                    f"its partition field {field.name} truncates a negative value to a number with more digits than "
                    "the column's type allows. Partition by another transform, such as bucket[16] (partition_by, or "
                    f"ALTER TABLE ... REPLACE PARTITION FIELD {field.name} WITH ...)",
                )


def _required_conflict(stream: StreamId, table: TableName, column: str, why: str, schema: Schema) -> TableConflict:
    """Return the error for a required column. `why` is a clause that states why its value may be missing."""
    statement = f"ALTER TABLE ... ALTER COLUMN {column} DROP NOT NULL"
    if schema.find_field(column).field_id in schema.identifier_field_ids:
        # Identifier fields must be required (Iceberg spec: Identifier Field IDs).
        statement = f"ALTER TABLE ... DROP IDENTIFIER FIELDS {column}, then {statement}"
    problem = f"its column {column} is required, but {why}. Make the column optional ({statement})"
    return table_conflict(stream, table, problem)


def _unwritable(field: PartitionField, schema: Schema) -> str | None:
    """Return why this connector cannot write a partition field, as a clause about the table, or None."""
    if isinstance(field.transform, VoidTransform):
        return None
    try:
        parse_transform(str(field.transform))
    except ValueError:
        return f"its partition field {field.name} uses a transform that this connector does not support"
    if field.source_id in source_paths(schema):
        return None
    if schema.find_column_name(field.source_id) is None:
        return f"its partition field {field.name} refers to a dropped column"
    return f"its partition field {field.name} refers to a value inside a list or a map"


def _names_equal_but_for_case(type_: IcebergType, above: str) -> tuple[str, str] | None:
    """Return the paths of two fields of one struct, at any depth, whose names differ only in case, or None."""
    fields = _children(type_)
    spellings: dict[str, str] = {}
    for field in fields:
        if (first_spelling := spellings.setdefault(field.name.lower(), field.name)) != field.name:
            return f"{above}{first_spelling}", f"{above}{field.name}"
    nested = (_names_equal_but_for_case(field.field_type, f"{above}{field.name}.") for field in fields)
    return next((paths for paths in nested if paths is not None), None)


def _flattened(field: NestedField, above: str) -> Iterator[tuple[str, NestedField]]:
    path = f"{above}{field.name}"
    yield path, field
    children = _children(field.field_type)
    # A map's keys are always required (Iceberg spec: nested types).
    for child in children[1:] if isinstance(field.field_type, MapType) else children:
        yield from _flattened(child, f"{path}.")


def _children(type_: IcebergType) -> tuple[NestedField, ...]:
    match type_:
        case StructType(fields=fields):
            return fields
        case ListType():
            return (type_.element_field,)
        case MapType():
            return (type_.key_field, type_.value_field)
    return ()


# --- tables of Airbyte's S3 Data Lake destination ---------------------------------------------------------------------


# S3 Data Lake writes the rows of each sync to a branch. When the sync succeeds, S3 Data Lake moves main to the branch's
# head. If a sync fails, the rows on its branch are acknowledged, so the platform does not send them again. By default,
# S3 Data Lake's syncs with deduplication delete former rows by equality deletes.

_logger = logging.getLogger(__name__)

STAGING_PREFIX = "airbyte_staging"
"""Name prefix of S3 Data Lake's branches."""


def is_of_s3_data_lake(metadata: TableMetadata) -> bool:
    """Return whether S3 Data Lake created the table, even if this connector has written to it since."""
    return TableOwner.load(metadata.properties) is None and has_epoch_metadata_columns(column_types(metadata))


def staging_branch_ahead(metadata: TableMetadata) -> str | None:
    """Return the staging branch of S3 Data Lake that is ahead of main, or None.

    A branch is ahead if its history contains main's head, followed by further snapshots. If main has a different
    history, for example after a compaction, no branch counts as ahead, because a branch's snapshots then do not show
    which rows main lacks.
    """
    return next((name for name in _staging_branches(metadata) if _is_ahead(name, metadata)), None)


def publish_staged(table: TableName, transaction: Transaction) -> None:
    """Move main to the head of the staging branch that is ahead, as S3 Data Lake's next sync would do.

    Keep the branch. Do nothing if no staging branch is ahead.
    """
    branch = staging_branch_ahead(transaction.table_metadata)
    if branch is None:
        return
    head = transaction.table_metadata.refs[branch].snapshot_id
    _logger.warning(
        "Table %s: the branch %s contains acknowledged rows of a failed sync of Airbyte's S3 Data Lake destination. "
        "This sync publishes these rows.",
        table,
        branch,
    )
    with ManageSnapshots(transaction) as snapshots:
        # This update moves a branch that exists, and creates main in a table without it.
        snapshots.create_branch(head, MAIN_BRANCH)


def equality_deletes(metadata: TableMetadata, io: FileIO) -> str | None:
    """Return the branch with the latest rows if equality deletes may apply to the branch's files, otherwise None.

    The branch with the latest rows is the staging branch that is ahead of main, or main if no branch is ahead. The
    function reads manifests only if the snapshot's summary does not rule out equality deletes.
    """
    branch = staging_branch_ahead(metadata) or MAIN_BRANCH
    snapshot = metadata.snapshot_by_name(branch)
    # The summary is optional, so only an explicit zero rules out deletes.
    if summary_value(snapshot, "total-equality-deletes") == "0" or not has_row_level_deletes(snapshot, io):
        return None
    return branch if any(file.has_equality_deletes for file in BranchFiles().at(snapshot, io)) else None


def require_no_equality_deletes(stream: StreamId, name: TableName, table: Table) -> None:
    """Raise TableConflict if equality deletes may apply to main, or to the staging branch that is ahead of it."""
    if (branch := equality_deletes(table.metadata, table.io)) is not None:
        problem = (
            f"its branch {branch} contains equality deletes, which this connector does not apply when it "
            f"deduplicates. {equality_deletes_remedy(name, branch)}"
        )
        raise table_conflict(stream, name, problem)


def equality_deletes_remedy(table: TableName, branch: str) -> str:
    """Return a sentence that tells users how to apply a branch's equality deletes with Spark."""
    name = f"table => '{table}'"
    publish = f"CALL system.fast_forward({name}, branch => 'main', to => '{branch}') and then "
    return (
        f"Apply the equality deletes once with Spark: {publish if branch != MAIN_BRANCH else ''}CALL "
        f"system.rewrite_data_files({name}, options => map('delete-file-threshold', '1'))"
    )


def s3_data_lake_notes(name: TableName, metadata: TableMetadata, io: FileIO) -> Iterator[str]:
    """Yield notes for users about syncs to an S3 Data Lake table, as clauses about the table."""
    if (branch := staging_branch_ahead(metadata)) is not None:
        yield f"its branch {branch} contains rows of a failed sync, and the next sync that appends publishes these rows"
    for diverged in _diverged_branches(metadata):
        yield (
            f"the history of its branch {diverged} does not contain the head of main, for example because main was "
            "compacted. If the last sync of S3 Data Lake failed, this branch contains rows that no sync publishes, "
            f"so refresh the stream. Otherwise, drop the branch (ALTER TABLE {name} DROP BRANCH {diverged})"
        )
    if (branch := equality_deletes(metadata, io)) is not None:
        yield (
            "it contains equality deletes, so the connector refuses syncs with deduplication. "
            f"{equality_deletes_remedy(name, branch)}"
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
    """Return whether the history of a branch contains main's head, followed by further snapshots."""
    main, snapshots = metadata.refs.get(MAIN_BRANCH), [*history(name, metadata)]
    # The head itself does not count: a branch that ends at main's head has nothing to publish.
    return main is None or any(snapshot.snapshot_id == main.snapshot_id for snapshot in snapshots[1:])
