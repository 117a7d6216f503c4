"""Another sync takes a table over: the older one stops, and what it had acknowledged is there."""

from collections.abc import Sequence

import pytest

from integration_tests.harness.messages import configured_stream, record, state, status
from integration_tests.harness.table_kinds import TABLE_KINDS
from integration_tests.harness.warehouse import INTEGER, Warehouse, object_schema

COMPLETE = status("orders", "COMPLETE")
WIDE = 2**40
"""An id for which the column must become wider."""
HIVE = [kind for kind in TABLE_KINDS if kind.options["table_type"] == "HIVE"]


def orders(generation: int = 1, minimum: int = 0) -> Sequence[dict[str, object]]:
    return [configured_stream("orders", object_schema(id=INTEGER), generation=generation, minimum=minimum)]


def order(id: int) -> bytes:
    return record("orders", {"id": id})


@pytest.mark.share(1)
@pytest.mark.parametrize(
    ("newer", "ids"), [(orders(3), [1, 2, 3]), (orders(2, 2), [2, 3])], ids=["that appends", "of its generation"]
)
def test_an_overwrite_that_another_sync_takes_over_stops_and_loses_nothing(
    warehouse: Warehouse, newer: Sequence[dict[str, object]], ids: Sequence[int]
) -> None:
    """What it had acknowledged goes on with the newer sync; what it sends from then on is refused, with the reason."""
    warehouse.sync(orders(), [order(1), COMPLETE])

    with warehouse.start(orders(2, 2), flush_interval_seconds=1) as older:
        older.send([order(2), state("orders", 1)])
        older.wait_for_states(1)
        warehouse.sync(newer, [order(3), COMPLETE])
        older.send([order(4), state("orders", 2), COMPLETE])
        run = older.close()

    assert run.exit_code == 1
    (error,) = run.errors
    assert error["failure_type"] == "config_error"
    assert "another sync has taken over the table" in error["message"]
    assert len(run.states) == 1
    assert warehouse.ids("orders") == ids


@pytest.mark.parametrize("table_kind", HIVE, ids=lambda kind: kind.name)
def test_a_sync_that_appends_to_a_hive_table_stops_once_another_one_writes_to_it(warehouse: Warehouse) -> None:
    """What it had acknowledged stays, also when the other one makes a column wider; a retry sends the rest."""
    with warehouse.start(orders(), flush_interval_seconds=1) as older:
        older.send([order(1), state("orders", 1)])
        older.wait_for_states(1)
        warehouse.sync(orders(), [order(WIDE), COMPLETE])
        older.send([order(2), state("orders", 2), COMPLETE])
        run = older.close()

    assert run.exit_code == 1
    (error,) = run.errors
    assert "another sync has taken over the table" in error["message"]
    assert len(run.states) == 1
    assert warehouse.ids("orders") == [1, WIDE]
    warehouse.sync(orders(), [order(2), COMPLETE])
    assert warehouse.ids("orders") == [1, 2, WIDE]
