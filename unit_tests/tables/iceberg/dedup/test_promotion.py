"""A column becomes double while rows are pending, and others are deleted by position."""

from __future__ import annotations

from typing import Any

from destination_datalake.schema.types import Field, Float32, Float64, Int64
from destination_datalake.tables.table import Committed
from unit_tests.tables.iceberg.dedup.orders import Orders
from unit_tests.tables.iceberg.snapshots.consistency import assert_consistent
from unit_tests.tables.iceberg.test_promotion import TENTH, Executors

NARROW = (Field("id", "id", Int64()), Field("price", "price", Float32()))
WIDE = (Field("id", "id", Int64()), Field("price", "price", Float64()))
HOW: dict[str, Any] = {"cursor": "", "columns": NARROW, "dedup": {"deletes": "merge_on_read"}}


def price(orders: Orders, id_: int, price: float) -> dict[str, Any]:
    row = orders.row(id=id_, price=price)
    return {name: row[name] for name in ("_airbyte_raw_id", "_airbyte_extracted_at", "id", "price")}


def test_replaced_rows_stay_replaced_and_pending_ones_are_merged(orders: Orders) -> None:
    lake = orders.lake
    for ids in (range(6), range(2)):
        syncing = orders.open(**HOW)
        lake.commit_rows(syncing, *(price(orders, id_, TENTH) for id_ in ids))
        syncing.merge()
    assert len(lake.deletes()) == 1
    dying = orders.open(**HOW)
    lake.commit_rows(dying, price(orders, 2, TENTH), price(orders, 7, TENTH))

    syncing = orders.open(**HOW)
    wide = lake.write_rows(syncing, price(orders, 3, 0.1), price(orders, 8, 0.1), columns=WIDE)
    assert syncing.commit([wide], Executors()) == Committed()
    assert lake.ids() == [*range(6)]
    assert_consistent(lake)
    syncing.merge()

    assert_consistent(lake)
    rows = lake.load().scan(selected_fields=("id", "price")).to_arrow().to_pylist()
    exact = {row["id"]: row["price"] for row in rows}
    assert len(rows) == len(exact)
    assert exact == {**dict.fromkeys([0, 1, 2, 4, 5, 7], TENTH), 3: 0.1, 8: 0.1}
