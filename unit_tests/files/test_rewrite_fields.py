"""Data files written anew, their columns found by Iceberg field id: what becomes wider, and that the rest stays."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from destination_datalake.files.plan import RewriteTask, Rewritten
from destination_datalake.files.rewrite import rewrite
from unit_tests.cloud import BUCKET, Cloud
from unit_tests.cloud import cloud as an_account

OLD, NEW = f"s3://{BUCKET}/old.parquet", f"s3://{BUCKET}/new.parquet"


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with an_account() as account:
        yield account


def field(name: str, type_: pa.DataType, id_: int) -> pa.Field[Any]:
    return pa.field(name, type_, metadata={"PARQUET:field_id": str(id_)})


KEY: Any = field("key", pa.string(), 7).with_nullable(False)
VALUE: Any = field("value", pa.float32(), 8)
MOVES = pa.struct([field("up", pa.float32(), 4), field("down", pa.float32(), 5)])
SCHEMA = pa.schema(
    [
        field("price", pa.float32(), 1),
        field("moves", pa.list_(field("element", MOVES, 3)), 2),
        field("rates", pa.map_(KEY, VALUE), 6),
    ]
)
ROW = {"price": 0.1, "moves": [{"up": 0.5, "down": 0.3}, None], "rates": [("a", 0.25)]}


def rewritten(cloud: Cloud, *to_double: int) -> Rewritten:
    body = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([ROW, {}], SCHEMA), body)
    cloud.access.client("s3").put_object(Bucket=BUCKET, Key="old.parquet", Body=body.getvalue())
    [answer] = rewrite([RewriteTask(OLD, NEW, {}, cloud.access, frozenset(to_double))])
    assert isinstance(answer, Rewritten)
    return answer


def ids(fields: Any) -> dict[int, pa.DataType]:
    """The types of all leaves of a schema by their field ids."""
    found: dict[int, pa.DataType] = {}
    for each in fields:
        below: list[Any] = []
        if pa.types.is_map(each.type):
            below = [each.type.key_field, each.type.item_field]
        elif pa.types.is_list(each.type):
            below = [each.type.value_field]
        elif pa.types.is_struct(each.type):
            below = list(each.type)
        else:
            found[int(each.metadata[b"PARQUET:field_id"])] = each.type
        found |= ids(below)
    return found


def test_floats_become_doubles_by_their_field_ids_wherever_they_lie(cloud: Cloud) -> None:
    answer = rewritten(cloud, 1, 4)

    new = pq.read_table(cloud.arrow("new.parquet"))
    before = pa.Table.from_pylist([ROW, {}], SCHEMA).to_pylist()
    assert new.to_pylist() == before
    assert ids(new.schema) == {**ids(SCHEMA), 1: pa.float64(), 4: pa.float64()}
    assert answer == Rewritten(OLD, NEW, 2, len(cloud.objects()["new.parquet"]))


def test_a_file_that_holds_none_of_the_fields_is_not_written_again(cloud: Cloud) -> None:
    answer = rewritten(cloud, 9)

    assert answer == Rewritten(OLD, OLD, 2, len(cloud.objects()["old.parquet"]))
    assert "new.parquet" not in cloud.objects()
