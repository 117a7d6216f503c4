"""The kinds of tables that a sync can write."""

from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class TableKind:
    """A kind of table: the options that select it, and its capabilities.

    Tests must check capabilities, never the name of a kind.
    """

    name: str
    options: Mapping[str, object]
    promotes_in_place: bool
    """Whether an integer column can be widened by changing only the catalog."""
    keeps_zones: bool
    """Whether readers can distinguish timestamps with and without a zone."""
    is_typed: bool
    """Whether data files contain the types of columns."""


TABLE_KINDS = (
    TableKind(
        "iceberg",
        {"format": {"format_type": "Parquet"}, "table_type": "ICEBERG"},
        promotes_in_place=True,
        keeps_zones=True,
        is_typed=True,
    ),
    TableKind(
        "hive-parquet",
        {"format": {"format_type": "Parquet"}, "table_type": "HIVE"},
        promotes_in_place=False,
        keeps_zones=True,
        is_typed=True,
    ),
    TableKind(
        "hive-jsonl",
        {"format": {"format_type": "JSONL"}, "table_type": "HIVE"},
        promotes_in_place=True,
        keeps_zones=False,
        is_typed=False,
    ),
)

_ICEBERG, _HIVE_PARQUET, _ = TABLE_KINDS

PARTITIONED_KINDS = (
    replace(
        _ICEBERG,
        name="iceberg-by-hour",
        options={**_ICEBERG.options, "partitioning": "DAY/HOUR", "partition_source": "extracted_at"},
    ),
    replace(
        _HIVE_PARQUET,
        name="hive-parquet-by-day",
        options={**_HIVE_PARQUET.options, "partitioning": "YEAR/MONTH/DAY", "partition_source": "extracted_at"},
    ),
)
"""Kinds that are partitioned by a column that every stream has."""
