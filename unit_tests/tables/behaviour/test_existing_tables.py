"""Tables that another engine has created: which are written to, and which are refused before the first record."""

from __future__ import annotations

import pytest
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import BucketTransform, IdentityTransform, TruncateTransform, VoidTransform
from pyiceberg.types import BinaryType, IntegerType, LongType, NestedField, StringType, StructType

from destination_datalake.schema.names import METADATA_NAMES
from destination_datalake.tables.table import TableConflict
from integration_tests.harness.table_kinds import TABLE_KINDS
from unit_tests.tables.behaviour import other_engines
from unit_tests.tables.behaviour.shop import Shop, ids


def test_a_table_that_fits_keeps_its_rows_columns_and_properties(shop: Shop) -> None:
    other_engines.create(shop)
    other_engines.append(shop, id=1, theirs="kept")

    shop.sync().commit(*ids(2))

    assert shop.rows() == [{"id": 1, "theirs": "kept"}, {"id": 2, "theirs": None}]
    assert shop.types() == {"id": "bigint", "theirs": "string"}
    assert other_engines.property_of(shop) == "7"


def test_overwriting_a_table_keeps_its_columns_and_properties(shop: Shop) -> None:
    other_engines.create(shop)
    other_engines.append(shop, id=1, theirs="replaced")

    sync = shop.sync(2, overwrite=True)
    sync.commit(*ids(2))
    sync.publish()

    assert shop.rows() == [{"id": 2, "theirs": None}]
    assert shop.types() == {"id": "bigint", "theirs": "string"}
    assert other_engines.property_of(shop) == "7"


def test_a_value_that_a_column_cannot_hold_gets_a_column_of_its_own(shop: Shop) -> None:
    other_engines.create(shop, id_type="string")

    shop.sync().commit(*ids(1))

    [row] = shop.rows()
    assert row.pop("id__int") == 1
    assert row == {"id": None, "theirs": None}


@pytest.mark.parametrize(("exists", "stored"), [(True, '"open"'), (False, "open")])
def test_types_are_inferred_in_new_tables_only(shop: Shop, stored: str, *, exists: bool) -> None:
    if exists:
        other_engines.create(shop)
    schema = {"id": {"type": "integer"}, "theirs": {"enum": ["open"]}}

    for number in (1, 2):
        shop.sync(schema=schema).commit({"id": number, "theirs": "open"})

    assert shop.rows() == [{"id": 1, "theirs": stored}, {"id": 2, "theirs": stored}]


def test_a_column_of_another_type_is_refused_if_schema_conflicts_is_fail(shop: Shop) -> None:
    other_engines.create(shop, id_type="string")
    before = shop.lake.glue_table(*shop.name)

    with pytest.raises(
        TableConflict, match=f"to table {shop.name}: column id has type string, but the stream sends int"
    ):
        shop.sync(schema_conflicts="fail")

    assert shop.lake.glue_table(*shop.name) == before


@pytest.mark.parametrize("offset", [1, 2])
def test_a_table_of_another_type_is_refused_and_left_as_it_is(shop: Shop, offset: int) -> None:
    existing = TABLE_KINDS[(TABLE_KINDS.index(shop.kind) + offset) % len(TABLE_KINDS)]
    shop.sync(kind=existing).commit(*ids(1))
    before = shop.lake.glue_table(*shop.name)

    with pytest.raises(TableConflict, match=f"to table {shop.name}: it"):
        shop.sync()

    assert shop.lake.glue_table(*shop.name) == before
    assert shop.ids() == [1]


# --- Iceberg tables

iceberg = pytest.mark.parametrize("kind", TABLE_KINDS[:1], indirect=True, ids=lambda kind: kind.name)
SCHEMA = {"id": {"type": "integer"}, "orderNo": {"type": "string"}, "more": {"type": "string"}}
ID = NestedField(1, "id", IntegerType(), required=True, doc="the order's number")
ORDER_NO = NestedField(2, "order_no", StringType(), doc="on the paper")
PICTURE = NestedField(3, "picture", BinaryType(), doc="a scan")


@iceberg
def test_an_iceberg_table_keeps_all_that_is_not_ours(shop: Shop) -> None:
    """Required columns, ids, comments, types that are never written here, order of columns and of rows, properties."""
    buyer = NestedField(4, "buyer", StructType(NestedField(5, "name", StringType(), required=True, doc="in full")))
    by_number = SortOrder(SortField(1, IdentityTransform(), SortDirection.DESC, NullOrder.NULLS_LAST))
    other_engines.create_iceberg(
        shop, ID, ORDER_NO, PICTURE, buyer, order=by_number, properties={"comment": "Every order."}
    )

    for generation in (1, 2):
        sync = shop.sync(generation, overwrite=True, schema=SCHEMA)
        sync.commit({"id": 2**40, "orderNo": "a", "more": "b"})
        sync.publish()

    table = shop.lake.iceberg_table(*shop.name)
    wider = ID.model_copy(update={"field_type": LongType()})
    names = [field.name for field in table.schema().fields[4:]]
    assert [str(field) for field in table.schema().fields[:4]] == [
        str(field) for field in (wider, ORDER_NO, PICTURE, buyer)
    ]
    assert names == [*METADATA_NAMES, "more"]
    assert (table.sort_order(), table.properties["comment"]) == (by_number, "Every order.")
    columns = shop.lake.glue_table(*shop.name)["StorageDescriptor"]["Columns"]
    assert {column["Name"]: column.get("Comment") for column in columns}.items() >= {
        "id": ID.doc,
        "order_no": ORDER_NO.doc,
    }.items()


@iceberg
def test_a_record_without_a_value_for_a_required_column_is_refused(shop: Shop) -> None:
    """Nothing else would notice, and readers may make of it what they like."""
    other_engines.create_iceberg(shop, ID)
    sync = shop.sync(schema=SCHEMA)

    with pytest.raises(TableConflict, match="its column id is required, but some records contain no value"):
        sync.commit({"orderNo": "a"})

    assert shop.rows() == []
    assert not [key for key in shop.objects() if "/data/" in key]


@iceberg
def test_rows_are_in_the_partitions_of_an_iceberg_table(shop: Shop) -> None:
    """Nulls too, and where a partition field has been removed."""
    with other_engines.create_iceberg(shop, ID, ORDER_NO, PICTURE).update_spec() as update:
        update.add_field("order_no", TruncateTransform(1), "first").add_field("id", BucketTransform(4), "bucket")
        update.add_field("picture", VoidTransform(), "removed")

    shop.sync(schema=SCHEMA).commit(
        {"id": 1, "orderNo": "ab"}, {"id": 2, "orderNo": "ac"}, {"id": 3, "orderNo": "b"}, {"id": 4}
    )

    assert shop.ids() == [1, 2, 3, 4]
    table = shop.lake.iceberg_table(*shop.name)
    bucket = BucketTransform(4).transform(IntegerType())
    assert {tuple(task.file.partition._data) for task in table.scan().plan_files()} == {
        (first, bucket(id_), None) for id_, first in ((1, "a"), (2, "a"), (3, "b"), (4, None))
    }
    assert len(table.scan("order_no is null").to_arrow()) == 1
