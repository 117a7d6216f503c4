"""Locations at which a table is accepted, and the folder that its new content goes to."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from destination_datalake.protocol.catalog import StreamId
from destination_datalake.tables.naming import TableLocation
from destination_datalake.tables.table import TableConflict, TableName

ORDERS = StreamId("shop", "orders")
NAME = TableName("shop", "orders")
CONFIGURED = TableLocation("s3://lake/raw/shop/orders", "s3://lake/raw/", follow=False)
FOLLOWING = replace(CONFIGURED, follow=True)


@pytest.mark.parametrize(
    "location",
    [
        "s3://lake/raw/shop/orders",
        "s3://lake/raw/shop/orders/data/",
        "s3a://lake/raw/elsewhere/orders",
        "s3n://lake/raw/x",
    ],
)
def test_a_table_inside_bucket_and_prefix_is_accepted_and_logged(
    location: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        CONFIGURED.accept(ORDERS, NAME, "Hive", location, created=False)

    assert caplog.messages == [f"Stream shop.orders: continues Hive table shop.orders at {location}."]


@pytest.mark.parametrize(
    "location", ["s3://other/raw/shop/orders", "s3://lake/raw2/shop/orders", "s3://lake/raw", "hdfs://lake/raw/a", ""]
)
def test_a_table_outside_bucket_and_prefix_is_refused_unless_its_location_is_followed(location: str) -> None:
    with pytest.raises(TableConflict) as refused:
        CONFIGURED.accept(ORDERS, NAME, "Hive", location, created=False)

    message = str(refused.value)
    assert message.startswith("Cannot write stream shop.orders to table shop.orders: its location is")
    assert f"is {location}, outside s3://lake/raw/, which" in message
    assert "or set follow_table_location to true" in message
    if location.startswith("s3"):
        FOLLOWING.accept(ORDERS, NAME, "Hive", location, created=False)
    else:
        with pytest.raises(TableConflict, match="which is not in S3"):
            FOLLOWING.accept(ORDERS, NAME, "Hive", location, created=False)


@pytest.mark.parametrize("key", ["raw//orders", "raw/./orders", "raw/../orders", "/raw/orders", "a?b", "a#b"])
def test_an_iceberg_table_at_an_ambiguous_location_is_refused_even_if_followed(key: str) -> None:
    with pytest.raises(TableConflict, match="S3 clients resolve such paths differently"):
        FOLLOWING.accept(ORDERS, NAME, "Iceberg", f"s3://lake/{key}", created=False)


def test_an_iceberg_table_at_the_root_of_a_bucket_can_be_followed() -> None:
    FOLLOWING.accept(ORDERS, NAME, "Iceberg", "s3://orders", created=False)


@pytest.mark.parametrize(
    ("location", "root"),
    [
        ("s3://lake/raw/shop/orders/data", "s3://lake/raw/shop/orders"),
        ("s3://lake/raw/elsewhere", "s3://lake/raw/shop/orders"),
        ("s3://other/orders", "s3://other/orders"),
        ("s3://other/orders__generations/generation-7-0123456789ab", "s3://other/orders"),
    ],
)
def test_new_content_of_a_followed_table_stays_beside_it(location: str, root: str) -> None:
    assert FOLLOWING.content_root(location) == root


@pytest.mark.parametrize(
    ("folder", "is_path"),
    [
        ("s3://lake/raw/shop/orders", True),
        ("s3://lake/raw/shop/orders__generations", True),
        ("s3://old-lake/shop/orders", True),
        ("s3://lake/former/prefix/shop/orders", True),
        ("s3://lake/raw/workshop/orders", False),
        ("s3://lake/raw/shop/orders_copy", False),
        ("s3://lake/raw/shop", False),
        ("s3://lake/raw/mart/orders", False),
    ],
)
def test_path_of_a_table_is_independent_of_bucket_and_prefix(folder: str, is_path: bool) -> None:
    location = TableLocation("s3://lake/raw/shop/orders", "s3://lake/raw/", follow=False)

    assert location.is_path_of(folder) == is_path
