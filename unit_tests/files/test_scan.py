"""Searches for rows in data files: by row ID in every format, and by the value of a column."""

from __future__ import annotations

import gzip
import tracemalloc
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap

from destination_datalake.archive.objects import row_id_prefix
from destination_datalake.aws import objects
from destination_datalake.aws.objects import Upload
from destination_datalake.files.block_tables import new_first_id, row_ids
from destination_datalake.files.dedup.tasks import RowSet
from destination_datalake.files.jobs import Failed
from destination_datalake.files.plan import FIRST, UNKNOWN, FileFormat, SourceFile
from destination_datalake.files.scan import (
    ColumnMatches,
    RowIdMatches,
    TableRows,
    column_value_tasks,
    find_by_column_value,
    find_by_row_id,
    merge_row_ids,
    row_id_tasks,
)
from destination_datalake.files.unit_files import extension, opener
from unit_tests.cloud import BUCKET, Cloud
from unit_tests.files.stored import FOLDER, dead, put, put_deletes, with_deletes

UNIT_ONE, UNIT_TWO, OTHER_UNIT = (new_first_id(FIRST) for _ in range(3))
UNITS = {row_id_prefix(octets.hex()): name for name, octets in (("one", UNIT_ONE), ("two", UNIT_TWO))}

KINDS: list[tuple[FileFormat, str]] = [("parquet", "ZSTD"), ("jsonl", "GZIP"), ("jsonl", "UNCOMPRESSED")]


def ids(first: bytes, *lines: int) -> pa.StringArray:
    return row_ids(first, np.array(lines, np.int64))


def rows(*units: tuple[bytes, Sequence[int]], **columns: Any) -> pa.Table:
    """Rows of these lines of units, with the same in these columns."""
    row_ids: Any = pa.concat_arrays([ids(first, *lines) for first, lines in units])
    beside = {name: pa.array([value] * len(row_ids), type_) for name, (value, type_) in columns.items()}
    return pa.table({"_airbyte_raw_id": row_ids, **beside})


def stored(cloud: Cloud, name: str, table: pa.Table, format: FileFormat = "parquet", codec: str = "ZSTD") -> SourceFile:
    uri = f"{FOLDER}/{name}{extension(format, codec)}"
    upload = Upload(cloud.access.client("s3"), uri, deferred=False)
    writer = opener(format, codec, table.schema)(upload)
    writer.write(table)
    writer.close()
    upload.close()
    return SourceFile(uri, upload.written, 0)


def search(cloud: Cloud, *sources: SourceFile) -> RowIdMatches | Failed:
    (result,) = find_by_row_id(row_id_tasks(sources, UNITS, 1, cloud.access))
    return result


def find_lines(cloud: Cloud, *sources: SourceFile) -> Mapping[str, tuple[int, ...]]:
    result = search(cloud, *sources)
    assert isinstance(result, RowIdMatches), result
    return {UNITS[unit]: tuple(lines) for unit, lines in merge_row_ids([result]).lines.items()}


@pytest.mark.parametrize(("format", "codec"), KINDS)
def test_the_lines_of_units_are_found_and_no_others(cloud: Cloud, format: FileFormat, codec: str) -> None:
    table = rows((UNIT_TWO, [7, 0x1234_5678]), (OTHER_UNIT, [1]), (UNIT_ONE, [3, 0, 3]), id=(1, pa.int64()))

    assert find_lines(cloud, stored(cloud, "a", table, format, codec)) == {"one": (0, 3), "two": (7, 0x1234_5678)}


@pytest.mark.parametrize(("format", "codec"), KINDS)
def test_a_file_without_rows_of_the_units_has_none(cloud: Cloud, format: FileFormat, codec: str) -> None:
    assert find_lines(cloud, stored(cloud, "a", rows((OTHER_UNIT, [1, 2]), id=(1, pa.int64())), format, codec)) == {}


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(Decimal("0.5"), id="what is written row by row"),
        pytest.param(f'"_airbyte_raw_id":"{uuid.UUID(bytes=UNIT_TWO)}"', id="a text that has an id"),
        pytest.param("x" * 300_000, id="large rows"),
    ],
)
def test_row_ids_are_found_in_json_lines_with_any_other_columns(cloud: Cloud, value: object) -> None:
    type_ = pa.decimal128(38, 38) if isinstance(value, Decimal) else pa.string()

    assert find_lines(cloud, stored(cloud, "a", rows((UNIT_ONE, [5]), value=(value, type_)), "jsonl", "GZIP")) == {
        "one": (5,)
    }


def test_lines_of_one_gzip_member_are_searched_in_bounded_memory(cloud: Cloud) -> None:
    [raw_id] = ids(UNIT_ONE, 5).to_pylist()
    line = b'{"x":"' + b"x" * 2**20 + f'","_airbyte_raw_id":"{raw_id}"}}\n'.encode()
    body = gzip.compress(line * 256, 1)
    cloud.access.client("s3").put_object(Bucket=BUCKET, Key="large.jsonl.gz", Body=body)

    tracemalloc.start()
    try:
        result = search(cloud, SourceFile(f"s3://{BUCKET}/large.jsonl.gz", len(body), 0))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert isinstance(result, RowIdMatches), result
    assert merge_row_ids([result]) == TableRows(
        {unit: BitMap((5,)) for unit, name in UNITS.items() if name == "one"}, 256
    )
    assert peak < 128 * 2**20


def test_a_line_beyond_the_limit_fails_the_task_with_its_name(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "MAX_MEMBER_BYTES", objects.PIECE_BYTES)
    body = gzip.compress(b'{"x":"' + b"x" * (4 * objects.PIECE_BYTES), 1)
    cloud.access.client("s3").put_object(Bucket=BUCKET, Key="long.jsonl.gz", Body=body)

    result = search(cloud, SourceFile(f"s3://{BUCKET}/long.jsonl.gz", len(body), 0))

    assert isinstance(result, Failed)
    assert f"Cannot read s3://{BUCKET}/long.jsonl.gz: has a line of more than" in result.failure.message


@pytest.mark.parametrize("damage", ["all of it", "the footer", "a page"])
def test_a_damaged_parquet_file_fails_the_task_with_its_name(cloud: Cloud, damage: str) -> None:
    good, damaged = (stored(cloud, name, rows((UNIT_ONE, range(1000)))) for name in ("good", "damaged"))
    s3, key = cloud.access.client("s3"), damaged.uri.removeprefix(f"s3://{BUCKET}/")
    body = bytearray(s3.get_object(Bucket=BUCKET, Key=key)["Body"].read())
    spoilt = {"all of it": slice(None), "the footer": slice(-40, -8), "a page": slice(400, 420)}[damage]
    for position in range(len(body))[spoilt]:
        body[position] ^= 0xFF
    s3.put_object(Bucket=BUCKET, Key=key, Body=bytes(body))

    result = search(cloud, good, damaged)

    assert isinstance(result, Failed)
    assert result.failure.type == "config_error"
    assert result.failure.message == (
        f"Cannot search rows in {damaged.uri}: the file cannot be read as Parquet. Restore the file from a copy, or "
        "remove it from the table."
    )


def test_files_of_all_kinds_are_searched_together(cloud: Cloud) -> None:
    sources = [
        stored(cloud, f"{number}", rows((UNIT_ONE, [number])), format, codec)
        for number, (format, codec) in enumerate(KINDS)
    ]

    assert find_lines(cloud, *sources) == {"one": (0, 1, 2)}


def test_a_file_that_another_engine_has_written_without_ids_has_none(cloud: Cloud) -> None:
    assert find_lines(cloud, put(cloud, "theirs.parquet", pa.table({"id": [1, 2]}))) == {}


@pytest.mark.parametrize(
    "written",
    [
        lambda ids: pa.array([None, *ids.to_pylist()]),
        lambda ids: ids.cast(pa.large_string()),
        lambda ids: pa.array(["", "short", *ids.to_pylist()]),
    ],
    ids=["nulls", "large texts", "other texts"],
)
def test_ids_may_be_as_other_engines_write_them(cloud: Cloud, written: Callable[[Any], Any]) -> None:
    table = pa.table({"_airbyte_raw_id": written(ids(UNIT_ONE, 1, 2))})

    assert find_lines(cloud, put(cloud, "a.parquet", table)) == {"one": (1, 2)}


def test_rows_that_position_deletes_remove_are_not_found(cloud: Cloud) -> None:
    file = stored(cloud, "a", rows((UNIT_ONE, [0, 1, 2]), (OTHER_UNIT, [7])))
    deletes = put_deletes(cloud, "deletes", dead(file, [0, 3]))

    result = search(cloud, replace(with_deletes(file, deletes), rows=4))

    assert isinstance(result, RowIdMatches), result
    assert merge_row_ids([result]) == TableRows({next(iter(UNITS)): BitMap((1, 2))}, 2)


def test_deleted_file_fails_the_task_with_its_name(cloud: Cloud) -> None:
    result = search(cloud, SourceFile(f"{FOLDER}/gone.parquet", 10, 0))

    assert isinstance(result, Failed)
    assert "gone.parquet" in result.failure.message


@pytest.mark.parametrize(("files", "tasks", "sizes"), [(0, 4, []), (1, 4, [1]), (5, 2, [3, 2]), (4, 4, [1, 1, 1, 1])])
def test_tasks_share_the_files(cloud: Cloud, files: int, tasks: int, sizes: Sequence[int]) -> None:
    sources = [SourceFile(f"{FOLDER}/{number}.parquet", 1, 1) for number in range(files)]

    made = row_id_tasks(sources, UNITS, tasks, cloud.access)

    assert [len(task.sources) for task in made] == sizes
    assert sorted(source.uri for task in made for source in task.sources) == [source.uri for source in sources]
    assert {task.units for task in made} <= {tuple(sorted(UNITS))}


def test_what_all_tasks_have_found_is_one() -> None:
    first, second = RowSet.from_bitmap(BitMap((1, 5))), RowSet.from_bitmap(BitMap((0, 5)))

    assert merge_row_ids([]) == TableRows({})
    assert merge_row_ids([RowIdMatches({"a": first}, 3, 1), RowIdMatches({"b": first, "a": second}, 4)]) == TableRows(
        {"a": BitMap((0, 1, 5)), "b": BitMap((1, 5))}, 7, 1
    )


@pytest.mark.parametrize(("format", "codec"), KINDS)
def test_rows_of_other_writers_and_second_copies_are_counted(cloud: Cloud, format: FileFormat, codec: str) -> None:
    table = rows((UNIT_ONE, [0, 1, 1, 1]), (OTHER_UNIT, [3]))

    result = search(cloud, stored(cloud, "a", table, format, codec))

    assert isinstance(result, RowIdMatches), result
    found = merge_row_ids([result])
    assert (found.rows, found.unknown, found.duplicates) == (5, 1, 2)


def test_a_unit_is_the_beginning_of_its_ids() -> None:
    assert {str(id_)[:-8] for id_ in ids(UNIT_ONE, 0, 1, 0xFFFF_FFFF).to_pylist()} == {row_id_prefix(UNIT_ONE.hex())}


ID = pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})


def test_deleted_file_is_missing_where_s3_answers_403(cloud: Cloud) -> None:
    gone = SourceFile(f"s3://{BUCKET}/folder/gone.parquet", 10, UNKNOWN)

    with cloud.refusing("GetObject"):
        [matches] = find_by_column_value(column_value_tasks([gone], ID, ("id",), cloud.access, 1))

    assert matches == ColumnMatches({}, missing=(gone.uri,))
