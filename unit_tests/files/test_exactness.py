"""What other engines read from the data files is what was sent, or a reject has it."""

from __future__ import annotations

import base64
import decimal
import gzip
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, PyArrowFileIO
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import DataFileContent
from pyiceberg.manifest import FileFormat as IcebergFormat
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema, index_by_name
from pyiceberg.table import FileScanTask
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.typedef import Record

from destination_datalake.aws.upload import publish_all
from destination_datalake.files.encode import encode
from destination_datalake.files.plan import FileFormat, FilePlan
from destination_datalake.files.tasks import Encoded, EncodeTask, EncodeUnit
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.records.changes import Floats, ValueChange
from destination_datalake.rejects.location import RejectLocation
from destination_datalake.schema.arrow import arrow_type
from destination_datalake.schema.columns import METADATA_COLUMNS
from destination_datalake.schema.iceberg import iceberg_field
from destination_datalake.schema.narrowest import widest
from destination_datalake.schema.types import (
    ColumnType,
    Decimal,
    Field,
    List,
    Struct,
    Timestamp,
)
from unit_tests.cloud import BUCKET, Cloud, on_disk
from unit_tests.cloud import cloud as an_account
from unit_tests.examples import examples
from unit_tests.records.oracle import Oracle, a_line, as_dict, exactly, few_columns
from unit_tests.strategies import json_texts


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    with an_account() as account:
        yield account


def files_of(
    cloud: Cloud, folder: Path, lines: Sequence[bytes], columns: Sequence[Field], format: FileFormat
) -> tuple[Sequence[Path], Sequence[Mapping[str, Any]]]:
    """The data files that these lines become, as local files, and the rejects; the account is left empty."""
    codec = "UNCOMPRESSED" if format == "jsonl" else "ZSTD"
    ids = index_by_name(iceberg_schema(columns)) if format == "parquet" else {}
    plan = FilePlan(format, codec, tuple(columns), ids, f"s3://{BUCKET}/t", False, 1 << 27, 3, 4)
    location = RejectLocation(f"s3://{BUCKET}/_errors", "run", "2026-11-21", "db", "t")
    segment = folder / "segment"
    segment.write_bytes(b"".join(lines))
    unit = EncodeUnit(StreamId(None, "s"), "part", (on_disk(segment),), plan, location)
    [result] = encode([EncodeTask((unit,), cloud.access)])
    assert isinstance(result, Encoded), result
    publish_all([file.pending_upload for file in result.rejects], cloud.access.client("s3"))
    paths, rejects = [], []
    for key, content in cloud.objects().items():
        if key.startswith("_errors/"):
            rejects += [json.loads(line) for line in gzip.decompress(content).splitlines()]
        else:
            paths.append(folder / Path(key).name)
            paths[-1].write_bytes(content)
        cloud.access.client("s3").delete_object(Bucket=BUCKET, Key=key)
    assert sum(file.rows for file in result.files) == result.counts.records == len(lines)
    assert sum(result.counts.reasons.values()) == len(rejects)
    # Each reason has its object; a record's rejects are numbered across them.
    return paths, sorted(rejects, key=lambda reject: int(reject["subSequenceNumber"]))


def by_pyarrow(paths: Sequence[Path]) -> list[dict[str, Any]]:
    return [row for path in paths for row in pq.ParquetFile(path).read().to_pylist()]


def by_pyiceberg(paths: Sequence[Path], columns: Sequence[Field]) -> list[dict[str, Any]]:
    """The rows of an Iceberg table of these files, in the widest types that its columns can come to have."""
    schema = iceberg_schema(columns)
    metadata = new_table_metadata(schema, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, "file:///nowhere")
    files = [
        IcebergFile.from_args(
            content=DataFileContent.DATA,
            file_path=str(path),
            file_format=IcebergFormat.PARQUET,
            partition=Record(),
            record_count=pq.read_metadata(path).num_rows,
            file_size_in_bytes=path.stat().st_size,
        )
        for path in paths
    ]
    for file in files:
        file.spec_id = metadata.default_spec_id
    scan = ArrowScan(metadata, PyArrowFileIO(), schema, AlwaysTrue())
    return list(scan.to_table([FileScanTask(file) for file in files]).to_pylist())


def iceberg_schema(columns: Sequence[Field]) -> Schema:
    ids = itertools.count(1)
    wide = (replace(column, type=widest(column.type)) for column in columns)
    return Schema(*(iceberg_field(column, lambda: next(ids)) for column in (*METADATA_COLUMNS, *wide)))


def holds_list_of_structs(type_: ColumnType) -> bool:
    """Whether PyIceberg 0.12 reads nulls in it as empty lists (apache/iceberg-python, `list<struct>`)."""
    match type_:
        case List(element):
            return isinstance(element, Struct) or holds_list_of_structs(element)
        case Struct(fields):
            return any(holds_list_of_structs(field.type) for field in fields)
    return False


def by_duckdb(paths: Sequence[Path], columns: Sequence[Field]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    with duckdb.connect() as engine:
        engine.execute("SET TimeZone = 'UTC'")
        for path in paths:
            if path.suffix == ".parquet":
                relation = engine.read_parquet(str(path))
            else:
                empty = engine.from_arrow(pa.schema([(c.name, json_type(c.type)) for c in columns]).empty_table())
                types = dict(zip(empty.columns, map(str, empty.types), strict=True))
                meta = "STRUCT(sync_id BIGINT, changes STRUCT(field VARCHAR, change VARCHAR, reason VARCHAR)[])"
                own = {"_airbyte_raw_id": "VARCHAR", "_airbyte_extracted_at": "TIMESTAMP", "_airbyte_meta": meta}
                relation = engine.read_json(str(path), format="newline_delimited", columns={**own, **types})
            found = relation.to_arrow_table().to_pylist()
            if path.suffix != ".parquet":
                written = [json.loads(line, parse_float=decimal.Decimal) for line in path.read_bytes().splitlines()]
                found = [
                    {**row, **{c.name: with_decimals(row[c.name], text[c.name], c.type) for c in columns}}
                    for row, text in zip(found, written, strict=True)
                ]
            rows += found
    return rows


def with_decimals(value: Any, written: Any, type_: ColumnType) -> Any:
    """The value with its decimals, which were read as text, as the file spells them."""
    match type_, value:
        case _, None:
            return None
        case Decimal(), _:
            return decimal.Decimal(written)
        case Struct(fields), _:
            return {f.name: with_decimals(value[f.name], written[f.name], f.type) for f in fields}
        case List(element), _:
            return [with_decimals(each, text, element) for each, text in zip(value, written, strict=True)]
    return value


def json_type(type_: ColumnType) -> pa.DataType:
    """The type in which a reader of JSON lines finds the values: wide numbers, clocks in UTC without a zone."""
    match type_:
        case Timestamp():
            return pa.timestamp("us")
        case Decimal():
            # DuckDB's JSON reader takes a detour over floats, on which the largest decimals become too large.
            return pa.string()
        case Struct(fields):
            return pa.struct([pa.field(f.name, json_type(f.type)) for f in fields])
        case List(element):
            return pa.list_(json_type(element))
    return arrow_type(widest(type_))


def as_typed(value: Any, type_: ColumnType) -> Any:
    """The value with what JSON lines leave out put back: the zone."""
    match type_, value:
        case _, None:
            return None
        case Timestamp(zoned=True), datetime(tzinfo=None):
            return value.replace(tzinfo=UTC)
        case Struct(fields), _:
            return {f.name: as_typed(value[f.name], f.type) for f in fields}
        case List(element), _:
            return [as_typed(each, element) for each in value]
    return value


@pytest.mark.parametrize("format", ["parquet", "jsonl"])
def test_other_engines_read_what_was_sent(
    cloud: Cloud, format: FileFormat, tmp_path_factory: pytest.TempPathFactory
) -> None:
    @settings(max_examples=examples(60))
    @given(st.data(), few_columns)
    def law(data: st.DataObject, columns: list[Field]) -> None:
        folder = tmp_path_factory.mktemp("files")
        record = st.fixed_dictionaries({}, optional={c.source: json_texts(c.type) for c in columns})
        records = data.draw(st.lists(record, min_size=1, max_size=30))
        lines = [a_line(values, number) for number, values in enumerate(records)]

        paths, rejects = files_of(cloud, folder, lines, columns, format)

        readings = [(by_duckdb(paths, columns), columns)]
        if format == "parquet":
            # Nulls that PyIceberg turns into empty lists are its own.
            kept = [column for column in columns if not holds_list_of_structs(column.type)]
            readings += [(by_pyarrow(paths), columns), (by_pyiceberg(paths, columns), kept)]
        for rows, read in readings:
            assert len(rows) == len(records)
            for row in rows:
                sent_as = int(row["_airbyte_extracted_at"].timestamp() * 1000 + 0.5) % 1000
                sent = records[sent_as]
                own = [reject for reject in rejects if reject["row_id"] == row["_airbyte_raw_id"]]
                raw = [base64.b64decode(each["rawData"]) + b"\n" for each in own if each["rawData"] is not None]
                assert raw == [lines[sent_as]] * bool(own)
                changes = [
                    ValueChange(each["column_name"], each["change"], each["reason"], each["column_value"].encode())
                    for each in own
                ]
                assert [as_dict(change) for change in changes] == row["_airbyte_meta"]["changes"]
                oracle = Oracle(changes, Floats.FINITE if format == "jsonl" else Floats.ANY)
                for column in read:
                    value = exactly(sent.get(column.source, "null"))
                    assert oracle.holds(value, as_typed(row[column.name], column.type), column.type, column.source)

    law()
