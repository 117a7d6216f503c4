"""Whose turn it is: of all syncs that write to a table, one a day removes what has expired.

The time is kept in the table, and written by compare-and-set before the work begins. Whoever dies in between loses a
day, not a file.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyiceberg.table import Table, Transaction

    from destination_datalake.tables.iceberg.metadata.operations import TableOperations

MAINTAINED_AT = "airbyte.maintained-at"
"""The table property with the time, in ISO 8601."""

_EVERY = timedelta(days=1)


def take_turn(operations: TableOperations, now: datetime) -> bool:
    """Write `now` into the table and return true, unless another has done so within a day. Raises as a commit."""

    def build(table: Table, transaction: Transaction) -> bool:
        if is_due := _is_due(table.properties, now):
            transaction.set_properties({MAINTAINED_AT: now.isoformat(timespec="seconds")})
        return is_due

    return operations.commit(build)[1]


def _is_due(properties: Mapping[str, str], now: datetime) -> bool:
    try:
        last = datetime.fromisoformat(properties.get(MAINTAINED_AT, "")).astimezone(UTC)
    except ValueError:
        return True
    # A time in the future is that of a clock that was wrong.
    return not now - _EVERY < last <= now
