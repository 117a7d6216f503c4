"""The statements of docs/how-to/roll-back.md, run by Spark with Iceberg."""

import pytest

from integration_tests.engines.engine import Engine
from integration_tests.harness.lake import Lake
from integration_tests.harness.rollback import BAD, FIRST, LATER, RIGHT, SYNC_MODES, RolledBack, SyncMode
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.table_kinds import TABLE_KINDS
from integration_tests.harness.warehouse import Warehouse


@pytest.fixture
def warehouse(lake: Lake, platform: Platform) -> Warehouse:
    return Warehouse(lake, platform, TABLE_KINDS[0])


@pytest.mark.parametrize("mode", SYNC_MODES, ids=lambda mode: mode.name)
def test_syncs_continue_a_table_that_spark_has_rolled_back(
    engine: Engine, warehouse: Warehouse, mode: SyncMode
) -> None:
    orders = RolledBack(warehouse, mode)
    orders.sync(1, FIRST)
    good, before = orders.snapshot(), orders.names()
    orders.sync(2, BAD)

    # Spark rolls back to an ancestor alone, and an overwrite's snapshot has none.
    procedure = 1 if mode.replaces else 0
    engine.sql(orders.block("spark-sql", procedure, snapshot=good).strip().rstrip(";"))

    assert orders.names() == before
    orders.sync(3, RIGHT)
    assert orders.names() == mode.after_third
    orders.sync(4, LATER)
    assert orders.names() == mode.after_fourth


def test_rows_of_one_sync_are_counted_and_deleted(engine: Engine, warehouse: Warehouse) -> None:
    orders = RolledBack(warehouse, SYNC_MODES[0])
    orders.sync(1, FIRST)
    orders.sync(2, BAD)
    table = f"{orders.lake.database}.orders"
    count, delete = (
        statement.strip().replace(table, f"glue.{table}") for statement in orders.block("sql", 1).split(";")[:2]
    )

    assert [*engine.sql(count).rows[0].values()] == [len(BAD)]
    engine.sql(delete)

    assert orders.names() == [(1, "a"), (2, "b")]
    orders.sync(3, RIGHT)
    assert orders.names() == orders.mode.after_third
