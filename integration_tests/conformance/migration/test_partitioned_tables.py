"""Coming from AWS Datalake with partitions: its tables go on in their partitions, and engines find old and new rows."""

from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any

import awswrangler
import pytest

from integration_tests.conformance.migration.aws_datalake import (
    PARTITIONINGS,
    AwsDatalake,
    Format,
    awswrangler_session,
)
from integration_tests.conformance.migration.migrating import OPTIONS, sync
from integration_tests.harness.engines.catalog import registered, rows_of
from integration_tests.harness.engines.duck import Scan, downloaded, scan
from integration_tests.harness.engines.spark import SparkReader
from integration_tests.harness.lake import PREFIX, Lake
from integration_tests.harness.messages import Json
from integration_tests.harness.runs.output import Run
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.warehouse import INTEGER, META, object_schema

pytestmark = pytest.mark.share(1)

SCHEMA = object_schema(
    id=INTEGER,
    updatedAt={"type": ["null", "string"], "format": "date-time"},
    dueOn={"type": ["null", "string"], "format": "date"},
)
TYPES = {"id": "bigint", "updatedAt": "timestamp", "dueOn": "date"}
FORMATS: Mapping[Format, Json] = {
    "Parquet": {"format_type": "Parquet", "compression_codec": "SNAPPY"},
    "JSONL": {"format_type": "JSONL", "compression_codec": "GZIP"},
}

OLD = {1: "2024-02-29T23:30:00Z", 2: "2019-12-01T00:30:00Z", 3: None}
NEW = {11: "2024-02-29T01:00:00Z", 12: "2024-03-01T00:00:00Z", 13: None}
"""Cursors by id: a partition that is there, one that is not, and none."""


def keys_of(partitioning: str, cursor: str | None, null: int | None) -> dict[str, Any]:
    """Return the partition keys of a row; `null` is what stands for a number where there is no cursor."""
    day = None if cursor is None else datetime.fromisoformat(cursor).astimezone(UTC).date()
    parts = {name: null if day is None else getattr(day, name) for name in ("year", "month", "day")}
    return {f"updatedat_{part.lower()}": {**parts, "date": day}[part.lower()] for part in partitioning.split("/")}


def row(id: int, cursor: str | None) -> dict[str, Any]:
    return {"id": id, "updatedAt": cursor, "dueOn": cursor and cursor[:10]}


def by_them(lake: Lake, format_: Format, partitioning: str) -> AwsDatalake:
    """Return AWS Datalake, which has synced OLD."""
    aws_datalake = AwsDatalake(lake, format_, "snappy" if format_ == "Parquet" else "gzip")
    rows = [row(id, cursor) for id, cursor in OLD.items()]
    aws_datalake.sync("orderItems", TYPES, rows, cursor="updatedAt", partitioning=partitioning)
    return aws_datalake


def by_us(
    lake: Lake,
    platform: Platform,
    format_: Format,
    partitioning: str,
    cursors: Mapping[int, str | None],
    generation: int = 0,
) -> Run:
    """Sync with their configuration and the options that docs/operating/migrating.md adds."""
    config = lake.config(partitioning=partitioning, format=FORMATS[format_], **OPTIONS)
    rows = [row(id, cursor) for id, cursor in cursors.items()]
    run = sync(platform, config, SCHEMA, *rows, stream="orderItems", generation=generation, cursor="updatedAt")
    assert run.exit_code == 0, run.report()
    return run


def expected(partitioning: str) -> list[dict[str, Any]]:
    """Return id and keys of old and new rows; AWS Datalake had 0 for no number and dropped rows without a date."""
    old = {id: cursor for id, cursor in OLD.items() if cursor or partitioning != "DATE"}
    rows = [{"id": id, **keys_of(partitioning, cursor, 0)} for id, cursor in old.items()]
    rows += [{"id": id, **keys_of(partitioning, cursor, None)} for id, cursor in NEW.items()]
    return sorted(rows, key=lambda row: str(row["id"]))


def ids(scan: Scan) -> list[int]:
    return sorted(row["id"] for row in scan.rows)


@pytest.mark.share(1)
@pytest.mark.parametrize(
    ("format_", "partitioning"),
    [
        *(("Parquet", partitioning) for partitioning in PARTITIONINGS),
        ("JSONL", "DATE"),
        ("JSONL", "MONTH"),
        ("JSONL", "YEAR/MONTH"),
    ],
)
def test_a_partitioned_table_goes_on_in_its_partitions(
    lake: Lake, platform: Platform, format_: Format, partitioning: str
) -> None:
    """Engines that know only the catalog's partitions find old and new rows, each under the keys of its cursor."""
    by_them(lake, format_, partitioning)
    before, old = lake.glue_table(lake.database, "orderitems"), registered(lake, "orderitems")

    run = by_us(lake, platform, format_, partitioning, NEW)

    after, partitions = lake.glue_table(lake.database, "orderitems"), registered(lake, "orderitems")
    assert rows_of(partitions, "id", *(key["Name"] for key in after["PartitionKeys"])) == expected(partitioning)
    assert {row["id"]: moment(row["updatedat"]) for row in rows_of(partitions)} == {
        id: cursor for id, cursor in {**OLD, **NEW}.items() if cursor or id in NEW or partitioning != "DATE"
    }
    assert after["PartitionKeys"] == before["PartitionKeys"]
    assert after["StorageDescriptor"]["Location"] == before["StorageDescriptor"]["Location"]
    assert [*lake.columns(lake.database, "orderitems")] == [
        *(name.lower() for name in TYPES),
        *META,
        *(key["Name"] for key in after["PartitionKeys"]),
    ]
    assert {partition.location for partition in old} <= {partition.location for partition in partitions}
    root = f"{PREFIX}/{lake.database}/orderItems"
    for partition in partitions:
        assert partition.location.rstrip("/").endswith(
            "/".join(f"{key}={value}" for key, value in partition.values.items())
        )
        assert all(key.startswith(f"{root}/") for key in partition.objects)
    assert not [text for text in run.logs if "AWS Datalake" in text]


@pytest.mark.share(1)
@pytest.mark.parametrize("partitioning", ["DATE", "YEAR/MONTH/DAY"])
def test_engines_that_look_at_folders_find_old_and_new_rows_and_open_only_the_files_they_need(
    lake: Lake, platform: Platform, spark_reader: SparkReader, partitioning: str
) -> None:
    """DuckDB, Spark and awswrangler: the whole table, and one partition with an old and a new file."""
    by_them(lake, "Parquet", partitioning)
    by_us(lake, platform, "Parquet", partitioning, NEW)
    whole = [row["id"] for row in expected(partitioning)]
    keys = keys_of(partitioning, OLD[1], 0)
    match = [row["id"] for row in expected(partitioning) if keys.items() <= row.items()]
    where = " AND ".join(f"{key} = {literal(value)}" for key, value in keys.items())
    nowhere = " AND ".join(f"{key} IS NULL" for key in keys)
    types = {key: "DATE" if isinstance(value, date) else "BIGINT" for key, value in keys.items()}

    with downloaded(lake, f"{PREFIX}/{lake.database}/orderItems") as folder:
        all_files = sum(1 for _ in folder.rglob("*.parquet"))
        by_duckdb = [scan(folder, where=text, types=types) for text in ("true", where, nowhere)]
        by_spark = [spark_reader.scan(folder, where=text) for text in ("true", where, nowhere)]
    for engine in (by_duckdb, by_spark):
        assert sorted(map(str, ids(engine[0]))) == list(map(str, whole))
        assert [ids(scanned) for scanned in engine[1:]] == [match, [13]]
        assert [scanned.files for scanned in engine] == [all_files, 2, 1]
    with awswrangler_session(lake) as session:
        texts = {key: str(value) for key, value in keys.items()}
        frame = awswrangler.s3.read_parquet_table(
            "orderitems",
            lake.database,
            boto3_session=session,
            columns=["id"],
            validate_schema=False,
            partition_filter=lambda values: values == texts,
        )
    assert sorted(frame["id"]) == match


@pytest.mark.share(1)
@pytest.mark.parametrize(("format_", "partitioning"), [("Parquet", "YEAR/MONTH/DAY"), ("JSONL", "DATE")])
def test_a_refresh_of_a_partitioned_table_takes_the_old_partitions_out_of_the_catalog(
    lake: Lake, platform: Platform, format_: Format, partitioning: str
) -> None:
    """What AWS Datalake wrote stays in the bucket; readers see the new rows alone, also after the next append."""
    by_them(lake, format_, partitioning)
    old = set(lake.objects())

    by_us(lake, platform, format_, partitioning, {11: OLD[1]}, generation=1)
    refreshed = registered(lake, "orderitems")
    by_us(lake, platform, format_, partitioning, {12: NEW[12]})

    assert [row["id"] for row in rows_of(refreshed)] == [11]
    assert [row["id"] for row in rows_of(registered(lake, "orderitems"))] == [11, 12]
    assert old < set(lake.objects())


@pytest.mark.share(1)
@pytest.mark.parametrize(
    ("partitioning", "unit"),
    [*zip(PARTITIONINGS, ("day", "year", "month", "day", "month", "day"), strict=True)],
)
def test_their_configuration_as_it_is_makes_iceberg_tables_of_the_finest_unit(
    lake: Lake, platform: Platform, partitioning: str, unit: str
) -> None:
    """PyIceberg opens the files of the day, month or year that a query is about, and of no other."""
    config = lake.config(partitioning=partitioning, format=FORMATS["Parquet"])
    cursors = {**OLD, **NEW}

    answer = platform.check(config).connection_status
    run = sync(
        platform, config, SCHEMA, *(row(id, at) for id, at in cursors.items()), stream="orderItems", cursor="updatedAt"
    )

    assert answer["status"] == "SUCCEEDED", answer
    assert run.exit_code == 0, run.report()
    table = lake.iceberg_table(lake.database, "order_items")
    assert [(field.name, str(field.transform)) for field in table.spec().fields] == [(f"updated_at_{unit}", unit)]
    assert sorted(row["id"] for row in lake.rows(lake.database, "order_items")) == sorted(cursors)
    in_2019 = table.scan(row_filter="updated_at < '2020-01-01T00:00:00+00:00'")
    assert [[*in_2019.to_arrow()["id"].to_pylist()], len(list(in_2019.plan_files()))] == [[2], 1]
    assert [len(list(table.scan(row_filter="updated_at is null").plan_files()))] == [1]
    values = {str(task.file.partition[0]) for task in table.scan().plan_files()}
    assert len(values) == len({at and at[: {"year": 4, "month": 7, "day": 10}[unit]] for at in cursors.values()})


def moment(value: datetime | None) -> str | None:
    """Return a cursor as it was sent; INT96 has no zone to tell."""
    if value is None:
        return None
    return value.replace(tzinfo=value.tzinfo or UTC).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def literal(value: Any) -> str:
    return f"DATE '{value}'" if isinstance(value, date) else str(value)
