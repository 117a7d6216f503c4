"""The keys of files in each layout, for rows of a source."""

from __future__ import annotations

from typing import Any

import pytest

from destination_datalake.protocol.catalog import StreamId
from unit_tests.tables.layout.orders import config, keys

NULL = "__HIVE_DEFAULT_PARTITION__"
TRACKS = {"properties": {"id": {"type": "string"}}}


PURCHASED = ("Product Purchased", "2019-10-12T08:40:50.52Z")
VIEWED = ("Cart Viewed", "2019-11-12T09:34:50.52Z")


@pytest.mark.parametrize(
    ("path_layout", "namespace", "event", "key"),
    [
        # The two examples of RudderStack's page on its S3 data lake.
        ("rudderstack", "my-source", PURCHASED, "rudder-datalake/my_source/product_purchased/2019/10/12/08"),
        ("rudderstack", "my-source", VIEWED, "rudder-datalake/my_source/cart_viewed/2019/11/12/09"),
        ("plain", "shop", PURCHASED, "shop/product_purchased/2019/10/12/08"),
        ("plain", "shop", VIEWED, "shop/cart_viewed/2019/11/12/09"),
        ("segment", "ios", PURCHASED, "segment-data/data/ios/segment_type=product_purchased/day=2019-10-12/hr=08"),
        ("segment", "ios", VIEWED, "segment-data/data/ios/segment_type=cart_viewed/day=2019-11-12/hr=09"),
        ("firehose", "shop", PURCHASED, "shop/product_purchased/year=2019/month=10/day=12/hour=08"),
        ("firehose", "shop", VIEWED, "shop/cart_viewed/year=2019/month=11/day=12/hour=09"),
        ("{database}/{table}/dt={date}/hr={hour}", "shop", VIEWED, "shop/cart_viewed/dt=2019-11-12/hr=09"),
        # A layout of RudderStack's own: its timeWindowLayout is `dt=2006-01-02`.
        (
            "rudder-datalake/{namespace}/{table}/dt={date}",
            None,
            VIEWED,
            "rudder-datalake/raw/cart_viewed/dt=2019-11-12",
        ),
    ],
)
def test_presets_have_the_keys_of_the_lakes_that_they_are_named_after(
    path_layout: str, namespace: str | None, event: tuple[str, str], key: str
) -> None:
    name, extracted_at = event
    rows = [{"id": "1", "_airbyte_extracted_at": extracted_at}]

    assert keys(config(path_layout=path_layout), rows, StreamId(namespace, name), TRACKS) == [key]


@pytest.mark.parametrize(
    ("path_layout", "partitioning", "folder", "of_null"),
    [
        ("plain", "YEAR", "2019", "0000"),
        ("plain", "YEAR/MONTH", "2019/10", "0000/00"),
        ("plain", "YEAR/MONTH/DAY", "2019/10/12", "0000/00/00"),
        ("rudderstack", "YEAR/MONTH/DAY/HOUR", "2019/10/12/08", "0000/00/00/00"),
        ("segment", "DATE", "day=2019-10-12", f"day={NULL}"),
        ("segment", "DAY/HOUR", "day=2019-10-12/hr=08", f"day={NULL}/hr={NULL}"),
        ("segment", "YEAR/MONTH/DAY", "year=2019/month=10/day=12", f"year={NULL}/month={NULL}/day={NULL}"),
        (
            "segment",
            "YEAR/MONTH/DAY/HOUR",
            "year=2019/month=10/day=12/hr=08",
            f"year={NULL}/month={NULL}/day={NULL}/hr={NULL}",
        ),
        ("firehose", "YEAR/MONTH", "year=2019/month=10", f"year={NULL}/month={NULL}"),
        ("hive", "NO PARTITIONING", "", ""),
        ("hive", "DATE", "created_at_date=2019-10-12", f"created_at_date={NULL}"),
        ("hive", "YEAR", "created_at_year=2019", f"created_at_year={NULL}"),
        ("hive", "MONTH", "created_at_month=10", f"created_at_month={NULL}"),
        ("hive", "DAY", "created_at_day=12", f"created_at_day={NULL}"),
        ("hive", "YEAR/MONTH", "created_at_year=2019/created_at_month=10", None),
        ("hive", "YEAR/MONTH/DAY", "created_at_year=2019/created_at_month=10/created_at_day=12", None),
        ("hive", "DAY/HOUR", "created_at_date=2019-10-12/created_at_hour=8", None),
    ],
)
def test_each_value_of_partitioning_has_its_folders_in_a_layout_also_for_rows_without_a_date(
    path_layout: str, partitioning: str, folder: str, of_null: str | None
) -> None:
    given = config(path_layout=path_layout, partitioning=partitioning, partition_source="cursor")
    root, *_ = keys(config(path_layout=path_layout, partitioning="NO PARTITIONING"), [{"id": 1}])

    paths = keys(given, [{"created_at": "2019-10-12T08:40:50.52Z"}, {"created_at": None}])

    assert paths[0] == f"{root}/{folder}".removesuffix("/")
    assert of_null is None or paths[1] == f"{root}/{of_null}".removesuffix("/")


@pytest.mark.parametrize(
    ("moment", "timezone", "folder"),
    [
        # Weeks of ISO 8601 belong to another year than these days, whose year is still the calendar's.
        ("2019-12-29T23:59:59Z", "UTC", "2019/12/29/23"),
        ("2019-12-30T00:00:00Z", "UTC", "2019/12/30/00"),
        ("2019-12-31T23:59:59.999999Z", "UTC", "2019/12/31/23"),
        ("2021-01-01T00:00:00Z", "UTC", "2021/01/01/00"),
        ("2020-02-29T12:00:00Z", "UTC", "2020/02/29/12"),
        ("2000-02-29T12:00:00Z", "UTC", "2000/02/29/12"),
        ("1900-03-01T00:00:00Z", "UTC", "1900/03/01/00"),
        # Offsets are of the text; the key is of the option's zone.
        ("2019-12-31T23:30:00-01:00", "UTC", "2020/01/01/00"),
        ("2020-01-01T00:30:00+05:30", "UTC", "2019/12/31/19"),
        ("2019-12-31T23:30:00Z", "Europe/Berlin", "2020/01/01/00"),
        ("2019-12-31T18:45:00Z", "Asia/Kathmandu", "2020/01/01/00"),
        # Berlin's clocks skip 02:00 to 03:00 on the last Sunday of March, and repeat it on that of October.
        ("2019-03-31T00:59:59Z", "Europe/Berlin", "2019/03/31/01"),
        ("2019-03-31T01:00:00Z", "Europe/Berlin", "2019/03/31/03"),
        ("2019-10-27T00:30:00Z", "Europe/Berlin", "2019/10/27/02"),
        ("2019-10-27T01:30:00Z", "Europe/Berlin", "2019/10/27/02"),
        ("0001-01-01T00:00:00Z", "UTC", "0001/01/01/00"),
        ("9999-12-31T23:00:00Z", "UTC", "9999/12/31/23"),
        ("9999-12-31T23:00:00Z", "Asia/Tokyo", "10000/01/01/08"),
        ("1969-12-31T23:59:59.9Z", "UTC", "1969/12/31/23"),
    ],
)
def test_dates_are_of_the_calendar_in_the_time_zone_of_the_options(moment: str, timezone: str, folder: str) -> None:
    given = config(path_layout="plain", timezone=timezone, partition_source="created_at")

    assert keys(given, [{"created_at": moment}]) == [f"shop/orders/{folder}"]


@pytest.mark.parametrize(
    ("moment", "timezone", "day"),
    [
        ("9999-12-31T23:59:59.999999Z", "Europe/Berlin", "9999-12-31"),
        ("0001-01-01T00:00:00Z", "America/New_York", "0001-01-01"),
    ],
)
def test_a_date_that_its_time_zone_moves_out_of_the_calendar_of_engines_stays_in_it(
    moment: str, timezone: str, day: str
) -> None:
    given = config(partitioning="DATE", timezone=timezone)

    assert keys(given, [{"created_at": moment}]) == [f"shop/orders/created_at_date={day}"]


@pytest.mark.parametrize(
    ("day", "timezone", "folder"),
    [
        ("2019-12-31", "UTC", "2019-12-31"),
        ("2019-12-31", "Asia/Tokyo", "2019-12-31"),
        ("2020-02-29", "UTC", "2020-02-29"),
    ],
)
def test_a_date_is_the_same_in_all_time_zones_and_its_hour_is_the_first(day: str, timezone: str, folder: str) -> None:
    given = config(path_layout="segment", timezone=timezone, partition_source="day")

    [key] = keys(given, [{"day": day}])

    assert key == f"segment-data/data/shop/segment_type=orders/day={folder}/hr=00"


def test_partition_keys_of_a_stream_are_variables_of_a_template() -> None:
    template = "lake/{database}/{table}/country={land}/{year}-{month}"
    streams: list[Any] = [{"stream": "orders", "partition_by": [{"source": "country", "name": "land"}]}]
    given = config(path_layout=template, partition_source="cursor", streams=streams)

    paths = keys(given, [{"country": "DE", "created_at": "2019-10-12"}, {"country": "a/b", "created_at": None}, {}])

    assert paths == [
        "lake/shop/orders/country=DE/2019-10",
        "lake/shop/orders/country=a%2Fb/0000-00",
        f"lake/shop/orders/country={NULL}/0000-00",
    ]
