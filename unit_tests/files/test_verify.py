"""Damaged data files, as `verify` reads them."""

from __future__ import annotations

import gzip
import io
import math
import random
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal as DecimalValue
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from destination_datalake.aws.objects import Upload
from destination_datalake.files import verify as verifying
from destination_datalake.files.block_tables import new_first_id, row_ids
from destination_datalake.files.parquet import write_position_deletes
from destination_datalake.files.plan import (
    UNKNOWN,
    ExpectedFileStats,
    ExpectedPartition,
    FileFormat,
    IngestOrder,
    SourceFile,
    VerifiedFile,
)
from destination_datalake.files.rewrite import writer_like
from destination_datalake.files.verify import VerifyTask, verify
from destination_datalake.partitioning.paths import PartitionFolders, PartitionKey, key_type
from destination_datalake.partitioning.spec import (
    NULL_PARTITION,
    Bucket,
    CalendarPart,
    Identity,
    PartitionField,
    PartitionValue,
    Since1970,
    Transform,
    Truncate,
)
from destination_datalake.schema.arrow import arrow_type
from destination_datalake.schema.types import (
    ColumnType,
    Date,
    Decimal,
    Field,
    Float32,
    Float64,
    Int32,
    String,
    Struct,
    Timestamp,
)
from unit_tests.cloud import BUCKET, Cloud
from unit_tests.files.stored import field
from unit_tests.files.written import written

URI = f"s3://{BUCKET}/file"
Write = Callable[[Cloud], bytes]
ROWS = pa.table(
    [range(500), [f"name {number % 7}" for number in range(500)], [number / 3 for number in range(500)]],
    schema=pa.schema([field(1, "id", pa.int64()), field(2, "name", pa.string()), field(3, "price", pa.float64())]),
)


def encoded(cloud: Cloud) -> bytes:
    return written(cloud, "parquet", "SNAPPY", ROWS)[0]


def rewritten(cloud: Cloud) -> bytes:
    original = io.BytesIO()
    pq.write_table(ROWS, original)
    upload = Upload(cloud.access.client("s3"), URI, deferred=False)
    with writer_like(pq.ParquetFile(original), ROWS.schema, upload) as writer:
        writer.write_table(ROWS)
    upload.close()
    return cloud.objects()["file"]


def deletes(cloud: Cloud) -> bytes:
    upload = Upload(cloud.access.client("s3"), URI, deferred=False)
    write_position_deletes(f"s3://{BUCKET}/other", np.arange(0, 5000, 3), upload)
    upload.close()
    return cloud.objects()["file"]


def problems(cloud: Cloud, content: bytes, schema: pa.Schema | None, rows: int = UNKNOWN) -> tuple[str, ...]:
    cloud.access.client("s3").put_object(Bucket=BUCKET, Key="file", Body=content)
    claim = ExpectedFileStats(SourceFile(URI, len(content), rows), "parquet", schema)
    [result] = verify([VerifyTask((claim,), cloud.access)])
    return getattr(result, "problems", (repr(result),))


def flipped(content: bytes, bit: int) -> bytes:
    damaged = bytearray(content)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


def values(content: bytes) -> pa.Table | None:
    """The rows as a reader finds them that does not look at checksums; None if it finds none."""
    try:
        return pq.ParquetFile(pa.BufferReader(content)).read(use_threads=False)
    except (pa.ArrowException, OSError):
        return None


@pytest.mark.parametrize("write", [encoded, rewritten, deletes])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 40))])
def test_a_flipped_bit_that_changes_values_is_found(cloud: Cloud, write: Write, seed: int) -> None:
    content, draw = write(cloud), random.Random(seed)
    schema = None if write is deletes else ROWS.schema
    right = values(content)
    assert right is not None
    assert problems(cloud, content, schema, right.num_rows) == ()
    changed = 0

    while changed < 2:
        damaged = flipped(content, draw.randrange(8 * len(content)))
        if values(damaged) != right:
            changed += 1
            assert problems(cloud, damaged, schema, right.num_rows)


@pytest.mark.parametrize(("kind", "compress"), [("", bytes), (".gz", gzip.compress)])
def test_a_line_beyond_the_limit_is_a_problem(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, kind: str, compress: Callable[[bytes], bytes]
) -> None:
    monkeypatch.setattr(verifying, "MAX_MEMBER_BYTES", 20)
    content = compress(b'{"id": 1}\n{"id": ' + b"1" * 12 + b"}\n")

    def lines_problems() -> tuple[str, ...]:
        cloud.access.client("s3").put_object(Bucket=BUCKET, Key=f"file.jsonl{kind}", Body=content)
        source = SourceFile(f"{URI}.jsonl{kind}", len(content), UNKNOWN)
        [result] = verify([VerifyTask((ExpectedFileStats(source, "jsonl", None),), cloud.access)])
        return getattr(result, "problems", (repr(result),))

    assert lines_problems() == ("exceeds the limit of 20 bytes per line in line 2",)
    monkeypatch.setattr(verifying, "MAX_MEMBER_BYTES", 21)
    assert lines_problems() == ()


def test_a_footer_at_which_arrow_aborts_is_found(cloud: Cloud) -> None:
    content = encoded(cloud)
    optional = bytes([0x25, 0x02, 0x18, 2]) + b"id"  # OPTIONAL, then the name, in Thrift's compact protocol.
    [place] = [match.start() for match in re.finditer(re.escape(optional), content)]

    assert problems(cloud, flipped(content, 8 * (place + 1) + 1), ROWS.schema) == ("cannot be read as Parquet",)


# --- Partitions -------------------------------------------------------------------------------------------------------


def verified(cloud: Cloud, name: str, content: bytes, expected: ExpectedPartition | None, schema: Any) -> VerifiedFile:
    cloud.access.client("s3").put_object(Bucket=BUCKET, Key=name, Body=content)
    source = SourceFile(f"s3://{BUCKET}/{name}", len(content), UNKNOWN)
    kind = "jsonl" if name.endswith((".jsonl", ".jsonl.gz")) else "parquet"
    [result] = verify([VerifyTask((ExpectedFileStats(source, kind, schema, partition=expected),), cloud.access)])
    assert isinstance(result, VerifiedFile), result
    return result


def of_hive(
    cloud: Cloud,
    type_: ColumnType,
    values: Sequence[Any],
    folder: str,
    *,
    format: FileFormat = "parquet",
    transform: Transform | None = None,
    path: tuple[str, ...] = ("c",),
    **expected: Any,
) -> tuple[str, ...]:
    """The problems of a file in a folder `c_key=…`, which has rows with these values."""
    leaf = type_
    for name in path[1:]:
        assert isinstance(leaf, Struct)
        leaf = next(field.type for field in leaf.fields if field.name == name)
    by = PartitionField("c_key", path, transform or Identity())
    key = PartitionKey(by, key_type(by, leaf, digits=False), leaf)
    folders = PartitionFolders.hive([key], **expected)
    texts = folders.texts_of(folder)
    assert texts is not None
    table = pa.table({path[0]: pa.array(values, arrow_type(type_))})
    content, _ = written(cloud, format, "UNCOMPRESSED" if format == "jsonl" else "SNAPPY", table)
    return verified(cloud, f"file.{format}", content, ExpectedPartition((by,), texts, folders), None).problems


COUNTRY = Struct((Field("country", "country", String()),))
NULL = f"c_key={NULL_PARTITION}"
WRONG = ("contains rows whose value of partition key c_key differs from its folder",)
KEYS: Sequence[tuple[str, ColumnType, tuple[str, ...], Sequence[Any], str, Sequence[Any]]] = [
    ("integer", Int32(), ("c",), [7, 7], "c_key=7", [7, 8]),
    ("decimal", Decimal(10, 2), ("c",), [DecimalValue("1.50")], "c_key=1.50", [DecimalValue("1.51")]),
    ("widened decimal", Decimal(12, 2), ("c",), [DecimalValue("1.50")], "c_key=1.5", [DecimalValue("15.0")]),
    ("float", Float64(), ("c",), [0.1], "c_key=0.1", [0.2]),
    ("32-bit float", Float32(), ("c",), [0.1], "c_key=0.10000000149011612", [0.2]),
    ("large float", Float64(), ("c",), [1e300], "c_key=1e+300", [1.0]),
    ("zero", Float64(), ("c",), [0.0, -0.0], "c_key=-0.0", [1.0]),
    ("text", String(), ("c",), ["a/b\x00"], "c_key=a%2Fb%00", ["a"]),
    ("nested field", COUNTRY, ("c", "country"), [{"country": "CH"}], "c_key=CH", [{"country": "DE"}]),
    ("null in nested field", COUNTRY, ("c", "country"), [None, {"country": None}], NULL, [None, {"country": "DE"}]),
    ("date", Date(), ("c",), [0], "c_key=1970-01-01", [1]),
    ("null", Int32(), ("c",), [None], NULL, [None, 1]),
    ("empty text", String(), ("c",), ["", None], NULL, ["a"]),
    ("null beside a value", Int32(), ("c",), [7], "c_key=7", [7, None]),
    ("no location", String(), ("c",), ["\ufffe"], NULL, ["x"]),
]


@pytest.mark.share(8)
@pytest.mark.parametrize("format", ["parquet", "jsonl"])
@pytest.mark.parametrize(
    ("type_", "path", "own", "folder", "foreign"), [case[1:] for case in KEYS], ids=[case[0] for case in KEYS]
)
def test_hive_file_in_the_folder_of_another_partition_is_found(
    cloud: Cloud,
    type_: ColumnType,
    path: tuple[str, ...],
    own: Sequence[Any],
    folder: str,
    foreign: Sequence[Any],
    format: FileFormat,
) -> None:
    assert of_hive(cloud, type_, own, folder, format=format, path=path) == ()
    assert of_hive(cloud, type_, foreign, folder, format=format, path=path) == WRONG


@pytest.mark.parametrize("format", ["parquet", "jsonl"])
def test_values_that_are_too_long_for_a_folder_may_be_in_the_null_partition(cloud: Cloud, format: FileFormat) -> None:
    assert of_hive(cloud, String(), ["x" * 60], NULL, format=format, max_bytes=50) == ()
    assert of_hive(cloud, String(), ["x" * 60], NULL, format=format) == WRONG


@pytest.mark.parametrize("format", ["parquet", "jsonl"])
def test_local_dates_are_compared_only_where_the_file_says_whether_times_have_a_zone(
    cloud: Cloud, format: FileFormat
) -> None:
    late = datetime(2024, 1, 1, 23, 30, tzinfo=UTC)

    def is_found(day: int, zone: str, *, zoned: bool | None) -> bool:
        times = [late if zoned else late.replace(tzinfo=None)]
        folder, by = f"c_key=2024-01-{day:02}", CalendarPart("date", zone)
        return of_hive(cloud, Timestamp(zoned=zoned), times, folder, format=format, transform=by) == WRONG

    for zoned, zone, right in ((True, "Europe/Zurich", 2), (True, "UTC", 1), (None, "UTC", 1)):
        assert [is_found(day, zone, zoned=zoned) for day in (1, 2, 3)] == [day != right for day in (1, 2, 3)]
    unknown = [False, False, False]
    in_local_time = [is_found(day, "Europe/Zurich", zoned=None) for day in (1, 2, 3)]
    assert in_local_time == (unknown if format == "jsonl" else [False, True, True])


@pytest.mark.parametrize("format", ["parquet", "jsonl"])
def test_rows_of_syncs_without_the_source_of_a_key_belong_to_its_null_partition(
    cloud: Cloud, format: FileFormat
) -> None:
    by = PartitionField("c_key", ("c",), Identity())
    folders = PartitionFolders.hive([PartitionKey(by, Int32(), Int32())])
    results = {}
    for column in ("_airbyte_raw_id", "id"):
        content, _ = written(
            cloud, format, "UNCOMPRESSED" if format == "jsonl" else "SNAPPY", pa.table({column: ["a"]})
        )
        for value in ("8", NULL_PARTITION):
            expected = ExpectedPartition((by,), (value,), folders)
            results[column, value] = verified(cloud, f"file.{format}", content, expected, None).problems

    assert results.pop(("_airbyte_raw_id", "8")) == WRONG
    assert {*results.values()} == {()}


def test_lines_without_the_key_or_with_values_of_another_type_are_no_alarm(cloud: Cloud) -> None:
    by = PartitionField("c_key", ("c",), Identity())
    folders = PartitionFolders.hive([PartitionKey(by, Int32(), Int32())])
    lines = b'{"C": 7}\n{"c": "seven"}\n'

    assert verified(cloud, "file.jsonl", lines, ExpectedPartition((by,), ("8",), folders), None).problems == ()


MICROSECONDS = 1_000_000
ICEBERG_VALUES: Sequence[tuple[pa.DataType, Transform, Any, PartitionValue, PartitionValue]] = [
    (pa.int64(), Identity(), 7, 7, 8),
    (pa.int64(), Identity(), None, None, 8),
    (pa.int64(), Identity(), 7, 7, None),
    (pa.float64(), Identity(), math.nan, math.nan, 0.0),
    (pa.float64(), Identity(), -0.0, 0.0, 1.0),
    (pa.decimal128(10, 2), Identity(), DecimalValue("1.5"), DecimalValue("1.50"), DecimalValue("1.51")),
    (pa.string(), Truncate(2), "abc", "ab", "abc"),
    (pa.string(), Bucket(16), "abc", 0, 1),
    (pa.int64(), Truncate(10), -(2**31), -(2**31) - 2 + 2**32, 0),
    (pa.date32(), Since1970("month"), 40, 1, 0),
    (pa.timestamp("us", "UTC"), Since1970("hour"), -1, -1, -2),
    (pa.timestamp("us", "UTC"), Since1970("hour"), -1, 0, 1),
]


@pytest.mark.share(4)
@pytest.mark.parametrize(("type_", "transform", "value", "own", "foreign"), ICEBERG_VALUES)
def test_iceberg_file_with_rows_of_another_partition_than_its_manifest_is_found(
    cloud: Cloud,
    type_: pa.DataType,
    transform: Transform,
    value: Any,
    own: PartitionValue,
    foreign: PartitionValue,
) -> None:
    by = PartitionField("c_key", ("c",), transform)
    table = pa.table([pa.array([value], type_)], schema=pa.schema([field(1, "c", type_)]))
    content, _ = written(cloud, "parquet", "SNAPPY", table)
    if transform == Bucket(16):
        own = next(number for number in range(16) if not _of_iceberg(cloud, content, by, number, table.schema))
        foreign = (own + 1) % 16

    assert _of_iceberg(cloud, content, by, own, table.schema) == ()
    assert _of_iceberg(cloud, content, by, foreign, table.schema) == (
        "contains rows whose value of partition key c_key differs from its manifest",
    )


def test_columns_that_an_iceberg_file_lacks_have_the_values_of_its_partition(cloud: Cloud) -> None:
    content, _ = written(cloud, "parquet", "SNAPPY", ROWS)
    schema = pa.schema([*ROWS.schema, field(9, "c", pa.int64())])

    assert _of_iceberg(cloud, content, PartitionField("c_key", ("c",), Identity()), 7, schema) == ()


def _of_iceberg(
    cloud: Cloud, content: bytes, by: PartitionField, value: PartitionValue, schema: pa.Schema
) -> tuple[str, ...]:
    return verified(cloud, "file.parquet", content, ExpectedPartition((by,), (value,)), schema).problems


# --- Swapped files ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", ["parquet", "jsonl"])
def test_row_ids_tell_the_batch_of_a_file(cloud: Cloud, format: FileFormat) -> None:
    def of_unit(batch: int, part: int) -> pa.Table:
        first_id = new_first_id(IngestOrder(1_700_000_000_000 + batch, part))
        return pa.table({"_airbyte_raw_id": row_ids(first_id, np.arange(3, dtype=np.int64))})

    def as_file(*units: pa.Table, name: str = "0123456789ab-000002-0001-89abcdef-0000") -> tuple[object, int | None]:
        content, _ = written(cloud, format, "UNCOMPRESSED" if format == "jsonl" else "SNAPPY", pa.concat_tables(units))
        result = verified(cloud, f"{name}.{format}", content, None, None)
        return result.problems, result.started

    replaced = ("contains row IDs of a different batch than its name, so the file was replaced",)
    assert as_file(of_unit(2, 1)) == ((), 1_700_000_000_000)
    assert as_file(of_unit(3, 1)) == ((), 1_700_000_000_001), "no other start of this sync"
    assert as_file(of_unit(2, 0)) == (replaced, None)
    assert as_file(of_unit(2, 1), of_unit(2, 1)) == (replaced, None)
    assert as_file(of_unit(2, 0), of_unit(7, 1), name="written-by-another-engine") == ((), None)
