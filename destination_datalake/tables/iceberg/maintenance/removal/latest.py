"""Reading all that a table refers to, while others remove snapshots: what they delete belongs to metadata of before."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from destination_datalake.tables.iceberg.metadata.operations import TableOperations

_Result = TypeVar("_Result")

_ATTEMPTS = 5


def with_latest(operations: TableOperations, act: Callable[[Table], _Result]) -> _Result:
    """Return what `act` returns for the table's present state.

    If a file that the table refers to does not exist, and the table has changed meanwhile, `act` is called again for
    the new state. Raises FileNotFoundError if it has not changed.
    """
    for _ in range(_ATTEMPTS - 1):
        table = operations.load()
        try:
            return act(table)
        except FileNotFoundError:
            if operations.load().metadata_location == table.metadata_location:
                raise
    return act(operations.load())
