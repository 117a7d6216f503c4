"""The generations of a table's rows and of its overwrites, as its properties have them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyiceberg.table import Table, Transaction

from destination_datalake.protocol.catalog import Stream
from destination_datalake.tables.fencing import OVERWRITES_PROPERTY, Overwrites
from destination_datalake.tables.iceberg.branches import GENERATION_PREFIX
from destination_datalake.tables.iceberg.snapshots.manifests import holds_files
from destination_datalake.tables.table import LOWEST_GENERATION_PROPERTY


def properties_of_new_table(stream: Stream) -> dict[str, str]:
    """Return the generation that a new table is created with; none if it is published only later, or unknown."""
    if stream.generation is None or stream.overwrites_table:
        return {}
    return {LOWEST_GENERATION_PROPERTY: str(stream.generation)}


def lowest_generation(properties: Mapping[str, str]) -> int | None:
    """Return the lowest generation of the table's rows; None if the properties do not have it."""
    lowest = properties.get(LOWEST_GENERATION_PROPERTY, "")
    return int(lowest) if lowest.isdecimal() else None


def lowest_generation_with(stream: Stream, adopted: Iterable[str], table: Table) -> int | None:
    """Return the lowest generation with the rows of a stream and of adopted branches; None if it is unknown.

    It is for rows of other writers.
    """
    existing = lowest_generation(table.metadata.properties)
    added = [stream.generation, *(generation_of(branch) for branch in adopted)]
    if existing is None and (None in added or not is_empty(table)):
        return None
    return min(generation for generation in (existing, *added) if generation is not None)


def set_lowest_generation(generation: int | None, transaction: Transaction) -> None:
    """Set the property, or remove it if the generation is unknown."""
    properties = transaction.table_metadata.properties
    if generation is None and LOWEST_GENERATION_PROPERTY in properties:
        transaction.remove_properties(LOWEST_GENERATION_PROPERTY)
    elif generation is not None and lowest_generation(properties) != generation:
        transaction.set_properties({LOWEST_GENERATION_PROPERTY: str(generation)})


def set_overwrites(overwrites: Overwrites, transaction: Transaction) -> None:
    """Set the property of the generations of overwrites, unless it is so already."""
    if overwrites != Overwrites.of(transaction.table_metadata.properties):
        transaction.set_properties({OVERWRITES_PROPERTY: str(overwrites)})


def is_empty(table: Table) -> bool:
    """Whether the table's content has no files."""
    snapshot = table.current_snapshot()
    return snapshot is None or not holds_files(table, snapshot.snapshot_id)


def generation_of(branch: str) -> int | None:
    """Return the generation of a pending overwrite by the name of its branch; None if it has none."""
    generation = branch.removeprefix(GENERATION_PREFIX)
    return int(generation) if generation.isdecimal() else None
