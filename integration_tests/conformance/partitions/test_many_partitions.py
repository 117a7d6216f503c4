"""More partitions than a writer keeps open, in one batch."""

from datetime import date, timedelta

import pytest

from integration_tests.harness.lake import Lake
from integration_tests.harness.messages import configured_catalog, configured_stream, record, state, status
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.warehouse import INTEGER, object_schema


@pytest.mark.share(1)
@pytest.mark.parametrize(
    ("table_type", "max_open", "count"),
    [("HIVE", 200, 220), ("HIVE", 1, 30), ("ICEBERG", 100, 130), ("ICEBERG", 1, 30)],
)
def test_every_partition_of_a_batch_gets_its_rows_however_many_are_open_at_once(
    lake: Lake, platform: Platform, table_type: str, max_open: int, count: int
) -> None:
    """Three rows a day, not in the order of days: a file for each day, and a state for all."""
    days = [date(2023, 1, 1) + timedelta(days=number) for number in range(count)]
    schema = object_schema(id=INTEGER, day={"type": "string", "format": "date"})
    rows = [{"id": number, "day": days[number % len(days)].isoformat()} for number in range(3 * len(days))]
    lines = [*(record("events", row) for row in rows), state("events", 1), status("events", "COMPLETE")]
    stream = {**configured_stream("events", schema), "cursor_field": ["day"]}

    config = lake.config(table_type=table_type, partitioning="DATE", max_open_partitions=max_open)
    run = platform.write(config, configured_catalog(stream), lines)

    assert run.exit_code == 0, run.report()
    assert len(run.states) == 1
    files = lake.data_files(lake.database, "events")
    assert len(files) == len(days)
    assert sorted(row["id"] for row in lake.rows(lake.database, "events")) == [row["id"] for row in rows]
    pages = lake.glue.get_paginator("get_partitions").paginate(DatabaseName=lake.database, TableName="events")
    registered = [partition for page in pages for partition in page["Partitions"]]
    if table_type == "HIVE":
        assert sorted(partition["Values"] for partition in registered) == [[day.isoformat()] for day in days]
    else:
        scan = lake.iceberg_table(lake.database, "events").scan()
        assert len({str(task.file.partition[0]) for task in scan.plan_files()}) == len(days)
