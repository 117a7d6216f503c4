"""A check and syncs that write in every way that the connector can write."""

from integration_tests.harness.messages import configured_stream, record, state, status
from integration_tests.harness.warehouse import INTEGER, NUMBER, Warehouse, object_schema

WIDE = 2**40
"""An integer for which a column must become wider."""


def write_in_every_way(warehouse: Warehouse, **options: object) -> None:
    """Check, and sync: rejects, appends, wider columns, an overwrite given up and adopted, one that is published.

    Hive tables get their files by multipart uploads, and adopted ones by copies; where types become wider, files are
    rewritten. Run without a shared disk, segments are staged.
    """
    schema = object_schema(id=INTEGER, amount=NUMBER)
    complete = status("orders", "COMPLETE")

    def orders(generation: int, minimum: int = 0) -> list[dict[str, object]]:
        return [configured_stream("orders", schema, generation=generation, minimum=minimum)]

    def order(id: object, amount: object = 0.5) -> bytes:
        return record("orders", {"id": id, "amount": amount})

    checked = warehouse.platform.check(warehouse.config(**options))
    assert checked.connection_status["status"] == "SUCCEEDED", checked.report()
    warehouse.sync(orders(1), [order(1), order("many"), state("orders", 1), complete], **options)
    warehouse.sync(orders(1), [order(WIDE, 1 / 3), state("orders", 2), complete], **options)
    warehouse.attempt(orders(2, 2), [order(3), state("orders", 3)], **options)
    warehouse.sync(orders(3), [complete], **options)
    warehouse.sync(orders(4, 4), [order(4), state("orders", 4), complete], **options)
