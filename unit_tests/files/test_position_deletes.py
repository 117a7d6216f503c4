"""Files of position deletes, as Spark, Trino and others write them: which rows of a data file are dead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from destination_datalake.files.plan import SourceFile
from destination_datalake.files.reading import UnsupportedFile, deleted_rows
from unit_tests.cloud import BUCKET, Cloud
from unit_tests.files.stored import FOLDER, dead, field, put, put_deletes, with_deletes

pytestmark = pytest.mark.share(7)

FILE = SourceFile(f"{FOLDER}/a.parquet", 100, 6)
OTHER_FILE = SourceFile(f"{FOLDER}/b.parquet", 100, 6)


def plain(**columns: pa.DataType) -> pa.Schema:
    return pa.schema([pa.field(name, type_) for name, type_ in columns.items()])


def positions(lake: Cloud, file: SourceFile) -> list[int] | None:
    mask = deleted_rows(file, lake.access.client("s3"))
    assert mask is None or len(mask) == file.rows
    return None if mask is None else [int(position) for position in mask.nonzero()[0]]


def test_a_file_without_position_deletes_has_no_dead_rows(lake: Cloud) -> None:
    assert positions(lake, FILE) is None


def test_position_deletes_apply_only_to_their_file(lake: Cloud) -> None:
    shared_deletes = put_deletes(lake, "deletes", [*dead(FILE, [0, 4]), *dead(OTHER_FILE, [1, 2])])
    other_deletes = put_deletes(lake, "of other", dead(OTHER_FILE, [3]))

    assert positions(lake, with_deletes(FILE, shared_deletes, other_deletes)) == [0, 4]
    assert positions(lake, with_deletes(OTHER_FILE, shared_deletes, other_deletes)) == [1, 2, 3]
    assert positions(lake, with_deletes(FILE, other_deletes)) is None


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param(plain(file_path=pa.string(), pos=pa.int64()), id="no field ids"),
        pytest.param(
            pa.schema([field(2147483546, "f", pa.string()), field(2147483545, "p", pa.int64())]), id="other names"
        ),
        pytest.param(plain(file_path=pa.large_string(), pos=pa.int32()), id="other types"),
        pytest.param(plain(file_path=pa.binary(), pos=pa.uint64()), id="bytes"),
        pytest.param(plain(file_path=pa.dictionary(pa.int32(), pa.string()), pos=pa.int64()), id="a dictionary"),
    ],
)
def test_columns_are_found_however_their_writer_declared_them(lake: Cloud, schema: pa.Schema) -> None:
    deletes = put_deletes(lake, "deletes", [*dead(FILE, [5]), *dead(OTHER_FILE, [0])], schema)

    assert positions(lake, with_deletes(FILE, deletes)) == [5]


@pytest.mark.parametrize(
    "options",
    [{}, {"row_group_size": 2}, {"use_dictionary": False}, {"write_statistics": False}, {"store_schema": False}],
    ids=str,
)
def test_rows_are_found_in_any_layout_and_order(lake: Cloud, options: dict[str, Any]) -> None:
    rows = [*dead(OTHER_FILE, [5]), *dead(FILE, [5, 0, 5]), *dead(OTHER_FILE, [3]), *dead(FILE, [2])]
    deletes = put_deletes(lake, "deletes", rows, **options)

    assert positions(lake, with_deletes(FILE, deletes)) == [0, 2, 5]


def test_paths_compare_exactly(lake: Cloud) -> None:
    """The table's metadata and its delete files name a file by the same string."""
    names = ["s3a://lake/a b%20/é.parquet", "s3://lake/a b%20/é.parquet", "s3a://lake//a b%20/é.parquet"]
    files = [replace(FILE, uri=name) for name in names]
    rows = [row for number, file in enumerate(files) for row in dead(file, [number])]
    deletes = put_deletes(lake, "deletes", sorted(rows, key=lambda row: row[0]), row_group_size=1)

    assert [positions(lake, with_deletes(file, deletes)) for file in files] == [[0], [1], [2]]


@pytest.mark.parametrize("type_", [pa.string(), pa.large_string(), pa.binary()], ids=str)
def test_statistics_that_are_not_utf8_exclude_no_rows(lake: Cloud, type_: pa.DataType) -> None:
    """Other writers cut the paths in their statistics, possibly inside a character."""
    file = replace(FILE, uri=f"{FOLDER}/é.parquet")
    cut = file.uri.encode()[: len(f"{FOLDER}/") + 1]
    paths: Any = pa.array([cut, file.uri.encode()], pa.binary())
    # A view, because a cast to text would refuse the cut path.
    paths = paths.cast(pa.large_binary()).view(type_) if type_ == pa.large_string() else paths.view(type_)
    deletes = put(lake, "deletes", pa.table({"file_path": paths, "pos": pa.array([0, 3], pa.int64())}))

    assert positions(lake, with_deletes(file, deletes)) == [3]


def test_positions_that_the_file_does_not_have_delete_nothing(lake: Cloud) -> None:
    assert positions(lake, with_deletes(FILE, put_deletes(lake, "deletes", dead(FILE, [-1, 6, 2**40, 3])))) == [3]


def test_row_groups_of_other_files_are_not_read(lake: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    import destination_datalake.files.reading as reading

    monkeypatch.setattr(reading, "_MAX_WHOLE_BYTES", 0)
    monkeypatch.setattr(reading, "_FOOTER_BYTES", 64 * 1024)
    files = [replace(FILE, uri=f"{FOLDER}/{number}", rows=40_000) for number in range(5)]
    rows = [row for file in files for row in dead(file, range(0, 40_000, 2))]
    deletes = put_deletes(lake, "deletes", rows, row_group_size=20_000, compression="none")
    ranges: list[str] = []

    def notice(params: Any, **_: Any) -> None:
        ranges.append(params["headers"]["Range"])

    events = lake.access.client("s3").meta.events
    events.register("before-call.s3.GetObject", notice)
    dead_positions = positions(lake, with_deletes(files[2], deletes))
    events.unregister("before-call.s3.GetObject", notice)

    assert dead_positions == list(range(0, 40_000, 2))
    assert len(ranges) == 2


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"Obj\x01 of Avro", "has position delete files that cannot be read as Parquet"),
        (b"", "has position delete files that cannot be read as Parquet"),
        (None, "has a position delete file without the column file_path"),
    ],
)
def test_a_file_that_cannot_be_read_makes_the_data_file_unsuitable(
    lake: Cloud, body: bytes | None, reason: str
) -> None:
    schema = plain(path=pa.string(), pos=pa.int64())
    deletes = put_deletes(lake, "deletes", dead(FILE, [0]), schema)
    if body is not None:
        lake.access.client("s3").put_object(Bucket=BUCKET, Key="orders/data/deletes", Body=body)
        deletes = replace(deletes, size=len(body))

    with pytest.raises(UnsupportedFile, match=reason):
        deleted_rows(with_deletes(FILE, deletes), lake.access.client("s3"))


@pytest.mark.parametrize("count", [1, 30])
def test_many_files_of_deletes_may_apply(lake: Cloud, count: int) -> None:
    file = replace(FILE, rows=count)
    deletes: Sequence[SourceFile] = [put_deletes(lake, str(number), dead(file, [number])) for number in range(count)]

    assert positions(lake, with_deletes(file, *deletes)) == list(range(count))
