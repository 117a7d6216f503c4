"""Iceberg tables that somebody else made: which are written to, and which are refused before anything is."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, VoidTransform
from pyiceberg.types import IntegerType, ListType, LongType, NestedField, StringType, StructType, TimestampType

from destination_datalake.schema.types import Field, Int32, Int64, List, String, Struct
from destination_datalake.tables.table import Committed, TableConflict
from unit_tests.lake import Lake, no_rewrite

ID = NestedField(1, "id", LongType())
REGION = NestedField(2, "region", StringType())
DAY = NestedField(3, "day", TimestampType())
BUYER = Field("buyer", "buyer", Struct((Field("age", "age", Int64()),)))
TAGS = Field("tags", "tags", List(String()))


def required_name(*, required: bool) -> NestedField:
    return NestedField(4, "buyer", StructType(NestedField(5, "name", StringType(), required=required)))


@pytest.mark.parametrize(
    ("fields", "options", "said"),
    [
        (
            (ID, REGION),
            {"partition_spec": PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"))},
            "it is partitioned by identity(region)",
        ),
        (
            (ID, REGION, DAY),
            {
                "partition_spec": PartitionSpec(
                    PartitionField(3, 1000, DayTransform(), "day_part"),
                    PartitionField(1, 1001, BucketTransform(4), "b"),
                )
            },
            "it is partitioned by day(day), bucket[4](id)",
        ),
        (
            (ID, REGION),
            {"partition_spec": PartitionSpec(PartitionField(2, 1000, VoidTransform(), "region"))},
            "it is partitioned by void(region)",
        ),
        (
            (ID, NestedField(2, "Email", StringType()), NestedField(3, "email", StringType())),
            {},
            "its columns Email and email differ only in upper and lower case",
        ),
        (
            (ID, NestedField(2, "x", StructType(NestedField(3, "A", LongType()), NestedField(4, "a", LongType())))),
            {},
            "its columns x.A and x.a differ only in upper and lower case",
        ),
        ((ID, required_name(required=True)), {}, "its column buyer.name is required"),
        (
            (ID, NestedField(4, "tags", ListType(5, StringType(), element_required=True))),
            {},
            "its column tags.element is required",
        ),
        (
            (ID, NestedField(4, "tags", ListType(5, StringType(), element_required=False), required=True)),
            {},
            "its column tags is required",
        ),
    ],
)
def test_a_table_that_could_not_be_written_right_for_every_reader_is_refused_and_left_as_it_is(
    lake: Lake, fields: tuple[NestedField, ...], options: dict[str, Any], said: str
) -> None:
    before = lake.create(Schema(*fields), **options).metadata

    with pytest.raises(TableConflict) as refused:
        lake.open(columns=(Field("id", "id", Int64()), BUYER, TAGS))

    assert str(refused.value).startswith(f"Cannot write stream shop.Orders to table {lake.name}: ")
    assert said in str(refused.value)
    assert "or choose another lakeformation_database_name." in str(refused.value)
    assert lake.theirs().metadata == before


def test_a_table_of_a_format_version_to_come_is_refused(lake: Lake) -> None:
    lake.create(Schema(ID))
    lake.edit_metadata({"format-version": 3, "next-row-id": 0})

    with pytest.raises(TableConflict, match="its format-version is 3, and this connector writes versions 1 and 2"):
        lake.open()


def test_what_is_required_inside_a_column_that_the_stream_does_not_have_is_no_obstacle(lake: Lake) -> None:
    lake.create(Schema(ID, required_name(required=True)))

    lake.commit(lake.open(), 1)

    assert lake.ids() == [1]


def test_a_table_of_format_version_1_is_written_to(lake: Lake) -> None:
    lake.create(Schema(ID), properties={"format-version": "1"})
    lake.append(-1)

    lake.commit(lake.open(), 1)
    new = lake.open(2, replaces=True)
    lake.commit(new, 2)
    new.publish(no_rewrite)

    assert lake.ids() == [2]
    assert lake.theirs().metadata.format_version == 1


def test_a_table_that_is_partitioned_under_a_sync_is_refused_from_then_on(lake: Lake) -> None:
    """What was read of it already is not filed anywhere."""
    opened = lake.open()
    files = [lake.write(opened, 1)]
    with lake.theirs().update_spec() as update:
        update.add_field("id", BucketTransform(4))

    with pytest.raises(TableConflict, match="it is partitioned by"):
        opened.commit(files, no_rewrite)

    assert lake.ids() == []
    assert not any(key in files[0].uri for key in lake.objects())


# --- Names, which are the same whatever the case of their letters


def test_a_column_takes_a_field_whose_name_differs_only_in_case(lake: Lake) -> None:
    """At any depth; what is there stays as it is spelled."""
    inside = StructType(NestedField(5, "unitPrice", IntegerType(), required=False))
    fields = (NestedField(1, "ID", LongType()), NestedField(2, "Email", StringType()), NestedField(4, "Line", inside))
    lake.create(Schema(*fields))
    lake.theirs().append(pa.table({"ID": [1], "Email": ["a"]}))
    unit_price = Field("unitprice", "unitPrice", Int32())
    columns = (
        Field("id", "id", Int64()),
        Field("email", "email", String()),
        Field("line", "line", Struct((unit_price, Field("sku", "sku", String())))),
    )

    for number in (2, 3):
        opened = lake.open(columns=columns)
        row = {"ID": number, "Email": "b", "Line": {"unitPrice": 5, "sku": "c"}}
        assert opened.commit([lake.write_rows(opened, row)], no_rewrite) == Committed()

    table = lake.theirs()
    names = [field.name for field in table.schema().fields]
    assert [name for name in names if not name.startswith("_airbyte_")] == ["ID", "Email", "Line"]
    rows = table.scan(selected_fields=("ID", "Email", "Line")).to_arrow().sort_by("ID").to_pylist()
    line = {"unitPrice": 5, "sku": "c"}
    assert rows == [
        {"ID": 1, "Email": "a", "Line": None},
        {"ID": 2, "Email": "b", "Line": line},
        {"ID": 3, "Email": "b", "Line": line},
    ]
    assert [(column.name, column.source) for column in opened.plan().columns[:2]] == [("ID", "id"), ("Email", "email")]


def test_a_field_that_a_column_of_another_case_cannot_hold_gets_one_beside_it(lake: Lake) -> None:
    lake.create(Schema(ID, NestedField(2, "Email", LongType())))

    for _ in range(2):
        lake.open(columns=(Field("id", "id", Int64()), Field("email", "email", String())))

    names = [field.name for field in lake.theirs().schema().fields if not field.name.startswith("_airbyte_")]
    assert names == ["id", "Email", "email__string"]


# --- Rows that others deleted by delete files


def test_an_unfinished_replacement_with_deleted_rows_is_not_taken_in_as_if_they_were_there(lake: Lake) -> None:
    lake.commit(lake.open(), 1)
    lake.commit(lake.open(2, replaces=True), 2, 3)
    lake.delete_first_row("airbyte_generation_2")

    with pytest.raises(TableConflict, match=r"its branch airbyte_generation_2, .* has rows deleted by delete files"):
        lake.open(3)
    assert lake.ids() == [1]

    again = lake.open(2, replaces=True)
    lake.commit(again, 4)
    again.publish(no_rewrite)
    assert lake.ids() == [3, 4]
