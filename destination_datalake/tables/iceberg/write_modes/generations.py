"""The generations of a table's rows and of its overwrites.

A property has the lowest generation of the rows, and each snapshot that of its own. The property is for tables whose
snapshots have expired. Where main was rolled back, what its snapshot says is true.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH

from destination_datalake.protocol.catalog import Stream
from destination_datalake.tables.fencing import OVERWRITES_PROPERTY, Overwrites
from destination_datalake.tables.iceberg.branches import GENERATION_PREFIX
from destination_datalake.tables.iceberg.snapshots.manifests import holds_files
from destination_datalake.tables.iceberg.snapshots.uniqueness import history
from destination_datalake.tables.table import LOWEST_GENERATION_PROPERTY


def properties_of_new_table(stream: Stream) -> dict[str, str]:
    """Return the generation that a new table is created with; none if it is published only later, or unknown."""
    if stream.generation is None or stream.overwrites_table:
        return {}
    return {LOWEST_GENERATION_PROPERTY: str(stream.generation)}


def lowest_generation(metadata: TableMetadata) -> int | None:
    """Return the lowest generation of the table's rows; None if it is not known.

    What others have added has none. Nor has what they have replaced the table by, and it is not looked for: a sync that
    goes on with the generation of before must not overwrite it by the few rows that it sends.
    """
    lowest = _lowest(metadata.properties)
    for snapshot in history(MAIN_BRANCH, metadata):
        said = _lowest(snapshot.summary.additional_properties) if snapshot.summary is not None else None
        if lowest is not None and said is not None:
            return min(lowest, said)
    return lowest


def says_lowest_generation(metadata: TableMetadata) -> dict[str, str]:
    """Return the property of a snapshot of main whose rows are none of lower generations than those of the table."""
    lowest = _lowest(metadata.properties)
    return {} if lowest is None else {LOWEST_GENERATION_PROPERTY: str(lowest)}


def lowest_generation_with(stream: Stream, adopted: Iterable[str], table: Table) -> int | None:
    """Return the lowest generation with the rows of a stream and of adopted branches; None if it is unknown.

    It is for rows of other writers.
    """
    existing = lowest_generation(table.metadata)
    added = [stream.generation, *(generation_of(branch) for branch in adopted)]
    if existing is None and (None in added or not is_empty(table)):
        return None
    return min(generation for generation in (existing, *added) if generation is not None)


def set_lowest_generation(generation: int | None, transaction: Transaction) -> None:
    """Set the property, or remove it if the generation is unknown."""
    properties = transaction.table_metadata.properties
    if generation is None and LOWEST_GENERATION_PROPERTY in properties:
        transaction.remove_properties(LOWEST_GENERATION_PROPERTY)
    elif generation is not None and _lowest(properties) != generation:
        transaction.set_properties({LOWEST_GENERATION_PROPERTY: str(generation)})


def set_overwrites(overwrites: Overwrites, transaction: Transaction) -> None:
    """Set the property of the generations of overwrites, unless it is so already."""
    if overwrites != Overwrites.of(transaction.table_metadata.properties):
        transaction.set_properties({OVERWRITES_PROPERTY: str(overwrites)})


def is_empty(table: Table) -> bool:
    """Whether the table's content has no files."""
    snapshot = table.current_snapshot()
    return snapshot is None or not holds_files(table, snapshot.snapshot_id)


def _lowest(properties: Mapping[str, str]) -> int | None:
    lowest = properties.get(LOWEST_GENERATION_PROPERTY, "")
    return int(lowest) if lowest.isdecimal() else None


def generation_of(branch: str) -> int | None:
    """Return the generation of a pending overwrite by the name of its branch; None if it has none."""
    generation = branch.removeprefix(GENERATION_PREFIX)
    return int(generation) if generation.isdecimal() else None
