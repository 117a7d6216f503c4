"""Iceberg tables of other engines: compatible ones, and those that are refused before the first record."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, LongType, NestedField, StringType, StructType

from destination_datalake.schema.types import Field, Int64, List, String, Struct
from destination_datalake.tables.table import TableConflict
from unit_tests.tables.iceberg.lake import Lake, no_rewrite

pytestmark = pytest.mark.share(6)

ID = NestedField(1, "id", LongType())
BUYER = Field("buyer", "buyer", Struct((Field("age", "age", Int64()),)))
TAGS = Field("tags", "tags", List(String()))


def required_name(*, required: bool) -> NestedField:
    return NestedField(4, "buyer", StructType(NestedField(5, "name", StringType(), required=required)))


@pytest.mark.parametrize(
    ("fields", "options", "reason"),
    [
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
            (ID, NestedField(2, "theirs", StringType(), required=True)),
            {},
            "its column theirs is required, but the stream has no such field",
        ),
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
def test_an_incompatible_table_is_refused_and_left_unchanged(
    lake: Lake, fields: tuple[NestedField, ...], options: dict[str, Any], reason: str
) -> None:
    before = lake.create(Schema(*fields), **options).metadata

    with pytest.raises(TableConflict) as refused:
        lake.open(columns=(Field("id", "id", Int64()), BUYER, TAGS))

    assert str(refused.value).startswith(f"Cannot write stream shop.Orders to table {lake.name}: ")
    assert reason in str(refused.value)
    assert "or choose another lakeformation_database_name." in str(refused.value)
    assert lake.load().metadata == before


def test_a_required_column_of_the_connector_s_own_is_refused_only_if_the_platform_sends_nothing_for_it(
    lake: Lake,
) -> None:
    """Of this sync it sends no id; a generation it has."""
    sync_id = NestedField(3, "sync_id", LongType(), required=True)
    lake.create(
        Schema(
            ID,
            NestedField(2, "_airbyte_meta", StructType(sync_id), required=True),
            NestedField(4, "_airbyte_generation_id", LongType(), required=True),
        )
    )

    with pytest.raises(
        TableConflict, match=r"its column _airbyte_meta\.sync_id is required, but the platform sends no value"
    ):
        lake.open()
    lake.load().update_schema(allow_incompatible_changes=True).make_column_optional("_airbyte_meta.sync_id").commit()

    lake.open()


@pytest.mark.parametrize("name", ["_airbyte_meta.more", "_airbyte_meta.changes.element.more"])
def test_a_required_field_that_is_added_to_the_connector_s_own_is_refused(lake: Lake, name: str) -> None:
    more = NestedField(5, "more", LongType(), required=True)
    changes = NestedField(3, "changes", ListType(4, StructType(more), element_required=True))
    lake.create(Schema(ID, NestedField(2, "_airbyte_meta", StructType(more if "changes" not in name else changes))))

    with pytest.raises(TableConflict, match=f"its column {name} is required"):
        lake.open()


def test_a_table_of_format_version_3_is_refused(lake: Lake) -> None:
    lake.create(Schema(ID))
    lake.edit_metadata({"format-version": 3, "next-row-id": 0})

    with pytest.raises(
        TableConflict, match="its format-version is 3, but this connector supports only versions 1 and 2"
    ):
        lake.open()


def test_a_required_field_inside_a_column_without_a_stream_field_is_compatible(lake: Lake) -> None:
    lake.create(Schema(ID, required_name(required=True)))

    lake.commit(lake.open(), 1)

    assert lake.ids() == [1]


def test_a_table_of_format_version_1_is_compatible(lake: Lake) -> None:
    lake.create(Schema(ID), properties={"format-version": "1"})
    lake.append(-1)

    lake.commit(lake.open(), 1)
    new = lake.open(2, overwrite=True)
    lake.commit(new, 2)
    new.publish(no_rewrite)

    assert lake.ids() == [2]
    assert lake.load().metadata.format_version == 1


@pytest.mark.parametrize(
    ("field", "reason"),
    [
        ({"transform": "zorder"}, "its partition field p uses a transform that this connector does not support"),
        ({"source-id": 9}, "its partition field p refers to a dropped column"),
        ({"source-id": 3}, "its partition field p refers to a value inside a list or a map"),
    ],
)
def test_a_table_whose_partitions_cannot_be_written_is_refused(lake: Lake, field: dict[str, Any], reason: str) -> None:
    lake.create(Schema(ID, NestedField(4, "tags", ListType(5, StringType(), element_required=False))))
    by = {"name": "p", "field-id": 1000, "source-id": 1, "transform": "identity", **field}
    lake.edit_metadata({"partition-specs": [{"spec-id": 0, "fields": [by]}]})

    with pytest.raises(TableConflict, match=reason):
        lake.open(columns=(Field("id", "id", Int64()), TAGS))


def test_a_table_partitioned_by_several_columns_at_once_is_refused(lake: Lake) -> None:
    """Transforms of several columns came with format version 3."""
    lake.create(Schema(ID, NestedField(2, "n", LongType())))
    by = {"name": "p", "field-id": 1000, "source-ids": [1, 2], "transform": "bucket[4]"}
    lake.edit_metadata({"format-version": 3, "next-row-id": 0, "partition-specs": [{"spec-id": 0, "fields": [by]}]})

    with pytest.raises(TableConflict, match="this connector cannot read its metadata"):
        lake.open()


def test_a_table_whose_sort_order_has_a_dropped_column_is_refused(lake: Lake) -> None:
    lake.create(Schema(ID))
    by = {"source-id": 9, "transform": "identity", "direction": "asc", "null-order": "nulls-first"}
    lake.edit_metadata({"sort-orders": [{"order-id": 1, "fields": [by]}], "default-sort-order-id": 1})

    with pytest.raises(TableConflict, match="its sort order contains a dropped column"):
        lake.open()


def test_a_removed_partition_field_whose_column_was_dropped_is_compatible(lake: Lake) -> None:
    """In format version 1 it stays in the partition spec, as a void one."""
    lake.create(Schema(ID), properties={"format-version": "1"})
    void = {"name": "p", "field-id": 1000, "source-id": 9, "transform": "void"}
    kept = {"name": "b", "field-id": 1001, "source-id": 1, "transform": "bucket[4]"}
    lake.edit_metadata({"partition-specs": [{"spec-id": 0, "fields": [void, kept]}]})

    opened = lake.open()
    lake.commit_rows(opened, {"id": 1}, {"id": 2})

    assert lake.ids() == [1, 2]
    assert lake.scanned("id = 1") <= 1 < lake.scanned("id > 0") + 1
