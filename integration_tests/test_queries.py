"""The statements of docs/query.md, on tables that the connector has written in the layouts that the page reads."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pytest
import sqlglot
from sqlglot import exp

from integration_tests.documentation.blocks import block, blocks
from integration_tests.harness.engines.duck import downloaded, scan
from integration_tests.harness.engines.spark import SparkReader
from integration_tests.harness.lake import Lake
from integration_tests.harness.messages import configured_catalog, configured_stream, record, status
from integration_tests.harness.runs.platform import Platform

SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "country": {"type": "string"},
        "bought_at": {"type": "string", "format": "date-time", "airbyte_type": "timestamp_with_timezone"},
    },
}
ROWS = (
    ("2019-11-12T09:34:50.52Z", "FR", 1573551290520),
    ("2019-11-12T09:59:59.999Z", "DE", 1573552799999),
    ("2019-11-30T23:59:59.999Z", "FR", 1575158399999),
    ("2019-12-01T00:00:00Z", "FR", 1575158400000),
    (None, "DE", 1577836800000),
)
"""Values of `bought_at` and `country`, and the time at which each row was extracted."""
IN_NOVEMBER = [("DE", 1), ("FR", 2)]
"""What the queries of the page find: the views by country in November 2019."""
IN_THE_ADDED_PARTITION = [("DE", 1), ("FR", 1)]

IDS_OF_TWO = (7, 7, 8, 8, 8)
"""Ids for the same rows, as versions of two: the last one has no cursor, and is the oldest however late it came."""
LATEST = [(7, "DE"), (8, "FR")]

LATEST_ROWS = block("docs/query.md", "The latest row of each key", "sql").body
BY_COLUMN, BY_DATE, BY_TEXTS, _ = (
    block.body for block in blocks("docs/query.md", "Through the Glue Data Catalog", "sql")
)
CLICKHOUSE = block("docs/query.md", "ClickHouse", "sql").body


@contextmanager
def written(
    lake: Lake, platform: Platform, namespace: str, ids: Sequence[int] = range(len(ROWS)), **options: object
) -> Iterator[Path]:
    """Sync all rows into a Hive table; lend a folder with copies of its files."""
    shop = lake.name(namespace)
    stream = configured_stream("Cart Viewed", SCHEMA, namespace=shop) | {"cursor_field": ["bought_at"]}
    lines = [
        record("Cart Viewed", {"id": id_, "country": country, "bought_at": at}, namespace=shop, emitted_at=extracted)
        for id_, (at, country, extracted) in zip(ids, ROWS, strict=True)
    ]
    ended = status("Cart Viewed", "COMPLETE", namespace=shop)
    run = platform.write(lake.config(table_type="HIVE", **options), configured_catalog(stream), [*lines, ended])
    assert run.exit_code == 0, run.report()
    location: str = lake.glue_table(shop, "cart_viewed")["StorageDescriptor"]["Location"]
    with downloaded(lake, location.removeprefix(f"s3://{lake.bucket}/")) as folder:
        yield folder


def local(statements: str, folder: Path) -> str:
    """Return statements of the page with a folder of this machine in place of the table's."""
    return statements.replace("s3://lake/raw/shop/cart_viewed", str(folder))


def asked(statement: str, folder: Path, keys: Mapping[str, str]) -> list[tuple[object, ...]]:
    """Return the rows that a statement finds in the table, sorted; the table's keys have these types."""
    types = ", ".join(f"{name}: {kind}" for name, kind in keys.items())
    files = f"'{folder}/**/*.parquet', hive_partitioning = true, union_by_name = true, hive_types = {{{types}}}"
    with duckdb.connect() as engine:
        engine.execute("SET TimeZone = 'UTC'")
        engine.execute("CREATE SCHEMA shop")
        engine.execute(f"CREATE VIEW shop.cart_viewed AS FROM read_parquet({files})")
        return sorted(engine.execute(statement).fetchall())


def in_duckdb(statement: str) -> str:
    """Return ClickHouse's statement for DuckDB, with the table in place of the function that reads its files."""
    query = sqlglot.parse_one(statement.strip().rstrip(";"), dialect="clickhouse")
    query.set("settings", None)
    [source] = query.find_all(exp.Table)
    source.replace(exp.to_table("shop.cart_viewed"))
    return query.sql("duckdb")


@pytest.mark.slow
def test_the_statements_of_the_page_find_the_rows(lake: Lake, platform: Platform, spark_reader: SparkReader) -> None:
    of_spark = (IN_NOVEMBER, IN_THE_ADDED_PARTITION)
    for number, path_layout in enumerate(("firehose", "plain")):
        with written(lake, platform, path_layout, path_layout=path_layout) as folder, duckdb.connect() as engine:
            result = engine.execute(local(blocks("docs/query.md", language="duckdb")[number].body, folder)).fetchall()
            rows = spark_reader.run(local(blocks("docs/query.md", language="spark")[number].body, folder))

        assert sorted(result) == IN_NOVEMBER, path_layout
        assert sorted((row["country"], row["views"]) for row in rows) == of_spark[number], path_layout

    with written(lake, platform, "versions", IDS_OF_TWO) as folder:
        rows = spark_reader.run(LATEST_ROWS.replace("shop.cart_viewed", f"parquet.`{folder}`"))

    assert sorted((row["id"], row["country"]) for row in rows) == LATEST


def test_a_condition_on_partition_keys_opens_the_files_of_their_partitions_alone(
    lake: Lake, platform: Platform
) -> None:
    strings = {"year": "VARCHAR", "month": "VARCHAR", "day": "VARCHAR", "hour": "VARCHAR"}

    with written(lake, platform, "firehose", path_layout="firehose") as folder:
        scanned = scan(folder, "year = '2019' AND month = '11' AND day = '12'", strings)
        assert (sorted(row["id"] for row in scanned.rows), scanned.files, scanned.total_files) == ([0, 1], 1, 4)
        assert asked(BY_TEXTS, folder, strings) == IN_NOVEMBER
        assert asked(in_duckdb(CLICKHOUSE), folder, strings) == IN_NOVEMBER

    with written(lake, platform, "hive", partitioning="DATE") as folder:
        scanned = scan(folder, "bought_at_date >= '2019-11-30'", {"bought_at_date": "DATE"})
        without = scan(folder, "bought_at_date IS NULL", {"bought_at_date": "DATE"})
        by_column, by_date = (asked(query, folder, {"bought_at_date": "DATE"}) for query in (BY_COLUMN, BY_DATE))

    assert (sorted(row["id"] for row in scanned.rows), scanned.files, scanned.total_files) == ([2, 3], 2, 4)
    assert by_column == by_date == [("DE", 1), ("FR", 3)]
    assert ([row["id"] for row in without.rows], without.files) == ([4], 1)


def test_the_statement_for_the_latest_rows_finds_one_for_each_key(lake: Lake, platform: Platform) -> None:
    with written(lake, platform, "versions", IDS_OF_TWO) as folder, duckdb.connect() as engine:
        result = engine.execute(LATEST_ROWS.replace("shop.cart_viewed", f"'{folder}/**/*.parquet'")).fetchall()

    assert sorted((id_, country) for id_, country, _ in result) == LATEST
