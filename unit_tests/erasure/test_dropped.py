"""Dropped tables by what they have left: folders where the layout has tables, descriptions, rejects."""

from __future__ import annotations

from typing import Any

import pytest

from destination_datalake.config.options import Config
from destination_datalake.erasure.dropped import remaining_tables, table_folders
from destination_datalake.tables.table import TableName
from unit_tests.cloud import BUCKET, Cloud, ungoverned
from unit_tests.config.examples import options
from unit_tests.tables.hive.orders import NAME, put, sync

pytestmark = pytest.mark.share(4)

GENERATION = "generation-0-0123456789ab"


def remaining(cloud: Cloud, **changes: Any) -> list[str]:
    notes = list[str]()
    tables = remaining_tables(parsed(**changes), cloud.access, ungoverned(cloud.access), notes)
    assert notes == []
    return [str(table) for table in tables]


def parsed(**changes: Any) -> Config:
    given = {"bucket_name": BUCKET, "table_type": "HIVE", "lakeformation_database_name": "shop", **changes}
    return Config.parse(options(**given))


@pytest.mark.parametrize("prefix", ["", "lake"])
@pytest.mark.parametrize(
    ("layout", "folder", "name"),
    [
        ("hive", "shop/orders", "shop.orders"),
        ("hive", "_raw.db/orders", "_raw.orders"),
        ("rudderstack", "rudder-datalake/shop/orders", "shop.orders"),
        ("segment", "segment-data/data/shop/segment_type=orders", "shop.orders"),
        ("all/db={database}/{stream}/{year}", "all/db=shop/orders", "shop.orders"),
    ],
)
@pytest.mark.parametrize("content", ["metadata/v1.metadata.json", "data/a.parquet", f"{GENERATION}/a.parquet"])
def test_a_folder_where_the_layout_has_tables_is_a_tables(
    cloud: Cloud, prefix: str, layout: str, folder: str, name: str, content: str
) -> None:
    put(cloud, f"{prefix}/{folder}/{content}".lstrip("/"), b"x")

    changes = {"path_layout": layout, "bucket_prefix": prefix}
    assert remaining(cloud, **changes) == [name]
    database, table = name.split(".")
    root = f"s3://{BUCKET}/{prefix}/{folder}" if prefix else f"s3://{BUCKET}/{folder}"
    assert table_folders(parsed(**changes), TableName(database, table)) == (root, f"{root}__generations")


def test_folders_of_existing_tables_and_of_other_writers_are_not(cloud: Cloud) -> None:
    sync(cloud).commit("a", 1)
    for folder in ("orders__generations", "results/2026", "results", ".hidden"):
        put(cloud, f"shop/{folder}/a.parquet", b"x")
    put(cloud, "segment-data/x/data/a.parquet", b"x")
    assert remaining(cloud) == []

    cloud.access.client("glue").delete_table(DatabaseName=NAME.database, Name=NAME.table)
    assert remaining(cloud) == ["shop.orders"]


def test_only_databases_and_tables_of_the_configuration_are(cloud: Cloud) -> None:
    for folder in ("shop/a_orders", "shop/b_orders", "other/a_orders"):
        put(cloud, f"{folder}/{GENERATION}/a.parquet", b"x")

    single = {"database_strategy": "single", "table_prefix": "a_"}
    assert remaining(cloud, **single) == ["shop.a_orders"]
    assert remaining(cloud, table_prefix="a_") == ["other.a_orders", "shop.a_orders"]


def test_descriptions_and_rejects_name_tables(cloud: Cloud) -> None:
    sync(cloud).commit("a", 1)
    for table in ("orders", "described"):
        put(cloud, f"_schema/shop/{table}.json", b"{}")
    for table in ("orders", "rejected", "rejected__replay"):
        put(cloud, f"_errors/R/shop.{table}/dt=2026-11-25/a.jsonl.gz", b"x")

    assert remaining(cloud) == ["shop.described", "shop.rejected"]


def test_rejects_of_replays_belong_to_the_archived_table_and_their_folders_do_not(cloud: Cloud) -> None:
    put(cloud, "_raw/shop.orders/replay/copy.json", b"{}")
    put(cloud, "_raw/shop.orders/replay/kept.json", b"{}")
    put(cloud, "_raw/shop.orders/replay/metadata/others.json", b"{}")
    for table in ("copy", "others"):
        put(cloud, f"_errors/R/shop.{table}/dt=2026-11-25/a.jsonl.gz", b"x")
    put(cloud, f"shop/kept/{GENERATION}/a.parquet", b"x")

    assert remaining(cloud) == ["shop.orders", "shop.kept", "shop.others"]


def test_folders_without_the_name_of_a_table_are_left_alone(cloud: Cloud) -> None:
    put(cloud, "_raw/shop.archived/dt=2026-11-25/a.jsonl.gz", b"x")
    for key in ("_raw/tmp/a", "_raw/shop./a", "_raw/.orders/a", "_raw//a"):
        put(cloud, key, b"x")
    for key in (
        "_errors/R/tmp/a",
        "_errors/R/shop.__replay/a",
        "_errors/R//a",
        "_schema/shop/.json",
        "_schema//a.json",
    ):
        put(cloud, key, b"x")

    assert remaining(cloud) == ["shop.archived"]
