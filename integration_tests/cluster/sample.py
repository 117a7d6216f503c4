"""A sync with something of everything, and what a reader finds of it: equal, wherever Spark runs."""

from typing import Any

from integration_tests.harness.messages import configured_stream, record, state, status
from integration_tests.harness.warehouse import BOOLEAN, INTEGER, NUMBER, STRING, Warehouse, object_schema

_SCHEMA = object_schema(
    id=INTEGER,
    name=STRING,
    price=NUMBER,
    paid=BOOLEAN,
    day={"type": "string", "format": "date"},
    at={"type": "string", "format": "date-time", "airbyte_type": "timestamp_with_timezone"},
    tags={"type": "array", "items": STRING},
    address=object_schema(street=STRING, number=INTEGER),
)
STREAMS = [configured_stream("orders", _SCHEMA), configured_stream("users", object_schema(id=INTEGER, name=STRING))]


def _order(id: int) -> bytes:
    return record(
        "orders",
        {
            "id": id if id % 50 else 2**40 + id,
            "name": f"order {id} é 🚀" * (id % 7),
            "price": id / 3,
            "paid": None if id % 11 == 0 else id % 2 == 0,
            "day": "2024-02-30" if id % 97 == 0 else f"2024-02-{id % 28 + 1:02}",
            "at": f"2024-02-01T10:00:{id % 60:02}+02:00",
            "tags": [f"tag {n}" for n in range(id % 3)],
            "address": {"street": "Main \n street", "number": id},
        },
    )


def lines(records: int) -> list[bytes]:
    """Return so many orders, states in between, and a few users."""
    sent = []
    for id in range(records):
        sent.append(_order(id))
        if id % 100 == 99:
            sent.append(state("orders", id))
    users = [record("users", {"id": id, "name": None}) for id in range(3)]
    return [*sent, *users, state("users", 3), status("orders", "COMPLETE"), status("users", "COMPLETE")]


def read_all(warehouse: Warehouse) -> dict[str, Any]:
    """Return what readers find: rows without the ids that every run draws anew, types, and rejects of values."""
    return {
        table: (
            warehouse.columns(table),
            sorted(repr(_without_raw_id(row)) for row in warehouse.whole_rows(table)),
        )
        for table in ("orders", "users")
    } | {"rejects": len(warehouse.lake.rejects())}


def _without_raw_id(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "_airbyte_raw_id"}
