"""What a file format means for a Hive table that is there: whether it can take such files, and wider columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from destination_datalake.datafiles import FilePlan
from destination_datalake.tables.entry import Entry


@dataclass(frozen=True, slots=True)
class Layout:
    """Which SerDe reads the files, and whether old ones can stay under a wider column.

    JSON text has no widths. Of Parquet, not every engine reads a 32-bit column where the catalog promises 64 bits.
    """

    serde: str
    promotes: bool


LAYOUTS: Mapping[str, Layout] = {
    "parquet": Layout("org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe", promotes=False),
    "jsonl": Layout("org.openx.data.jsonserde.JsonSerDe", promotes=True),
}


def obstacle(entry: Entry, plan: FilePlan) -> str | None:
    """Say why files of the plan's format cannot be put into this table, and what to set; None if they can."""
    serde = entry.get("StorageDescriptor", {}).get("SerdeInfo", {}).get("SerializationLibrary", "")
    if entry["Parameters"].get("table_type", "").upper() == "ICEBERG":
        return "it is an Iceberg table and table_type is HIVE. Set table_type to ICEBERG"
    if serde.rpartition(".")[2] != LAYOUTS[plan.format].serde.rpartition(".")[2]:
        return f"its files are read by {serde or 'no SerDe'}, not as {plan.format}. Set format_type as it was"
    if entry.get("PartitionKeys"):
        return "it is partitioned, which this version does not write. Choose a table without partition keys"
    if not entry["StorageDescriptor"].get("Location"):
        return "it has no location. Give it one"
    return None
