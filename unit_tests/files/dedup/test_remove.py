"""The removal job: a file without its dead rows, written again or with a file of position deletes beside it."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

import destination_datalake.files.reading as reading
from destination_datalake.aws.objects import delete_uncommitted
from destination_datalake.files.dedup.remove import remove
from destination_datalake.files.dedup.tasks import Deletes, Removal, Removed, RemoveTask, RowSet, Versions
from destination_datalake.files.jobs import Failed, results_or_raise
from destination_datalake.files.plan import SourceFile, WrittenFile
from unit_tests.cloud import BUCKET, Cloud
from unit_tests.examples import examples
from unit_tests.files.stored import DELETES, FOLDER, dead, field, put, put_deletes, with_deletes

SCHEMA = pa.schema([field(1, "id", pa.int64()), field(2, "name", pa.string()), field(3, "at", pa.int64())])
VERSIONS = Versions((1,), None, 3, 3)


def rows(*numbers: int) -> list[dict[str, Any]]:
    return [{"id": number, "name": f"name {number}", "at": 0} for number in numbers]


def stored(lake: Cloud, count: int = 6, **options: Any) -> SourceFile:
    return put(lake, "a.parquet", pa.Table.from_pylist([*rows(*range(count))], SCHEMA), **options)


def task(
    lake: Cloud, file: SourceFile, positions: Iterable[int] | None, deletes: Deletes = "copy_on_write"
) -> RemoveTask:
    gone = None if positions is None else RowSet.from_bitmap(BitMap(positions))
    return of_files(lake, Removal(file, gone), deletes=deletes)


def of_files(lake: Cloud, *files: Removal, deletes: Deletes = "copy_on_write") -> RemoveTask:
    return RemoveTask("merge-1", files, VERSIONS, SCHEMA, FOLDER, "ZSTD", deletes, lake.access)


def removed(task: RemoveTask) -> Removed:
    [result] = results_or_raise(remove([task]))
    return result


def parquet(lake: Cloud, file: WrittenFile | None) -> pq.ParquetFile:
    assert file is not None
    body = lake.objects()[file.uri.removeprefix(f"s3://{BUCKET}/")]
    assert len(body) == file.size
    opened = pq.ParquetFile(pa.BufferReader(body))
    assert opened.metadata.num_rows == file.rows == pq.read_metadata(io.BytesIO(file.footer)).num_rows
    return opened


def written(lake: Cloud) -> list[str]:
    return [key for key in lake.objects() if "/merge-1" in key]


def test_a_file_is_written_again_without_its_dead_rows_in_their_order(lake: Cloud) -> None:
    result = removed(task(lake, stored(lake, row_group_size=2), [1, 2, 3]))

    file = parquet(lake, result.rewritten)
    assert file.read().to_pylist() == rows(0, 4, 5)
    assert file.schema_arrow.equals(SCHEMA, check_metadata=True)
    assert file.num_row_groups == 1
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"
    statistics = file.metadata.row_group(0).column(0).statistics
    assert statistics is not None
    assert (statistics.min, statistics.max) == (0, 5)
    assert result == Removed("merge-1", (0,), result.rewritten)


def test_a_file_of_position_deletes_has_the_form_that_readers_expect(lake: Cloud) -> None:
    file = stored(lake)

    result = removed(task(lake, file, [4, 1], "merge_on_read"))

    deletes = parquet(lake, result.position_deletes[0])
    assert deletes.read().to_pylist() == [{"file_path": file.uri, "pos": 1}, {"file_path": file.uri, "pos": 4}]
    declared = [column.with_nullable(False) for column in DELETES]
    assert deletes.schema_arrow.equals(pa.schema(declared), check_metadata=True)
    assert deletes.metadata.row_group(0).column(0).compression == "ZSTD"
    path = deletes.metadata.row_group(0).column(0).statistics
    assert path is not None
    assert (path.min, path.max) == (file.uri, file.uri)
    assert result == Removed("merge-1", position_deletes=result.position_deletes)


@pytest.mark.parametrize("deletes", ["copy_on_write", "merge_on_read"])
@pytest.mark.parametrize("positions", [None, [], [2]])
def test_a_file_without_newly_dead_rows_stays(lake: Cloud, deletes: Deletes, positions: list[int] | None) -> None:
    file = stored(lake)
    file = with_deletes(file, put_deletes(lake, "old", dead(file, [2])))

    assert removed(task(lake, file, positions, deletes)) == Removed("merge-1")
    assert written(lake) == []


@pytest.mark.parametrize("deletes", ["copy_on_write", "merge_on_read"])
def test_a_file_whose_rows_are_all_dead_is_emptied(lake: Cloud, deletes: Deletes) -> None:
    file = stored(lake)
    file = with_deletes(file, put_deletes(lake, "old", dead(file, [0, 2])))

    assert removed(task(lake, file, [1, 3, 4, 5], deletes)) == Removed("merge-1", obsolete=(0,))
    assert written(lake) == []


def test_rows_that_position_deletes_have_removed_do_not_come_back(lake: Cloud) -> None:
    file = stored(lake)
    file = with_deletes(file, put_deletes(lake, "old", dead(file, [0])), put_deletes(lake, "older", dead(file, [3])))

    by_copy = removed(task(lake, file, [1]))
    by_merge = removed(task(lake, file, [1], "merge_on_read"))

    assert parquet(lake, by_copy.rewritten).read().to_pylist() == rows(2, 4, 5)
    assert parquet(lake, by_merge.position_deletes[0]).read(["pos"]).to_pylist() == [
        {"pos": position} for position in (0, 1, 3)
    ]


def test_a_file_that_is_dead_for_the_most_part_is_written_again(lake: Cloud) -> None:
    file = stored(lake)

    half = removed(task(lake, file, [0, 1, 2], "merge_on_read"))
    more = removed(task(lake, file, [0, 1, 2, 3], "merge_on_read"))

    assert (half.rewritten, more.position_deletes) == (None, {})
    assert parquet(lake, more.rewritten).read().to_pylist() == rows(4, 5)


def test_a_file_is_written_in_the_columns_that_the_table_has_now(lake: Cloud) -> None:
    old = pa.schema([field(9, "dropped", pa.int64()), field(2, "label", pa.string()), field(1, "id", pa.int32())])
    file = put(lake, "a", pa.table([[0, 0, 0], ["x", "y", "z"], [1, 2, 3]], schema=old))

    result = removed(task(lake, file, [1]))

    assert parquet(lake, result.rewritten).read().to_pylist() == [
        {"id": 1, "name": "x", "at": None},
        {"id": 3, "name": "z", "at": None},
    ]


def several(lake: Cloud) -> list[SourceFile]:
    """Four files of two rows each."""
    return [
        put(lake, f"{number}.parquet", pa.Table.from_pylist(rows(2 * number, 2 * number + 1), SCHEMA))
        for number in range(4)
    ]


def test_files_with_dead_rows_are_merged_into_one(lake: Cloud) -> None:
    partly_dead, untouched, emptied, half_dead = several(lake)
    dead_rows = [RowSet.from_bitmap(BitMap(positions)) for positions in ([0], [0, 1], [1])]

    result = removed(
        of_files(
            lake,
            Removal(partly_dead, dead_rows[0]),
            Removal(untouched),
            Removal(emptied, dead_rows[1]),
            Removal(half_dead, dead_rows[2]),
        )
    )

    assert parquet(lake, result.rewritten).read().to_pylist() == rows(1, 6)
    assert result == Removed("merge-1", (0, 2, 3), result.rewritten)


def test_each_of_several_files_gets_position_deletes_of_its_own(lake: Cloud) -> None:
    files = several(lake)
    first, second = RowSet.from_bitmap(BitMap([0])), RowSet.from_bitmap(BitMap([0, 1]))

    result = removed(
        of_files(lake, Removal(files[0], first), Removal(files[1], second), Removal(files[2], first), Removal(files[3]),
                 deletes="merge_on_read")
    )  # fmt: skip

    named = {number: parquet(lake, file).read().to_pylist() for number, file in result.position_deletes.items()}
    assert named == {number: [{"file_path": files[number].uri, "pos": 0}] for number in (0, 2)}
    assert (result.obsolete, result.rewritten) == ((1,), None)


def test_of_several_files_the_one_that_cannot_be_read_is_named(lake: Cloud) -> None:
    good = stored(lake)
    lake.access.client("s3").put_object(Bucket=BUCKET, Key="orders/data/b", Body=b"no Parquet")
    gone = RowSet.from_bitmap(BitMap([0]))

    [result] = remove([of_files(lake, Removal(good, gone), Removal(SourceFile(f"{FOLDER}/b", 10, 2), gone))])

    assert isinstance(result, Failed)
    assert f"Cannot replace rows of {FOLDER}/b" in result.failure.message
    assert written(lake) == []


def test_every_attempt_writes_a_file_of_its_own(lake: Cloud) -> None:
    """An attempt that Spark has given up may still run when the file of the next one is in the table."""
    file = stored(lake)
    for deletes in ("copy_on_write", "merge_on_read"):
        removed(task(lake, file, [1], deletes))
        removed(task(lake, file, [1], deletes))

    assert len(written(lake)) == 4


FOREIGN = pa.schema([pa.field("id", pa.int64())])


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param(pa.table([[1, 2]], schema=FOREIGN), "contains columns without field IDs", id="foreign"),
        pytest.param(
            pa.table([[1.5, 2.5]], schema=pa.schema([field(1, "id", pa.float64())])),
            "stores column id as double, but the table's type is int64",
            id="another type",
        ),
        pytest.param(b"no Parquet", "cannot be read as Parquet", id="no Parquet"),
    ],
)
def test_a_file_that_cannot_be_read_as_the_table_s_is_a_matter_of_its_writer(
    lake: Cloud, content: pa.Table | bytes, reason: str
) -> None:
    if isinstance(content, pa.Table):
        file = put(lake, "a", content)
    else:
        lake.access.client("s3").put_object(Bucket=BUCKET, Key="orders/data/a", Body=content)
        file = SourceFile(f"{FOLDER}/a", len(content), 2)

    [result] = remove([task(lake, file, [0])])

    assert isinstance(result, Failed)
    assert result.failure.type == "config_error"
    assert f"Cannot replace rows of {FOLDER}/a: the file {reason}." in result.failure.message
    assert written(lake) == []


def test_a_file_that_shows_to_be_damaged_when_some_of_it_is_written_leaves_nothing(lake: Cloud) -> None:
    file = stored(lake, 20_000, row_group_size=5000, compression="none", use_dictionary=False)
    body = bytearray(lake.objects()["orders/data/a.parquet"])
    start = pq.ParquetFile(io.BytesIO(body)).metadata.row_group(2).column(1).data_page_offset
    body[start : start + 40] = bytes(40)
    lake.access.client("s3").put_object(Bucket=BUCKET, Key="orders/data/a.parquet", Body=bytes(body))

    [result] = remove([task(lake, file, [0])])

    assert isinstance(result, Failed)
    assert "cannot be read as Parquet" in result.failure.message
    assert (written(lake), lake.unfinished_uploads()) == ([], [])


def test_a_failure_leaves_nothing_and_does_not_stop_the_others(lake: Cloud) -> None:
    gone = SourceFile(f"{FOLDER}/gone", 100, 6)

    failed, succeeded = remove([task(lake, gone, [0]), task(lake, stored(lake), [0])])

    assert isinstance(failed, Failed)
    assert isinstance(succeeded, Removed)
    assert parquet(lake, succeeded.rewritten).num_row_groups == 1
    assert len(written(lake)) == 1


@pytest.mark.parametrize("deletes", ["copy_on_write", "merge_on_read"])
def test_a_missing_permission_is_named(lake: Cloud, deletes: Deletes) -> None:
    file = stored(lake)

    with lake.refusing("PutObject"):
        [failed] = remove([task(lake, file, [0], deletes)])

    assert isinstance(failed, Failed)
    assert failed.failure.type == "config_error"
    assert "Allow s3:PutObject" in failed.failure.message


@pytest.mark.law
def test_removal_keeps_all_live_rows(lake: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    @settings(max_examples=examples(200))
    @given(data=st.data(), deletes=st.sampled_from(["copy_on_write", "merge_on_read"]))
    def law(data: st.DataObject, deletes: Deletes) -> None:
        monkeypatch.setattr(reading, "_MAX_WHOLE_BYTES", data.draw(st.sampled_from([0, 2**20])))
        monkeypatch.setattr(reading, "_FOOTER_BYTES", 512)
        count = data.draw(st.integers(1, 40))
        positions = st.lists(st.integers(0, count - 1), max_size=count)
        old, new = data.draw(positions), data.draw(positions)
        file = stored(lake, count, row_group_size=data.draw(st.integers(1, count)))
        if old:
            file = with_deletes(file, put_deletes(lake, "old", dead(file, sorted(old))))

        result = removed(task(lake, file, new, deletes))

        remaining = [number for number in range(count) if number not in {*old, *new}]
        if result.position_deletes:
            named = parquet(lake, result.position_deletes[0]).read(["pos"]).column(0).to_pylist()
            assert named == [number for number in range(count) if number not in remaining]
        elif result.rewritten is not None:
            assert parquet(lake, result.rewritten).read().to_pylist() == rows(*remaining)
        else:
            assert bool(result.obsolete) == (not remaining and bool({*new} - {*old}))
            assert result.obsolete or {*new} <= {*old}
        delete_uncommitted(result.written, lake.access.client("s3"))

    law()
