"""Layouts in S3: the tree of keys of each, and what engines find in it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pytest

from integration_tests.harness.engines.catalog import NULL, registered
from integration_tests.harness.engines.duck import downloaded, scan
from integration_tests.harness.engines.projection import Projection
from integration_tests.harness.engines.spark import SparkReader
from integration_tests.harness.lake import PREFIX, Lake
from integration_tests.harness.messages import Json, configured_catalog, configured_stream, record, status
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.warehouse import INTEGER, object_schema

pytestmark = pytest.mark.share(1)

EXTRACTED = {1: "2019-10-12T08:40:50.520Z", 2: "2019-12-31T23:59:59.900Z", 3: "2019-11-12T09:34:50.520Z"}
BOUGHT = {1: "2019-10-12T08:40:50.520Z", 2: None, 3: "2019-11-12T09:34:50.520Z"}
"""Times by id. The first and the last are the examples of RudderStack's page on its data lake."""


@dataclass(frozen=True)
class Layout:
    """Options, and the folders by the ids of the rows in them, below the bucket's prefix.

    `@` is a generation's name, `{0}` the null partition's, `{1}` the hour at midnight.

    `pruned` is a condition on the folders' keys, for engines that look into folders, which only row 1 satisfies.
    """

    options: Json
    folders: Mapping[int, str]
    pruned: str = ""
    types: Mapping[str, str] = field(default_factory=dict)


ROOT = "{database}/product_purchased"
LAYOUTS = {
    "hive": Layout(
        {"partitioning": "YEAR/MONTH/DAY"},
        {
            1: f"{ROOT}/@/bought_at_year=2019/bought_at_month=10/bought_at_day=12",
            2: f"{ROOT}/@/bought_at_year={{0}}/bought_at_month={{0}}/bought_at_day={{0}}",
            3: f"{ROOT}/@/bought_at_year=2019/bought_at_month=11/bought_at_day=12",
        },
        "bought_at_year = 2019 AND bought_at_month = 10",
        {"bought_at_year": "BIGINT", "bought_at_month": "BIGINT", "bought_at_day": "BIGINT"},
    ),
    "hive by hour of arrival": Layout(
        {"partitioning": "DAY/HOUR", "partition_source": "extracted_at", "timezone": "Europe/Berlin"},
        {
            1: f"{ROOT}/@/extracted_at_date=2019-10-12/extracted_at_hour=10",
            2: f"{ROOT}/@/extracted_at_date=2020-01-01/extracted_at_hour={{1}}",
            3: f"{ROOT}/@/extracted_at_date=2019-11-12/extracted_at_hour=10",
        },
        "extracted_at_date = DATE '2019-10-12' AND extracted_at_hour = 10",
        {"extracted_at_date": "DATE", "extracted_at_hour": "BIGINT"},
    ),
    "plain": Layout(
        {"path_layout": "plain"},
        {1: f"{ROOT}/2019/10/12/08", 2: f"{ROOT}/2019/12/31/23", 3: f"{ROOT}/2019/11/12/09"},
    ),
    "plain by cursor": Layout(
        {"path_layout": "plain", "partitioning": "YEAR/MONTH/DAY", "partition_source": "cursor"},
        {1: f"{ROOT}/2019/10/12", 2: f"{ROOT}/0000/00/00", 3: f"{ROOT}/2019/11/12"},
    ),
    "rudderstack": Layout(
        {"path_layout": "rudderstack"},
        {
            1: f"rudder-datalake/{ROOT}/2019/10/12/08",
            2: f"rudder-datalake/{ROOT}/2019/12/31/23",
            3: f"rudder-datalake/{ROOT}/2019/11/12/09",
        },
    ),
    "segment": Layout(
        {"path_layout": "segment"},
        {
            1: "segment-data/data/{database}/segment_type=product_purchased/day=2019-10-12/hr=08",
            2: "segment-data/data/{database}/segment_type=product_purchased/day=2019-12-31/hr=23",
            3: "segment-data/data/{database}/segment_type=product_purchased/day=2019-11-12/hr=09",
        },
        "day = '2019-10-12' AND hr = '08'",
        {"day": "VARCHAR", "hr": "VARCHAR"},
    ),
    "firehose": Layout(
        {"path_layout": "firehose"},
        {
            1: f"{ROOT}/year=2019/month=10/day=12/hour=08",
            2: f"{ROOT}/year=2019/month=12/day=31/hour=23",
            3: f"{ROOT}/year=2019/month=11/day=12/hour=09",
        },
        "year = '2019' AND month = '10'",
        {"year": "VARCHAR", "month": "VARCHAR", "day": "VARCHAR", "hour": "VARCHAR"},
    ),
}


def sync(lake: Lake, platform: Platform, **options: object) -> None:
    schema = object_schema(id=INTEGER, bought_at={"type": ["null", "string"], "format": "date-time"})
    stream = {**configured_stream("Product Purchased", schema), "cursor_field": ["bought_at"]}
    lines = [
        record("Product Purchased", {"id": id, "bought_at": BOUGHT[id]}, emitted_at=milliseconds(EXTRACTED[id]))
        for id in EXTRACTED
    ]
    lines.append(status("Product Purchased", "COMPLETE"))
    run = platform.write(lake.config(table_type="HIVE", **options), configured_catalog(stream), lines)
    assert run.exit_code == 0, run.report()


def milliseconds(time: str) -> int:
    return round(datetime.fromisoformat(time).timestamp() * 1000)


@pytest.mark.share(4)
@pytest.mark.parametrize(
    ("name", "catalog"),
    [
        *((name, "both") for name in LAYOUTS),
        *((name, "register") for name, layout in LAYOUTS.items() if layout.pruned),
        ("hive", "projection"),
        ("plain by cursor", "projection"),
    ],
)
def test_each_row_lies_where_its_layout_says_and_the_catalog_leads_there(
    lake: Lake, platform: Platform, spark_reader: SparkReader, name: str, catalog: str
) -> None:
    """The tree of keys; the same partition for a row by registration and by projection; files that engines open."""
    layout = LAYOUTS[name]
    sync(lake, platform, **layout.options, catalog_partitions=catalog)

    objects = [key for key in lake.objects(f"{PREFIX}/") if "/_" not in key]
    folders = {re.sub("generation-[^/]+", "@", key.rpartition("/")[0].removeprefix(f"{PREFIX}/")) for key in objects}
    # Athena projects numbers of a fixed width.
    values = (NULL, "0" if catalog == "register" else "00")
    assert folders == {folder.format(*values, database=lake.database) for folder in layout.folders.values()}
    assert sorted(row["id"] for row in lake.rows(lake.database, "product_purchased")) == [1, 2, 3]
    entry = lake.glue_table(lake.database, "product_purchased")
    by_registration = {
        key: dict(partition.values) for partition in registered(lake, "product_purchased") for key in partition.objects
    }
    by_projection: dict[str, Any] = {}
    if catalog != "register":
        projection = Projection.from_entry(entry)
        by_projection = {key: projection.values(f"s3://{lake.bucket}/{key}") for key in objects}
        assert {*by_projection} == {*objects}
        assert None not in by_projection.values()
    if catalog != "projection":
        assert {*by_registration} == {*objects}
    if catalog == "both":
        assert by_projection == by_registration
    if layout.pruned and catalog == "register":
        with downloaded(lake, entry["StorageDescriptor"]["Location"].removeprefix(f"s3://{lake.bucket}/")) as folder:
            for engine in (scan(folder, layout.pruned, layout.types), spark_reader.scan(folder, layout.pruned)):
                assert ([row["id"] for row in engine.rows], engine.files, engine.total_files) == ([1], 1, 3)
