"""Columns that become wider while a sync goes on, from one batch to the next."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from integration_tests.harness.messages import Json, configured_stream, record, state, status
from integration_tests.harness.warehouse import INTEGER, NUMBER, STRING, Warehouse, object_schema

INTEGERS: Json = {"type": "array", "items": INTEGER}
INSIDE = object_schema(up=INTEGER, down=INTEGER, ups={"type": "array", "items": object_schema(number=NUMBER)})
SCHEMA = object_schema(
    id=INTEGER, up=INTEGER, down=INTEGER, more=NUMBER, less=NUMBER, all=INTEGERS, inside=INSIDE, fill=STRING
)
FILL = "x" * 1_200_000
"""Makes a record a batch of its own where batch_size_mb is 1."""

WIDE = 2**40
THIRD = 1 / 3
"""Not exactly the same in 32 bits."""


def order(id: int, up: int, down: int, more: float, less: float) -> dict[str, object]:
    inside = {"up": up, "down": down, "ups": [{"number": more}, {"number": 0.5}]}
    return {
        "id": id,
        "up": up,
        "down": down,
        "more": more,
        "less": less,
        "all": [1, up],
        "inside": inside,
        "fill": FILL,
    }


@pytest.mark.slow
def test_columns_become_wider_from_one_batch_to_the_next_whichever_comes_first(warehouse: Warehouse) -> None:
    """Narrow batches before wide ones and after them, inside objects and arrays too, appended and replaced."""
    streams = [
        configured_stream("appended", SCHEMA, generation=1),
        configured_stream("replaced", SCHEMA, generation=1, minimum=1),
    ]
    batches = [
        order(1, up=1, down=WIDE, more=0.5, less=THIRD),
        order(2, up=2, down=2, more=0.25, less=0.25),
        order(3, up=WIDE, down=3, more=THIRD, less=0.5),
        order(4, up=4, down=4, more=0.5, less=0.5),
    ]
    names = ("appended", "replaced")
    lines = [line for data in batches for name in names for line in (record(name, data), state(name, data["id"]))]

    run = warehouse.sync(streams, [*lines, *(status(name, "COMPLETE") for name in names)], batch_size_mb=1)

    assert len(run.states) == len(batches) * len(names)
    for name in names:
        types = warehouse.columns(name)
        assert warehouse.rows(name) == batches
        assert len(warehouse.lake.data_files(warehouse.lake.database, name)) == len(batches)
        assert {column: type_ for column, type_ in types.items() if not column.startswith("_airbyte_")} == {
            "id": "int",
            "up": "bigint",
            "down": "bigint",
            "more": "double",
            "less": "double",
            "all": "array<bigint>",
            "inside": "struct<up:bigint,down:bigint,ups:array<struct<number:double>>>",
            "fill": "string",
        }
        if not warehouse.kind.promotes_in_place:
            assert len(stored_types(warehouse, name)) == 1, "every file has the table's types"
        if warehouse.kind.is_typed:
            stored = {leaf for schema in stored_types(warehouse, name) for leaf in leaves(schema)}
            assert pa.float32() not in stored, "some engines fail on files that hold a double as float"


def stored_types(warehouse: Warehouse, table: str) -> set[pa.Schema]:
    """Return the schemas of a table's data files, which are Parquet."""
    lake = warehouse.lake
    bodies = [
        lake.s3.get_object(Bucket=lake.bucket, Key=key)["Body"].read() for key in lake.data_files(lake.database, table)
    ]
    return {pq.read_schema(pa.BufferReader(body)).remove_metadata() for body in bodies}


def leaves(fields: Any) -> Iterator[pa.DataType]:
    """Yield the types of all values in a schema or a struct."""
    for field in fields:
        if pa.types.is_struct(field.type):
            yield from leaves(field.type)
        elif pa.types.is_list(field.type):
            yield from leaves([field.type.value_field])
        else:
            yield field.type
