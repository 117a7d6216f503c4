"""The journal of a sync's tables: columns are compared as they were at first, and as they are at last."""

from __future__ import annotations

from destination_datalake.tables.context import Journal, MergeFigures
from destination_datalake.tables.table import TableName

ORDERS, USERS = TableName("shop", "orders"), TableName("shop", "users")


def test_columns_that_came_and_columns_that_changed_are_told_apart() -> None:
    journal = Journal()

    for columns in ({"id": "int"}, {"id": "int", "name": "string"}, {"id": "long", "name": "string"}):
        journal.columns(ORDERS, columns)
    journal.redirected(ORDERS, {"price": "price__string"})

    history = journal.history(ORDERS)
    assert (history.new_columns, history.promoted_columns) == ({"name": "string"}, {"id": "long"})
    assert history.redirected == {"price": "price__string"}
    assert (journal.history(USERS).new_columns, journal.history(USERS).promoted_columns) == ({}, {})


def test_merges_add_up() -> None:
    journal = Journal()

    journal.merged(ORDERS, MergeFigures(1, 10, 2, 1, 100, 300))
    journal.merged(ORDERS, MergeFigures(1, 5, 0, 0, 50, 50))

    assert journal.history(ORDERS).merged == MergeFigures(2, 15, 2, 1, 150, 350)
