"""Airbyte's BasicFunctionalityIntegrationTest here: appends, truncates and changes of schema.

Each test bears its scenario's name, in snake case.
"""

import pytest

from integration_tests.conformance.airbyte.orders import COMPLETE, order, orders
from integration_tests.harness.messages import record, state
from integration_tests.harness.runs.output import same_text, without_stats
from integration_tests.harness.warehouse import INTEGER, STRING, Warehouse, object_schema

pytestmark = pytest.mark.share(3)


def test_truncate_refresh(warehouse: Warehouse) -> None:
    """A truncate refresh keeps the old rows until the stream is complete, over as many syncs as that takes."""
    warehouse.sync([orders(generation=12)], [order(1, "old"), state("orders", 1), COMPLETE])

    unfinished = warehouse.attempt([orders(generation=13, minimum=13)], [order(2, "new"), state("orders", 2)])
    assert unfinished.exit_code == 1
    assert [error["failure_type"] for error in unfinished.errors] == ["transient_error"]
    assert len(unfinished.states) == 1
    assert warehouse.ids("orders") == [1]

    warehouse.sync([orders(generation=13, minimum=13)], [order(3, "new"), state("orders", 3), COMPLETE])
    assert warehouse.ids("orders") == [2, 3]


def test_truncate_refresh_change_sync_mode(warehouse: Warehouse) -> None:
    """From append to overwrite and back: replaced at the end of the overwrite, appended to afterwards."""
    warehouse.sync([orders(generation=0)], [order(1), COMPLETE])

    warehouse.sync([orders(generation=1, minimum=1, mode="overwrite")], [order(2), COMPLETE])
    assert warehouse.ids("orders") == [2]

    warehouse.sync([orders(generation=1)], [order(3), COMPLETE])
    assert warehouse.ids("orders") == [2, 3]


def test_interrupted_truncate_with_prior_data(warehouse: Warehouse) -> None:
    """A truncate killed after an acknowledged state: old rows stay, and the resumed one loses nothing."""
    warehouse.sync([orders(generation=12)], [order(1), COMPLETE])

    with warehouse.start([orders(generation=13, minimum=13)], flush_interval_seconds=1) as running:
        running.send([order(2), state("orders", 2)])
        running.wait_for_state()
        running.kill()
    assert warehouse.ids("orders") == [1]

    warehouse.sync([orders(generation=13, minimum=13)], [order(3), COMPLETE])
    assert warehouse.ids("orders") == [2, 3]


def test_interrupted_truncate_without_prior_data(warehouse: Warehouse) -> None:
    """The same for a table that did not exist before."""
    with warehouse.start([orders(generation=13, minimum=13)], flush_interval_seconds=1) as running:
        running.send([order(2), state("orders", 2)])
        running.wait_for_state()
        running.kill()

    warehouse.sync([orders(generation=13, minimum=13)], [order(3), COMPLETE])

    assert warehouse.ids("orders") == [2, 3]


def test_resume_after_cancelled_truncate(warehouse: Warehouse) -> None:
    """Rows that a truncate acknowledged before the user cancelled it reach the table with the next normal sync."""
    warehouse.sync([orders(generation=12)], [order(1), COMPLETE])
    warehouse.attempt([orders(generation=13, minimum=13)], [order(2), state("orders", 2)])
    assert warehouse.ids("orders") == [1]

    warehouse.sync([orders(generation=14)], [order(3), COMPLETE])

    assert warehouse.ids("orders") == [1, 2, 3]


def test_append(warehouse: Warehouse) -> None:
    """A second sync adds to the rows of the first, each with its own sync and generation."""
    warehouse.sync([orders(generation=0, sync_id=41)], [order(1), COMPLETE])

    warehouse.sync([orders(generation=1, sync_id=42)], [order(2), COMPLETE])

    origins = {
        row["id"]: (row["_airbyte_generation_id"], row["_airbyte_meta"]["sync_id"])
        for row in warehouse.whole_rows("orders")
    }
    assert origins == {1: (0, 41), 2: (1, 42)}


def test_append_schema_evolution(warehouse: Warehouse) -> None:
    """A dropped column is null from then on, a new one is null before, and one of a new type gets a neighbour."""
    before = object_schema(id=INTEGER, to_drop=STRING, to_change=INTEGER)
    after = object_schema(id=INTEGER, to_change=STRING, to_add=STRING)
    warehouse.sync([orders(schema=before)], [record("orders", {"id": 1, "to_drop": "d", "to_change": 42}), COMPLETE])

    warehouse.sync([orders(schema=after)], [record("orders", {"id": 2, "to_change": "42s", "to_add": "a"}), COMPLETE])

    assert warehouse.rows("orders") == [
        {"id": 1, "to_drop": "d", "to_change": 42, "to_change__string": None, "to_add": None},
        {"id": 2, "to_drop": None, "to_change": None, "to_change__string": "42s", "to_add": "a"},
    ]


def test_append_json_schema_evolution(warehouse: Warehouse) -> None:
    """A property added inside an object is there in new rows; the old rows keep what they had."""
    before = object_schema(id=INTEGER, inner=object_schema(a=STRING))
    after = object_schema(id=INTEGER, inner=object_schema(a=STRING, b=STRING))
    warehouse.sync([orders(schema=before)], [record("orders", {"id": 1, "inner": {"a": "1"}}), COMPLETE])

    warehouse.sync([orders(schema=after)], [record("orders", {"id": 2, "inner": {"a": "2", "b": "3"}}), COMPLETE])

    first, second = (row for row in warehouse.rows("orders"))
    values = [
        {key: value for kept in row.values() if isinstance(kept, dict) for key, value in kept.items() if value}
        for row in (first, second)
    ]
    assert values == [{"a": "1"}, {"a": "2", "b": "3"}]


def test_overwrite_schema_evolution(warehouse: Warehouse) -> None:
    """An overwrite with other columns, then a third sync that appends to it."""
    before = object_schema(id=INTEGER, to_drop=STRING, to_change=INTEGER)
    after = object_schema(id=INTEGER, to_change=STRING, to_add=STRING)
    old = record("orders", {"id": 1, "to_drop": "d", "to_change": 42})
    warehouse.sync([orders(generation=1, minimum=1, schema=before)], [old, COMPLETE])

    new = record("orders", {"id": 2, "to_change": "42s", "to_add": "a"})
    warehouse.sync([orders(generation=2, minimum=2, schema=after)], [new, COMPLETE])
    (row,) = warehouse.rows("orders")
    assert {key: value for key, value in row.items() if value is not None} == {
        "id": 2, "to_change__string": "42s", "to_add": "a",
    }  # fmt: skip

    third = record("orders", {"id": 3, "to_change": "43s", "to_add": "b"})
    warehouse.sync([orders(generation=2, schema=after)], [third, COMPLETE])
    assert warehouse.ids("orders") == [2, 3]


def test_truncate_refresh_no_data(warehouse: Warehouse) -> None:
    """A truncate without records empties the table."""
    warehouse.sync([orders(generation=12)], [order(1), COMPLETE])

    warehouse.sync([orders(generation=13, minimum=13)], [COMPLETE])

    assert warehouse.rows("orders") == []


def test_clear(warehouse: Warehouse) -> None:
    """Airbyte's Clear: no records, a null state, generation 1: the table is empty and the state is answered."""
    warehouse.sync([orders(generation=0)], [order(1), COMPLETE])
    sent = (
        b'{"type":"STATE","state":{"type":"GLOBAL","global":{"shared_state":null,"stream_states":'
        b'[{"stream_descriptor":{"name":"orders"},"stream_state":null}]},"id":1}}'
    )

    run = warehouse.sync([orders(generation=1, minimum=1)], [sent, COMPLETE])

    assert same_text(without_stats(run.states[0].raw), sent)
    assert warehouse.rows("orders") == []
