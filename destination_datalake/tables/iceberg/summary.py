"""What an Iceberg table says of the generations of its rows, and our snapshots of the sync that has made them."""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.table import Transaction

from destination_datalake.protocol.catalog import Stream

_GENERATION = "airbyte.generation-id"
_SYNC = "airbyte.sync-id"
_LOWEST_GENERATION = "airbyte.lowest-generation-id"


def summary_of(stream: Stream) -> dict[str, str]:
    """Return what a snapshot with rows of the stream says of itself. Others may expire it."""
    values = {_SYNC: stream.sync_id, _GENERATION: stream.generation}
    return {key: str(value) for key, value in values.items() if value is not None}


def lowest_generation(properties: Mapping[str, str]) -> int | None:
    """Return the lowest generation among the table's rows; None for tables that others filled."""
    lowest = properties.get(_LOWEST_GENERATION, "")
    return int(lowest) if lowest.isdecimal() else None


def generation_property(generation: int | None) -> dict[str, str]:
    """Return what a new table says of the lowest generation among its rows; nothing if nobody counts."""
    return {} if generation is None else {_LOWEST_GENERATION: str(generation)}


def note_lowest_generation(transaction: Transaction, generation: int | None) -> None:
    """Let the table say that this is the lowest generation among its rows, or nothing of it."""
    properties = transaction.table_metadata.properties
    if generation is None and _LOWEST_GENERATION in properties:
        transaction.remove_properties(_LOWEST_GENERATION)
    elif generation is not None and lowest_generation(properties) != generation:
        transaction.set_properties({_LOWEST_GENERATION: str(generation)})
