"""Folders of Iceberg tables are named as Iceberg names them."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField as PyIcebergField
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import parse_transform as pyiceberg_transform
from pyiceberg.typedef import Record
from pyiceberg.types import NestedField

from destination_datalake.partitioning.paths import IcebergPath
from destination_datalake.partitioning.spec import (
    Bucket,
    Identity,
    PartitionField,
    PartitionValue,
    Since1970,
    Transform,
    Truncate,
    Void,
)
from destination_datalake.partitioning.transforms import transformed
from destination_datalake.schema.iceberg import from_iceberg
from destination_datalake.schema.types import Boolean, ColumnType, Date, Decimal, Float64, Int64, String, Timestamp
from unit_tests.partitioning.values import KINDS, TIME, Kind, transforms

names = st.sampled_from(["x", "x_day", "é=/&", "a b+c", "🧊"])


@given(st.data(), st.sampled_from([kind for kind in KINDS if kind is not TIME]), transforms, names)
def test_folders_are_those_of_pyiceberg(data: st.DataObject, kind: Kind, transform: Transform, name: str) -> None:
    iceberg_transform = pyiceberg_transform(str(transform))
    assume(iceberg_transform.can_transform(kind.iceberg))
    value = data.draw(st.none() | kind.values)
    (ours,) = transformed(pa.array([value], kind.arrow), transform).to_pylist()

    folder = IcebergPath((PartitionField(name, ("x",), transform),), (from_iceberg(kind.iceberg),)).folder([ours])

    schema = Schema(NestedField(1, "x", kind.iceberg, required=False))
    spec = PartitionSpec(PyIcebergField(source_id=1, field_id=1000, transform=iceberg_transform, name=name))
    assert folder == spec.partition_to_path(Record(ours), schema)[:512]


@pytest.mark.parametrize(
    ("value", "transform", "type_", "text"),
    [
        (49, Since1970("year"), Timestamp(zoned=True), "2019"),
        (597, Since1970("month"), Timestamp(zoned=True), "2019-10"),
        (18181, Since1970("day"), Timestamp(zoned=True), "2019-10-12"),
        (436352, Since1970("hour"), Timestamp(zoned=True), "2019-10-12-08"),
        (-1, Since1970("hour"), Timestamp(zoned=False), "1969-12-31-23"),
        (-1, Since1970("month"), Date(), "1969-12"),
        # The time of extraction is any number that a source has emitted.
        (-17259889, Since1970("hour"), Timestamp(zoned=True), "0000-12-31-23"),
        (2932897, Since1970("day"), Timestamp(zoned=True), "10000-01-01"),
        (-62135596800000001, Identity(), Timestamp(zoned=False), "0000-12-31T23%3A59%3A59.999999"),
        (18181, Identity(), Date(), "2019-10-12"),
        (18181, Identity(), Int64(), "18181"),
        (1, Identity(), Timestamp(zoned=True), "1970-01-01T00%3A00%3A00.000001%2B00%3A00"),
        (0, Identity(), Timestamp(zoned=False), "1970-01-01T00%3A00%3A00"),
        (True, Identity(), Boolean(), "true"),
        (-0.0, Identity(), Float64(), "-0.0"),
        ("a/b c=é", Identity(), String(), "a%2Fb+c%3D%C3%A9"),
        ("", Identity(), String(), ""),
        (b"\xff", Truncate(1), None, "%2Fw%3D%3D"),
        (7, Bucket(16), Decimal(9, 2), "7"),
        (None, Since1970("day"), Date(), "null"),
        (None, Void(), String(), "null"),
    ],
)
def test_texts_of_values(value: PartitionValue, transform: Transform, type_: ColumnType | None, text: str) -> None:
    path = pickle.loads(pickle.dumps(IcebergPath((PartitionField("x", ("x",), transform),), (type_,))))

    assert path.folder([value]) == f"x={text}"


@pytest.mark.parametrize("letter", ["a", "/", "語", "🧊"])
def test_the_key_of_a_file_is_never_too_long_for_s3(letter: str) -> None:
    fields: Any = tuple(PartitionField(name, (name,), Identity()) for name in ("x", "y"))

    for length in range(500, 520):
        folder = IcebergPath(fields, (String(), String())).folder(["b" * length, letter * 10_000])

        assert folder.isascii()
        assert len(folder) <= 512
        assert not folder.endswith(("/", "%"))
