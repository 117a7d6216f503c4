"""The kinds of table that a sync can end in."""

from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class TableKind:
    """A kind of table: the options that choose it, and what it can do. Tests ask what it can, never which it is."""

    name: str
    options: Mapping[str, object]
    promotes_in_place: bool
    """A wider integer type for a column is a change of the catalog alone."""
    keeps_zones: bool
    """A reader can tell a timestamp with a zone from one without."""
    is_typed: bool
    """The data files carry types of their own."""


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
"""Partitioned by what every stream has."""
