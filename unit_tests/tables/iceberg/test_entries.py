"""Entries of data files in manifests: the bounds of their columns."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.types import BinaryType, NestedField, StringType

from destination_datalake.files.plan import DataFile
from destination_datalake.tables.iceberg.snapshots.files import Entries

_SCHEMA = Schema(NestedField(1, "text", StringType()), NestedField(2, "bytes", BinaryType()))
_METADATA: TableMetadata = new_table_metadata(_SCHEMA, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, "s3://b/t")

_SPECIAL = ["a", "\x00", "\ud7ff", "\ue000", "\uffff", "\U0001f600", "\U0010ffff"]
_texts = st.text(st.sampled_from(_SPECIAL) | st.characters(codec="utf-8"), min_size=14, max_size=20)


def entry(*texts: str | None, octets: bytes = b"") -> IcebergFile:
    """Return the entry of a file with these texts."""
    fields: list[pa.Field[Any]] = [
        pa.field("text", pa.string(), metadata={"PARQUET:field_id": "1"}),
        pa.field("bytes", pa.binary(), metadata={"PARQUET:field_id": "2"}),
    ]
    body, footer = io.BytesIO(), io.BytesIO()
    with pq.ParquetWriter(body, pa.schema(fields)) as writer:
        writer.write_table(pa.table({"text": [*texts], "bytes": [octets] * len(texts)}, pa.schema(fields)))
    writer.writer.metadata.write_metadata_file(footer)
    entries = Entries(_METADATA)
    file = DataFile("s3://b/t/1.parquet", len(body.getvalue()), len(texts), (), footer.getvalue(), None)
    assert entries.add(file, None) is None
    return entries.entries[0]


@pytest.mark.parametrize(
    ("text", "upper"),
    [
        pytest.param("x" * 17, "x" * 15 + "y", id="the last character is raised by one"),
        pytest.param("x" * 15 + "\ud7ff", "x" * 15 + "\ud7ff", id="a text that is not cut stays"),
        pytest.param("x" * 15 + "\ud7ff" * 2, None, id="nothing follows the last character before surrogates"),
        pytest.param("x" * 14 + "\ud7ff\U0010ffff" + "x", None, id="also if it is raised for the last of all"),
        pytest.param("x" * 15 + "\U0010ffff" * 2, "x" * 14 + "y\U0010ffff", id="the last of all stays"),
        pytest.param("\U0010ffff" * 17, None, id="nothing is above"),
    ],
)
def test_the_upper_bound_of_long_texts_is_a_text_or_there_is_none(text: str, upper: str | None) -> None:
    data_file = entry("a", text, None)

    assert (data_file.upper_bounds or {}).get(1) == (None if upper is None else upper.encode())
    assert (data_file.lower_bounds or {})[1] == b"a"
    assert (data_file.value_counts[1], data_file.null_value_counts[1]) == (3, 1)


@given(st.lists(_texts, min_size=1, max_size=4), st.binary(min_size=14, max_size=18) | st.just(b"\xff" * 18))
def test_all_values_are_between_the_bounds(texts: list[str], octets: bytes) -> None:
    data_file = entry(*texts, octets=octets)

    lowers, uppers = data_file.lower_bounds or {}, data_file.upper_bounds or {}
    for id_, values in ((1, [text.encode() for text in texts]), (2, [octets])):
        assert all(lowers[id_] <= value for value in values)
        assert all(value <= uppers[id_] for value in values if id_ in uppers)
