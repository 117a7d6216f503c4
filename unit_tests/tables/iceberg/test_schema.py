"""Column names of existing Iceberg tables, which are compared without regard to case."""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, ListType, LongType, NestedField, StringType, StructType

from destination_datalake.schema.types import Field, Int32, Int64, String, Struct
from destination_datalake.tables.iceberg.schema import shared_members
from destination_datalake.tables.table import Committed
from unit_tests.tables.iceberg.lake import Lake, no_rewrite

ID = NestedField(1, "id", LongType())


def test_a_field_goes_into_the_column_whose_name_differs_only_in_case(lake: Lake) -> None:
    """At any depth; the spelling in the table is kept."""
    inside = StructType(NestedField(5, "Unit_Price", IntegerType(), required=False))
    fields = (NestedField(1, "ID", LongType()), NestedField(2, "Email", StringType()), NestedField(4, "Line", inside))
    lake.create(Schema(*fields))
    lake.load().append(pa.table({"ID": [1], "Email": ["a"]}))
    unit_price = Field("unit_price", "unitPrice", Int32())
    columns = (
        Field("id", "id", Int64()),
        Field("email", "email", String()),
        Field("line", "line", Struct((unit_price, Field("sku", "sku", String())))),
    )

    for number in (2, 3):
        opened = lake.open(columns=columns)
        row = {"ID": number, "Email": "b", "Line": {"Unit_Price": 5, "sku": "c"}}
        assert opened.commit([lake.write_rows(opened, row)], no_rewrite) == Committed()

    table = lake.load()
    names = [field.name for field in table.schema().fields]
    assert [name for name in names if not name.startswith("_airbyte_")] == ["ID", "Email", "Line"]
    rows = table.scan(selected_fields=("ID", "Email", "Line")).to_arrow().sort_by("ID").to_pylist()
    line = {"Unit_Price": 5, "sku": "c"}
    assert rows == [
        {"ID": 1, "Email": "a", "Line": None},
        {"ID": 2, "Email": "b", "Line": line},
        {"ID": 3, "Email": "b", "Line": line},
    ]
    assert [(column.name, column.source) for column in opened.plan().columns[:2]] == [("ID", "id"), ("Email", "email")]


def test_a_field_that_such_a_column_cannot_hold_gets_a_column_of_its_own(lake: Lake) -> None:
    lake.create(Schema(ID, NestedField(2, "Email", LongType())))

    for _ in range(2):
        lake.open(columns=(Field("id", "id", Int64()), Field("email", "email", String())))

    names = [field.name for field in lake.load().schema().fields if not field.name.startswith("_airbyte_")]
    assert names == ["id", "Email", "email__string"]


def test_member_that_may_hold_two_fields_is_the_first_of_two_with_one_doc() -> None:
    """As earlier versions left them; columns, which have always stayed with their fields, are none."""
    members = [
        NestedField(number, name, LongType(), doc=doc)
        for number, (name, doc) in enumerate([("_1", "+1"), ("_1_c59dc4e4", "+1"), ("_1_1bad6b8c", "-1")], 10)
    ]
    plain = [NestedField(20, "a", LongType()), NestedField(21, "b", LongType())]
    of_objects = ListType(30, StructType(*members, *plain), element_required=False)
    schema = Schema(*members, NestedField(31, "x", of_objects), NestedField(32, "y", StructType(*plain)))

    assert [*shared_members(schema.as_struct())] == [("x", "_1")]
