"""Catalogs that cannot work are refused before anything is read."""

import pytest

from integration_tests.conformance.records.orders import ORDERS, SCHEMA
from integration_tests.harness.messages import configured_stream, record
from integration_tests.harness.warehouse import Warehouse


def test_streams_that_would_meet_in_one_table_are_refused(warehouse: Warehouse) -> None:
    """Both are named; nothing is read."""
    streams = [configured_stream(name, SCHEMA) for name in ("my-orders", "My Orders")]

    run = warehouse.attempt(streams, [record("my-orders", {"id": 1})])

    assert run.exit_code == 1
    (error,) = run.errors
    assert error["failure_type"] == "config_error"
    assert "my-orders" in error["message"]
    assert "My Orders" in error["message"]
    assert warehouse.lake.tables() == []


@pytest.mark.parametrize(
    ("streams", "said"),
    [
        pytest.param([], "no streams", id="none"),
        pytest.param([ORDERS, ORDERS], "twice", id="twice"),
        pytest.param([ORDERS | {"destination_sync_mode": "append_dedup"}], "no primary key", id="dedup without a key"),
    ],
)
def test_a_catalog_that_cannot_work_is_refused(
    warehouse: Warehouse, streams: list[dict[str, object]], said: str
) -> None:
    """Before anything is read or written."""
    run = warehouse.attempt(streams, [record("orders", {"id": 1})])

    assert run.exit_code == 1
    (error,) = run.errors
    assert error["failure_type"] == "config_error"
    assert said in error["message"]
    assert warehouse.lake.tables() == []
