"""Partitioned Iceberg tables, from records to the files that a query reads."""

import io
from collections import Counter
from collections.abc import Sequence

import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile

from integration_tests.harness.messages import Json, configured_catalog, configured_stream, record, state, status
from integration_tests.harness.table_kinds import TABLE_KINDS
from integration_tests.harness.warehouse import INSTANT, INTEGER, STRING, Warehouse, object_schema

COMPLETE = status("orders", "COMPLETE")
SCHEMA = object_schema(id=INTEGER, at=INSTANT, region=STRING)
ORDERS = {**configured_stream("orders", SCHEMA), "cursor_field": ["at"]}
ICEBERG = [kind for kind in TABLE_KINDS if kind.options["table_type"] == "ICEBERG"]

pytestmark = pytest.mark.parametrize("table_kind", ICEBERG, ids=lambda kind: kind.name)


def planned(warehouse: Warehouse, where: str) -> list[DataFile]:
    """Return the data files that a reader with this filter reads."""
    table = warehouse.lake.iceberg_table(warehouse.lake.database, "orders")
    return [task.file for task in table.scan(where).plan_files()]


def test_a_query_for_a_day_reads_the_files_of_that_day(warehouse: Warehouse) -> None:
    """Rows without a date, and before 1970, are in partitions of their own. New options apply to new files."""
    days = [*(f"2024-02-{1 + number % 28:02}T12:00:00Z" for number in range(280)), "1969-12-31T23:59:59Z", None]
    descending = {"sort_by": [{"source": "id", "direction": "descending"}]}
    by_region = {"partition_by": [{"source": "region"}, {"source": "at", "transform": "year"}]}
    sync(warehouse, range(len(days)), days, descending, partitioning="YEAR/MONTH/DAY")
    sync(warehouse, range(1000, 1002), days, by_region)

    assert warehouse.ids("orders") == [*range(len(days)), 1000, 1001]
    of_a_day = planned(warehouse, "at >= '2024-02-05T00:00:00+00:00' and at < '2024-02-06T00:00:00+00:00'")
    assert [file.record_count for file in of_a_day if file.spec_id == 0] == [10]
    assert all(folder.endswith("/at_day=2024-02-05") for folder in folders(of_a_day, spec_id=0))
    assert sum(file.record_count for file in planned(warehouse, "at is null")) == 1
    assert sum(file.record_count for file in planned(warehouse, "at < '1970-01-01T00:00:00+00:00'")) == 1
    of_a_region = planned(warehouse, "region = 'r1' and id >= 1000")
    assert [file.record_count for file in of_a_region if file.spec_id == 1] == [1]
    everything = planned(warehouse, "id >= 0")
    assert Counter(file.spec_id for file in everything) == {0: 30, 1: 2}
    table = warehouse.lake.iceberg_table(warehouse.lake.database, "orders")
    for file in everything:
        body = io.BytesIO(table.io.new_input(file.file_path).open().read())
        ids = [row["id"] for row in pq.read_table(body, columns=["id"]).to_pylist()]
        # The order stays the table's: the options of the second sync leave it open.
        assert ids == sorted(ids, reverse=True)
        assert file.sort_order_id == 1


def sync(warehouse: Warehouse, ids: range, days: Sequence[str | None], of_stream: Json, **options: object) -> None:
    lines = [record("orders", {"id": id, "at": at, "region": f"r{id % 3}"}) for id, at in zip(ids, days, strict=False)]
    config = warehouse.config(streams=[{"stream": "orders", **of_stream}], **options)
    run = warehouse.platform.write(config, configured_catalog(ORDERS), [*lines, state("orders", 1), COMPLETE])
    assert run.exit_code == 0, run.report()


def folders(files: list[DataFile], spec_id: int) -> list[str]:
    return [file.file_path.rpartition("/")[0] for file in files if file.spec_id == spec_id]
