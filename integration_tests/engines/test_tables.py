"""Spark with Iceberg reads the connector's partitioned tables through Glue, and no more of their files than it must."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from integration_tests.engines.engine import Answer, Engine
from integration_tests.harness.lake import Lake
from integration_tests.harness.messages import configured_catalog, configured_stream, record, status
from integration_tests.harness.runs.platform import Platform

VISITS: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "at": {"type": "string", "format": "date-time", "airbyte_type": "timestamp_with_timezone"},
        "day": {"type": "string", "format": "date"},
        "page": {"type": "string"},
        "price": {"type": "number"},
        "user": {"type": "object", "properties": {"land": {"type": "string"}}},
    },
}
DAYS = ("1969-12-31", "1970-01-01", "2024-02-29", "2024-03-01")
ROWS = [
    {
        "id": number,
        "at": f"{DAYS[number % 4]}T{number % 3 * 9:02}:59:59.999999Z",
        "day": DAYS[number % 4],
        "page": f"{'äöü'[number % 3]}/{number % 2}",
        "price": number - 20.5,
        "user": {"land": ("pt", "fr")[number % 2]},
    }
    for number in range(40)
] + [{"id": 40}, {"id": 41, "user": {}}]


def sync(
    platform: Platform, lake: Lake, rows: Sequence[Mapping[str, Any]], *fields: Mapping[str, str], **given: object
) -> str:
    """Write the rows, partitioned by `fields` or as the options `given` say; return the table as Spark names it."""
    catalog = configured_catalog(configured_stream("visits", VISITS))
    if fields:
        given["streams"] = [{"stream": "visits", "partition_by": [*fields]}]
    config = lake.config(table_type="ICEBERG", numeric_types="bigint/double", **given)

    run = platform.write(config, catalog, [*(record("visits", row) for row in rows), status("visits", "COMPLETE")])

    assert run.exit_code == 0, run.report()
    return f"glue.{lake.database}.visits"


def ids(answer: Answer) -> list[int]:
    return sorted(row["id"] for row in answer.rows)


@pytest.mark.parametrize(
    ("fields", "options", "files", "queries"),
    [
        (
            [{"source": "at", "transform": "day"}],
            {},
            5,
            {"at < timestamp'1970-01-01'": 1, "at >= timestamp'2024-02-29'": 2, "at IS NULL": 1},
        ),
        (
            [{"source": "at", "transform": "hour"}],
            {},
            13,
            {"at > timestamp'2024-03-01 18:30:00'": 1, "at IS NOT NULL": 12},
        ),
        ([], {"partitioning": "YEAR/MONTH", "partition_source": "day"}, 5, {"day = date'2024-02-29'": 1}),
        ([], {"partitioning": "YEAR/MONTH/DAY/HOUR", "partition_source": "extracted_at"}, 1, {"id = 1": 1}),
        # The ids of all buckets overlap: only the hash leaves files out.
        ([{"source": "id", "transform": "bucket[4]"}], {}, 4, {"id = 20": 1, "id = 41": 1}),
        ([{"source": "id", "transform": "truncate[10]"}], {}, 5, {"id < 10": 1, "id = 40": 1}),
        ([{"source": "page", "transform": "truncate[1]"}], {}, 4, {"page LIKE 'ö%'": 1, "page IS NULL": 1}),
        # Without IN: it fails in Iceberg 1.11.0 if a text is null (https://github.com/apache/iceberg/pull/17014).
        ([{"source": "page"}], {}, 7, {"page = 'ä/0'": 1, "page >= 'ö/1'": 3}),
        ([{"source": "user.land"}], {}, 3, {"user.land = 'fr'": 1, "user.land IS NULL": 1}),
        ([{"source": "price"}, {"source": "day", "transform": "month"}], {}, 41, {"price = -0.5": 1, "price < -19": 2}),
    ],
    ids=lambda value: ",".join(str(part) for part in value) if isinstance(value, list | dict) else str(value),
)
def test_a_query_reads_the_files_of_its_partitions(
    engine: Engine,
    lake: Lake,
    platform: Platform,
    fields: list[Mapping[str, str]],
    options: Mapping[str, object],
    files: int,
    queries: Mapping[str, int],
) -> None:
    table = sync(platform, lake, ROWS, *fields, **options)

    everything = engine.sql(f"SELECT * FROM {table}")

    assert everything.files == files
    assert ids(everything) == [row["id"] for row in ROWS]
    for condition, expected in queries.items():
        answer = engine.sql(f"SELECT id FROM {table} WHERE {condition}")
        each_row = engine.sql(f"SELECT id, ({condition}) AS is_meant FROM {table}")
        assert each_row.files == files
        assert ids(answer) == sorted(row["id"] for row in each_row.rows if row["is_meant"]) != []
        assert answer.files == expected


@pytest.mark.parametrize("id_", [-(2**63), 2**63 - 1])
def test_query_for_the_end_of_the_range_finds_its_row_in_a_truncated_partition(
    engine: Engine, lake: Lake, platform: Platform, id_: int
) -> None:
    """For PyIceberg, the partition of the lowest integer is below the range."""
    rows = [{"id": number} for number in (-(2**63), 0, 2**63 - 1)]
    table = sync(platform, lake, rows, {"source": "id", "transform": "truncate[10]"})

    answer = engine.sql(f"SELECT id FROM {table} WHERE id = {id_}L")

    assert (ids(answer), answer.files) == ([id_], 1)
    of_pyiceberg = lake.iceberg_table(lake.database, "visits").scan(row_filter=f"id = {id_}").to_arrow()
    assert of_pyiceberg.num_rows == (1 if id_ > 0 else 0)


def test_a_table_whose_partitions_were_changed_is_read_by_both(engine: Engine, lake: Lake, platform: Platform) -> None:
    sync(platform, lake, ROWS[:20], {"source": "day"})
    table = sync(platform, lake, ROWS[20:], {"source": "id", "transform": "bucket[4]"})

    everything = engine.sql(f"SELECT * FROM {table}")

    assert ids(everything) == [row["id"] for row in ROWS]
    assert everything.files == 4 + 4
    # One day of the old files; of the new ones all have rows of that day.
    assert engine.sql(f"SELECT id FROM {table} WHERE day = date'2024-02-29'").files == 1 + 4
    assert engine.sql(f"SELECT id FROM {table} WHERE id = 30 AND day = date'2024-02-29'").files == 1


def test_spark_continues_a_table_of_the_connector_which_continues_it(
    engine: Engine, lake: Lake, platform: Platform
) -> None:
    fields = [{"source": "day", "transform": "month"}, {"source": "page", "transform": "bucket[8]"}]
    table = sync(platform, lake, ROWS[:4], *fields)
    columns = ["_airbyte_raw_id", "_airbyte_extracted_at", "_airbyte_meta", "_airbyte_generation_id"]
    columns += ["id + 100", *(name for name in VISITS["properties"] if name != "id")]

    engine.sql(f"INSERT INTO {table} SELECT {', '.join(columns)} FROM {table}")
    sync(platform, lake, ROWS[:4], *fields)

    scan = engine.sql(f"SELECT id, _partition AS partition FROM {table}")
    assert ids(scan) == [0, 0, 1, 1, 2, 2, 3, 3, 100, 101, 102, 103]
    by_row: dict[int, set[str]] = {}
    for row in scan.rows:
        by_row.setdefault(row["id"] % 100, set()).add(str(row["partition"]))
    assert {len(partitions) for partitions in by_row.values()} == {1}
