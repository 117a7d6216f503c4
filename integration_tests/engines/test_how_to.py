"""The statements of how-to pages and of docs/query.md for Spark, run by Spark with Iceberg."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from integration_tests.documentation.blocks import block, blocks
from integration_tests.engines.engine import Engine
from integration_tests.harness.lake import Lake
from integration_tests.harness.messages import Json, configured_stream, record, state, status
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.table_kinds import TABLE_KINDS
from integration_tests.harness.warehouse import INSTANT, INTEGER, STRING, Warehouse, object_schema

CHANGE_TYPE = "docs/how-to/change-type.md"
PARTITION = "docs/how-to/partition-by-date.md"
RESTORE = "docs/how-to/restore-table.md"
METADATA = "s3://my-lake/airbyte/shop/orders/metadata/00012-….metadata.json"
"""The placeholder of a page, where the table's own file has to stand."""

DATED = {"id": INTEGER, "created_at": INSTANT}


@pytest.fixture
def warehouse(lake: Lake, platform: Platform) -> Warehouse:
    return Warehouse(lake, platform, TABLE_KINDS[0])


def sync(warehouse: Warehouse, fields: Mapping[str, Json], *rows: Json, stream: str = "orders") -> None:
    lines = [*(record(stream, row) for row in rows), state(stream, 1), status(stream, "COMPLETE")]
    warehouse.sync([configured_stream(stream, object_schema(**fields))], lines)


def of_lake(statements: Sequence[str], lake: Lake, catalog: str = "") -> str:
    """Return the only statement, with the lake's database in place of the page's."""
    [statement] = statements
    return statement.replace("shop.", f"{catalog}{lake.database}.")


def test_a_column_is_widened_and_the_next_sync_continues(engine: Engine, warehouse: Warehouse) -> None:
    fields = {"id": INTEGER, "quantity": INTEGER}
    sync(warehouse, fields, {"id": 1, "quantity": 7})
    assert warehouse.columns("orders")["quantity"] == "int"

    engine.sql(
        of_lake(block(CHANGE_TYPE, "Widen one column of an Iceberg table", "spark-sql").statements, warehouse.lake)
    )

    assert warehouse.columns("orders")["quantity"] == "bigint"
    sync(warehouse, fields, {"id": 2, "quantity": 8})
    assert warehouse.columns("orders")["quantity"] == "bigint"
    assert [row["quantity"] for row in warehouse.rows("orders")] == [7, 8]


def test_files_are_rewritten_into_new_partitions_and_a_query_opens_theirs_alone(
    engine: Engine, warehouse: Warehouse
) -> None:
    days = ("2026-10-15", "2026-10-20", "2026-11-02", "2026-11-03")
    orders = [{"id": number, "created_at": f"{day}T12:00:00Z"} for number, day in enumerate(days)]
    sync(warehouse, DATED, *orders[:3])
    by_month = [{"source": "created_at", "transform": "month"}]
    options = {**warehouse.kind.options, "streams": [{"stream": "orders", "partition_by": by_month}]}
    sync(replace(warehouse, kind=replace(warehouse.kind, options=options)), DATED, orders[3])
    query = of_lake(block(PARTITION, "An Iceberg table", "sql").statements, warehouse.lake, "glue.")
    assert (engine.sql(query).files, records_of_november(warehouse)) == (2, [1, 3])

    engine.sql(of_lake(block(PARTITION, "An Iceberg table", "spark-sql").statements, warehouse.lake))

    answer = engine.sql(query)
    # Files of another partition spec are rewritten apart from those of the table's own.
    assert ([*answer.rows[0].values()], answer.files, records_of_november(warehouse)) == ([2], 2, [1, 1])
    assert warehouse.ids("orders") == [0, 1, 2, 3]


def records_of_november(warehouse: Warehouse) -> list[int]:
    """Return how many rows each file has that a query of November opens."""
    table = warehouse.lake.iceberg_table(warehouse.lake.database, "orders")
    files = table.scan(row_filter="created_at >= '2026-11-01T00:00:00+00:00'").plan_files()
    return sorted(task.file.record_count for task in files)


def test_a_dropped_table_is_registered_again(engine: Engine, warehouse: Warehouse) -> None:
    sync(warehouse, {"id": INTEGER}, {"id": 1})
    sync(warehouse, {"id": INTEGER}, {"id": 2})
    table = warehouse.lake.iceberg_table(warehouse.lake.database, "orders")
    warehouse.lake.drop_table(warehouse.lake.database, "orders")
    [statement] = block(RESTORE, "Register the last metadata file", "spark-sql").statements
    assert METADATA in statement

    engine.sql(
        statement.replace(METADATA, table.metadata_location).replace("shop.orders", f"{warehouse.lake.database}.orders")
    )

    assert warehouse.ids("orders") == [1, 2]
    sync(warehouse, {"id": INTEGER}, {"id": 3})
    assert warehouse.ids("orders") == [1, 2, 3]


def test_a_condition_on_a_column_finds_the_rows_of_an_iceberg_table(engine: Engine, warehouse: Warehouse) -> None:
    at = ("2019-10-31T23:59:59Z", "2019-11-12T09:34:50Z", "2019-11-30T00:00:00Z")
    rows = [{"id": id_, "country": "FR", "bought_at": instant} for id_, instant in enumerate(at)]
    fields = {"id": INTEGER, "country": STRING, "bought_at": INSTANT}
    for row in rows:
        sync(warehouse, fields, row, stream="cart_viewed")
    first, *_ = blocks("docs/query.md", "Through the Glue Data Catalog", "sql")

    answer = engine.sql(of_lake(first.statements, warehouse.lake, "glue."))

    assert ([[*row.values()] for row in answer.rows], answer.files) == ([["FR", 2]], 2)
