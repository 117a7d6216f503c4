"""What the options mean for the partition fields and the order of a stream's table."""

from __future__ import annotations

from typing import Any

import pytest

from destination_datalake.config.options import Config
from destination_datalake.errors import ConfigError
from destination_datalake.protocol.catalog import Stream, StreamId
from destination_datalake.schema.types import Date, Field, Float64, Int64, Json, List, String, Struct, Timestamp
from destination_datalake.tables.layout import TableLayout
from destination_datalake.tables.naming import TableLocation
from unit_tests.config.examples import options

COLUMNS = [
    Field("id", "id", Int64()),
    Field("name", "name", String()),
    Field("price", "price", Float64()),
    Field("day", "day", Date()),
    Field("created_at", "createdAt", Timestamp(zoned=True)),
    Field("raw", "raw", Json()),
    Field("tags", "tags", List(String())),
    Field("address", "address", Struct((Field("city", "City", String()),))),
]


def layout(stream_options: dict[str, Any], **given: Any) -> TableLayout:
    stream = Stream(StreamId("shop", "orders"), {}, False, None, None, None)
    config = Config.parse(options(streams=[{"stream": "orders", **stream_options}], **given))
    return TableLayout(stream, config, TableLocation("s3://lake/shop/orders", "s3://lake/", follow=False))


@pytest.mark.parametrize(
    ("table_type", "source", "transform", "type_", "remedies"),
    [
        (
            "ICEBERG",
            "day",
            "hour",
            "date",
            "choose another transform (identity, bucket[N], year, month, day) or remove it",
        ),
        ("HIVE", "day", "hour", "date", "choose another transform (identity, year, month, day) or remove it"),
        (
            "ICEBERG",
            "day",
            "truncate[10]",
            "date",
            "choose another transform (identity, bucket[N], year, month, day) or remove it",
        ),
        (
            "ICEBERG",
            "name",
            "day",
            "string",
            "choose another transform (identity, bucket[N], truncate[W]) or remove it",
        ),
        ("HIVE", "raw", "day", "JSON text", "choose another transform (identity) or remove it"),
        ("ICEBERG", "price", "bucket[4]", "double", "choose another transform (identity) or remove it"),
        (
            "ICEBERG",
            "createdAt",
            "truncate[4]",
            "timestamp, UTC",
            "choose another transform (identity, bucket[N], year, month, day, hour) or remove it",
        ),
        ("ICEBERG", "tags", "identity", "array<string>", "remove it"),
        (
            "ICEBERG",
            "address",
            "bucket[2]",
            "struct<city:string>",
            "name a field inside address, such as address.City or remove it",
        ),
    ],
)
def test_a_transform_that_the_type_does_not_permit_is_refused(
    table_type: str, source: str, transform: str, type_: str, remedies: str
) -> None:
    given = layout({"partition_by": [{"source": source, "transform": transform}]}, table_type=table_type)

    with pytest.raises(ConfigError) as caught:
        given.iceberg_fields(COLUMNS) if table_type == "ICEBERG" else given.hive_fields(COLUMNS, digits=False)

    assert str(caught.value) == (
        f"streams: partition_by of stream shop.orders: rows cannot be partitioned by {transform}({source}), "
        f"because the type of field {source} is {type_}. To correct the entry, {remedies}."
    )


def test_a_field_inside_an_object_can_be_a_source() -> None:
    given = layout({"partition_by": [{"source": "address.City", "transform": "truncate[2]"}]})

    (field,) = given.iceberg_fields(COLUMNS) or ()

    assert (field.name, field.source) == ("address_city_trunc", ("address", "city"))


FLATTENED = [
    Field("city", "city", Date()),
    Field("address_city", "City", String(), ("address",)),
    Field("meta_at", "at", Timestamp(zoned=True), ("meta",)),
    Field("meta_raw_city", "city", Date(), ("meta", "raw")),
]


def test_a_flattened_column_is_a_source_by_its_path() -> None:
    by = [{"source": "address.City"}, {"source": "meta.at", "transform": "day"}]
    given = layout({"partition_by": by, "sort_by": [{"source": "meta.raw.city"}]})

    fields = given.iceberg_fields(FLATTENED) or ()

    assert [(field.name, field.source) for field in fields] == [
        ("address_city", ("address_city",)),
        ("meta_at_day", ("meta_at",)),
    ]
    assert [field.source for field in given.sort_fields(FLATTENED) or ()] == [("meta_raw_city",)]
    with pytest.raises(ConfigError, match="names the field at, but the stream has no such field"):
        layout({"sort_by": [{"source": "at"}]}).sort_fields(FLATTENED)


@pytest.mark.parametrize(
    ("partition_source", "cursor", "source"),
    [
        ("cursor", ("meta", "at"), "meta_at"),
        ("cursor", ("meta", "raw", "city"), "meta_raw_city"),
        ("cursor", ("city",), "city"),
        ("cursor", ("at",), None),
        ("meta.at", (), "meta_at"),
        ("city", (), "city"),
        ("at", (), None),
    ],
)
def test_a_flattened_cursor_partitions_the_table(
    partition_source: str, cursor: tuple[str, ...], source: str | None
) -> None:
    stream = Stream(StreamId("shop", "orders"), {}, False, None, None, None, cursor)
    config = Config.parse(options(partitioning="DAY", partition_source=partition_source))
    given = TableLayout(stream, config, TableLocation("s3://lake/shop/orders", "s3://lake/", follow=False))

    fields = given.iceberg_fields(FLATTENED)

    assert (fields and [field.source for field in fields]) == (source and [(source,)])


@pytest.mark.parametrize("source", ["tags", "address"])
def test_rows_cannot_be_sorted_by_lists_and_objects(source: str) -> None:
    given = layout({"sort_by": [{"source": "id"}, {"source": source}]})

    with pytest.raises(ConfigError, match=f"rows cannot be sorted by {source}, because the type"):
        given.sort_fields(COLUMNS)


@pytest.mark.parametrize("source", ["name", "shipped_at", "cursor"])
def test_a_stream_that_is_not_partitioned_is_warned_of(source: str, caplog: pytest.LogCaptureFixture) -> None:
    arranged = layout({}, partitioning="DATE", partition_source=source)

    assert arranged.iceberg_fields(COLUMNS) is None

    [warning] = caplog.records
    assert (warning.levelname, "shop.orders is not partitioned" in warning.message) == ("WARNING", True)
