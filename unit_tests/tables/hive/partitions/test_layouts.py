"""Layouts of other lakes, and partitions that Athena projects: rows lie where either looks for them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from destination_datalake.tables.table import TableConflict
from unit_tests.cloud import BUCKET, Cloud, another_client
from unit_tests.partitioning.athena import AthenaTable
from unit_tests.tables.hive.partitions.events import (
    AT,
    FEB,
    ID,
    JAN,
    MAR,
    WIDE,
    Killed,
    between_calls,
    calls,
    glue_table,
    ids,
    locations,
    partitions,
    read_file,
    set_parameters,
    sync,
)

pytestmark = pytest.mark.share(5)


def projected_ids(cloud: Cloud) -> list[int]:
    """The ids that Athena finds in the locations that it projects, by the table's columns."""
    table = glue_table(cloud)
    athena = AthenaTable(table["Parameters"], [key["Name"] for key in table["PartitionKeys"]], datetime.now(UTC))
    folders = {key.rpartition("/")[0] for key in cloud.objects()}
    read = {folder for folder in folders if athena.reads(f"s3://{BUCKET}/{folder}")}
    bodies = [body for key, body in cloud.objects().items() if body and key.rpartition("/")[0] in read]
    return sorted(row["id"] for body in bodies for row in read_file(body, table))


def folders(cloud: Cloud) -> list[str]:
    return sorted({key.rpartition("/")[0] for key in cloud.objects()})


@pytest.mark.parametrize(
    ("layout", "root", "folder", "keys"),
    [
        ("plain", "shop/events", "2023/01/31/12", ["2023", "01", "31", "12"]),
        ("rudderstack", "rudder-datalake/shop/events", "2023/01/31/12", ["2023", "01", "31", "12"]),
        ("segment", "segment-data/data/shop/segment_type=events", f"day={JAN}/hr=12", [JAN, "12"]),
        ("firehose", "shop/events", "year=2023/month=01/day=31/hour=12", ["2023", "01", "31", "12"]),
        ("lake/{database}/{table}/{year}-{month}", "lake/shop/events", "2023-01", ["2023", "01"]),
    ],
)
def test_the_first_content_of_another_lake_s_layout_lies_where_that_lake_has_it(
    cloud: Cloud, layout: str, root: str, folder: str, keys: list[str]
) -> None:
    sync(cloud, path_layout=layout, partitioning=..., partition_source="created_at", generation=1).commit((1, JAN))

    assert folders(cloud) == [f"{root}/{folder}"]
    assert [*partitions(cloud)] == [tuple(keys)]
    assert {key["Type"] for key in glue_table(cloud)["PartitionKeys"]} == {"string"}
    assert ids(cloud) == [1]

    overwriting = sync(
        cloud, path_layout=layout, partitioning=..., partition_source="created_at", generation=2, overwrite=True
    )
    overwriting.commit((2, JAN))
    overwriting.publish()

    assert ids(cloud) == [2]
    [*_, new] = folders(cloud)
    assert new.startswith(f"{root}__generations/generation-2-")
    assert new.endswith(folder)


@pytest.mark.parametrize("occupied", ["shop/events/2020/01/01/00/theirs.parquet", "shop/events/x"])
def test_a_folder_that_has_objects_already_is_not_a_new_table_s(cloud: Cloud, occupied: str) -> None:
    cloud.access.client("s3").put_object(Bucket=BUCKET, Key=occupied, Body=b"theirs")

    sync(cloud, path_layout="plain", partitioning=..., partition_source="created_at").commit((1, JAN))

    assert ids(cloud) == [1]
    assert all(key.startswith("shop/events/generation-0-") for key in cloud.objects() if key != occupied)


LAYOUTS: list[dict[str, Any]] = [
    {"partitioning": "DATE"},
    {"partitioning": "YEAR/MONTH"},
    {"partitioning": "DAY/HOUR"},
    {"path_layout": "plain", "partitioning": ..., "partition_source": "created_at"},
    {"path_layout": "segment", "partitioning": ..., "partition_source": "created_at"},
]


@pytest.mark.share(2)
@pytest.mark.parametrize("options", LAYOUTS, ids=str)
def test_every_row_lies_in_a_projected_location_and_in_a_registered_one(cloud: Cloud, options: dict[str, Any]) -> None:
    syncing = sync(cloud, catalog_partitions="both", **options)
    syncing.commit((1, JAN), (2, None))
    assert projected_ids(cloud) == ids(cloud) == [1, 2]
    syncing.commit((3, "1969-12-31"), (4, "2040-02-29"))
    assert projected_ids(cloud) == ids(cloud) == [1, 2, 3, 4]
    syncing.commit((WIDE, FEB))
    syncing.publish()
    assert projected_ids(cloud) == ids(cloud) == [1, 2, 3, 4, WIDE]

    overwriting = sync(cloud, catalog_partitions="both", overwrite=True, **options)
    overwriting.commit((11, FEB))
    overwriting.publish()

    assert projected_ids(cloud) == ids(cloud) == [11]


def test_projected_partitions_are_not_registered_and_cost_no_call(cloud: Cloud) -> None:
    access = another_client()
    syncing = sync(cloud, catalog_partitions="projection", access=access)

    assert calls(access, lambda: syncing.commit((1, JAN), (2, FEB))) == ["GetTable", "GetTable", "UpdateTable"]

    assert partitions(cloud) == {}
    assert projected_ids(cloud) == [1, 2]


@pytest.mark.share(1)
@pytest.mark.parametrize("options", LAYOUTS[1:4:2], ids=str)
def test_overwrite_of_a_projected_table_is_one_step(cloud: Cloud, options: dict[str, Any]) -> None:
    access = another_client()
    sync(cloud, catalog_partitions="projection", generation=1, **options).commit((1, JAN), (2, FEB))
    new = sync(cloud, catalog_partitions="projection", generation=2, overwrite=True, access=access, **options)
    seen: list[list[int]] = []

    with between_calls(access, lambda *_: seen.append(projected_ids(cloud))):
        new.commit((11, FEB), (12, MAR))
        new.publish()

    assert {tuple(visible_ids) for visible_ids in seen} <= {(1, 2), (11, 12)}
    assert projected_ids(cloud) == [11, 12]


def test_unfinished_overwrite_of_a_projected_table_is_adopted_into_projected_locations(cloud: Cloud) -> None:
    options: dict[str, Any] = {"catalog_partitions": "projection", "partitioning": "YEAR"}
    sync(cloud, generation=1, **options).commit((1, JAN))
    sync(cloud, generation=2, overwrite=True, **options).commit((11, "1999-01-01"), (12, None))

    sync(cloud, generation=2, **options).publish()

    assert projected_ids(cloud) == [1, 11, 12]


@pytest.mark.parametrize("layout", ["plain", "segment"])
def test_unfinished_overwrite_with_a_wider_column_is_adopted_into_a_table_in_its_root_folder(
    cloud: Cloud, layout: str
) -> None:
    options: dict[str, Any] = {"path_layout": layout, "partitioning": ..., "partition_source": "created_at"}
    sync(cloud, generation=1, **options).commit((1, JAN), (2, FEB))
    sync(cloud, generation=2, overwrite=True, **options).commit((WIDE, JAN), (12, MAR))

    sync(cloud, generation=2, **options).publish()

    assert ids(cloud) == [1, 2, 12, WIDE]
    assert all(not location.startswith("s3://") for location in locations(cloud).values()), "partitions left behind"


def test_rows_of_a_sync_killed_before_they_were_projected_are_not_acknowledged(cloud: Cloud) -> None:
    access = another_client()
    syncing = sync(cloud, catalog_partitions="projection", partitioning="YEAR", access=access)
    syncing.commit((1, JAN))

    def kill(_number: int, call: str) -> None:
        if call == "UpdateTable":
            raise Killed

    with between_calls(access, kill), pytest.raises(Killed):
        syncing.commit((2, "1999-01-01"))

    assert projected_ids(cloud) == [1]
    sync(cloud, catalog_partitions="projection", partitioning="YEAR").commit((3, "1999-01-01"))
    assert projected_ids(cloud) == [1, 2, 3]


@pytest.mark.parametrize("range_", ["NOW-40000DAYS,NOW", "2023-01-01, NOW"])
def test_range_that_a_user_has_set_in_athena_is_continued(cloud: Cloud, range_: str) -> None:
    sync(cloud, catalog_partitions="projection").commit((1, JAN))
    set_parameters(cloud, **{"projection.created_at_date.range": range_})

    sync(cloud, catalog_partitions="projection").commit((2, FEB))

    assert projected_ids(cloud) == [1, 2]


def test_append_to_a_table_without_its_range_is_refused_before_the_first_record(cloud: Cloud) -> None:
    sync(cloud, catalog_partitions="projection", generation=1).commit((1, JAN))
    set_parameters(cloud, **{"projection.created_at_date.range": None})

    with pytest.raises(TableConflict, match=r"Cannot read property projection\.created_at_date\.range of table events"):
        sync(cloud, catalog_partitions="projection", generation=1)

    overwriting = sync(cloud, catalog_partitions="projection", generation=2, overwrite=True)
    overwriting.commit((2, FEB))
    overwriting.publish()
    assert projected_ids(cloud) == [2]


def test_locations_of_partitions_are_below_the_table_s(cloud: Cloud) -> None:
    sync(cloud, columns=(ID, AT), path_layout="plain", partitioning=..., partition_source="created_at").commit((1, JAN))

    assert locations(cloud) == {"2023/01/31/12": "2023/01/31/12/"}
