"""The stream that Airbyte's basic scenarios are played with: `orders`, with an id and a name."""

from typing import Any

from integration_tests.harness.messages import EMITTED_AT, configured_stream, record, status
from integration_tests.harness.warehouse import INTEGER, STRING, object_schema

ID_AND_NAME = object_schema(id=INTEGER, name=STRING)
COMPLETE = status("orders", "COMPLETE")


def orders(generation: int = 0, minimum: int = 0, sync_id: int = 1, **more: Any) -> dict[str, object]:
    """Return the stream `orders` (id, name), appended to unless said otherwise."""
    return configured_stream(
        "orders", more.pop("schema", ID_AND_NAME), generation=generation, minimum=minimum, sync_id=sync_id, **more
    )


def order(id: int, name: str = "x") -> bytes:
    """Return a record. Ids tell the day on which it was extracted."""
    return record("orders", {"id": id, "name": name}, emitted_at=emitted_at(id))


def emitted_at(id: int) -> int:
    """Return when the order was extracted, in epoch milliseconds."""
    return EMITTED_AT + id % 3 * 86_400_000
