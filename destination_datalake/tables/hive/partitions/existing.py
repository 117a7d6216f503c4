"""Which partitioned Hive tables are continued, and how: a table's partition keys cannot be changed.

A table is continued if its keys are those that the options mean, or, with options that mean none, in its own way if
that is known: this connector records it, and the keys of Airbyte's AWS Datalake destination have telling names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from destination_datalake.partitioning.paths import PartitionFolders, PartitionKey
from destination_datalake.partitioning.spec import CalendarPart, Part, PartitionField
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.schema.columns import METADATA_COLUMNS
from destination_datalake.schema.types import Date, Field, Int64, Timestamp
from destination_datalake.tables.aws_datalake import InheritedKeys, is_inherited
from destination_datalake.tables.glue.glue_table import TableInput
from destination_datalake.tables.hive.partitions.scheme import PartitionScheme
from destination_datalake.tables.table import TableName, table_conflict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mypy_boto3_glue.type_defs import ColumnTypeDef

_OTHER_TABLE = "set another table_prefix"


def scheme_of(
    stream: StreamId,
    table: TableName,
    table_input: TableInput,
    wanted: PartitionScheme | None,
    columns: Sequence[Field],
) -> PartitionScheme | None:
    """Return how the rows of a stream are partitioned in an existing table; None if they are not.

    `wanted` is what the options mean, None if they leave it to the table. Raises TableConflict.
    """
    try:
        return _scheme_of(table_input, wanted, columns)
    except _OtherPartitions as other:
        raise table_conflict(stream, table, str(other)) from None


class _OtherPartitions(Exception):
    """The table is not partitioned as the options mean. The text says why, and ends with a remedy."""


def _scheme_of(
    table_input: TableInput, wanted: PartitionScheme | None, columns: Sequence[Field]
) -> PartitionScheme | None:
    keys = _keys(table_input)
    recorded = PartitionScheme.recorded(table_input, (*METADATA_COLUMNS, *columns))
    inherited = None if recorded is not None else _inherited(table_input, columns)
    own = recorded or inherited
    if not keys:
        if wanted is None:
            return None
        raise _OtherPartitions(
            f"it is not partitioned, and the options mean the partition keys {wanted}. A Hive table cannot be "
            f"partitioned later. Set partitioning to NO PARTITIONING and leave partition_by out, or {_OTHER_TABLE}"
        )
    projected = table_input["Parameters"].get("projection.enabled", "").lower() == "true"
    if projected and recorded is None:
        raise _OtherPartitions(
            "its parameter projection.enabled is true, and this connector has not set it: Athena would find rows only "
            f"where that projection says. Remove that parameter, or {_OTHER_TABLE}"
        )
    if recorded is not None and _described(recorded.glue_keys()) != keys:
        raise _OtherPartitions(
            f"its partition keys are {_shown(keys)}, while its parameters record {recorded}: somebody has created it "
            f"again. {_OTHER_TABLE.capitalize()}"
        )
    if wanted is None:
        if own is None:
            raise _OtherPartitions(
                f"it is partitioned by {_shown(keys)}, and the options do not say what these are made of. Set "
                f"partitioning, partition_source and partition_by to what they mean, or {_OTHER_TABLE}"
            )
        return own
    if own is not None and own.means_the_same(wanted):
        return own
    if own is None and _described(wanted.glue_keys()) == keys:
        return wanted
    found = str(own) if own is not None else _shown(keys)
    raise _OtherPartitions(
        f"it is partitioned by {found}, and the options mean {wanted}. A Hive table's partition keys, folders and time "
        "zone cannot be changed. Set partitioning, partition_source, partition_by, path_layout, catalog_partitions and "
        f"timezone as they were, partitioning to NO PARTITIONING to continue it as it is, or {_OTHER_TABLE}"
    )


def _inherited(table_input: TableInput, columns: Sequence[Field]) -> PartitionScheme | None:
    """Return how AWS Datalake partitioned a table; None if it did not, or by a column that is no date any more."""
    inherited = InheritedKeys.of(table_input) if is_inherited(table_input) else None
    if inherited is None:
        return None
    source = next((each for each in columns if each.name.lower() == inherited.column.lower()), None)
    if source is None or not isinstance(source.type, Date | Timestamp):
        return None
    keys = [
        PartitionKey(
            PartitionField(f"{inherited.column}_{part}", (source.name,), CalendarPart(cast(Part, part))),
            Date() if part == "date" else Int64(),
            source.type,
        )
        for part in inherited.parts
    ]
    return PartitionScheme(PartitionFolders.hive(keys), "hive", "register")


def _keys(table_input: TableInput) -> list[tuple[str, str]]:
    return _described(table_input.get("PartitionKeys") or ())


def _described(keys: Sequence[Mapping[str, Any] | ColumnTypeDef]) -> list[tuple[str, str]]:
    return [(key["Name"].lower(), key.get("Type", "").lower()) for key in keys]


def _shown(keys: Sequence[tuple[str, str]]) -> str:
    return f"({', '.join(f'{name} {type_}' for name, type_ in keys)})"
