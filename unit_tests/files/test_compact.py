"""The compaction job: the rows of several files in one, in their order, as the table has its columns now."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from destination_datalake.files.jobs import Failed
from destination_datalake.files.plan import Compacted, CompactTask, NotCompacted, SourceFile
from destination_datalake.files.rewrite import compact
from destination_datalake.partitioning.spec import SortField, SortOrder
from unit_tests.cloud import BUCKET, Cloud, during
from unit_tests.files.stored import FOLDER, dead, field, put_deletes, with_deletes
from unit_tests.files.stored import put as put_table

ID, NAME = field(1, "id", pa.int64()), field(2, "name", pa.string())
SCHEMA = pa.schema([ID, NAME])


def put(lake: Cloud, name: str, rows: Sequence[Any], schema: pa.Schema = SCHEMA, **options: Any) -> SourceFile:
    return put_table(lake, name, pa.Table.from_pylist([*rows], schema), **options)


def put_body(lake: Cloud, name: str, body: bytes, rows: int = 1) -> SourceFile:
    lake.access.client("s3").put_object(Bucket=BUCKET, Key=f"orders/data/{name}", Body=body)
    return SourceFile(f"{FOLDER}/{name}", len(body), rows)


def ids(*numbers: int) -> list[dict[str, Any]]:
    return [{"id": number, "name": f"name {number}"} for number in numbers]


def task(lake: Cloud, *sources: SourceFile, order: SortOrder | None = None, schema: pa.Schema = SCHEMA) -> CompactTask:
    return CompactTask("bin", sources, schema, FOLDER, "ZSTD", order, lake.access)


def compacted(task: CompactTask) -> Compacted:
    [result] = compact([task])
    assert isinstance(result, Compacted), result
    return result


def content(lake: Cloud, file: Compacted) -> pq.ParquetFile:
    return pq.ParquetFile(lake.arrow(file.uri.removeprefix(f"s3://{BUCKET}/")))


def written(lake: Cloud) -> list[str]:
    return [key for key in lake.objects() if "/bin-" in key]


def test_rows_of_all_files_are_in_one_in_their_order(lake: Cloud) -> None:
    sources = [put(lake, "a", ids(3, 1)), put(lake, "b", ids(2), row_group_size=1), put(lake, "c", ids(5, 4))]

    file = compacted(task(lake, *sources))

    parquet = content(lake, file)
    assert parquet.read().to_pylist() == ids(3, 1, 2, 5, 4)
    assert parquet.schema_arrow.equals(SCHEMA, check_metadata=True)
    assert parquet.num_row_groups == 1
    assert parquet.metadata.row_group(0).column(0).compression == "ZSTD"
    assert (file.rows, file.size, file.skipped, file.is_sorted) == (
        5,
        len(lake.arrow(written(lake)[0]).read()),
        (),
        False,
    )
    assert file.sources == tuple(source.uri for source in sources)
    footer = pq.read_metadata(io.BytesIO(file.footer))
    statistics = footer.row_group(0).column(0).statistics
    assert statistics is not None
    assert statistics.max == 5


def test_every_attempt_writes_a_file_of_its_own(lake: Cloud) -> None:
    """An attempt that Spark has given up may still run when the file of the next one is in the table."""
    repeated_task = task(lake, put(lake, "a", ids(1)), put(lake, "b", ids(2)))

    assert compacted(repeated_task).uri != compacted(repeated_task).uri
    assert len(written(lake)) == 2


def test_files_that_cannot_be_compacted_are_left(lake: Cloud) -> None:
    foreign = put(lake, "foreign", [{"id": 1}], pa.schema([("id", pa.int64())]))
    broken = put_body(lake, "broken", b"no Parquet")
    wide = put(lake, "wide", [{"id": 1.5}], pa.schema([field(1, "id", pa.float64())]))
    torn = put_body(lake, "torn", lake.objects()["orders/data/wide"][:-20])
    miscounted = replace(put(lake, "miscounted", ids(8, 9)), rows=1)
    body = bytearray(lake.objects()["orders/data/miscounted"])
    body[4:40] = bytes(36)
    damaged = put_body(lake, "damaged", bytes(body), 2)
    sources = [put(lake, "a", ids(1)), foreign, broken, put(lake, "b", ids(2)), wide, torn, miscounted, damaged]

    file = compacted(task(lake, *sources))

    assert content(lake, file).read().to_pylist() == ids(1, 2)
    assert file.sources == (sources[0].uri, sources[3].uri)
    assert {source.uri.rpartition("/")[2]: source.reason for source in file.skipped} == {
        "foreign": "contains columns without field IDs",
        "broken": "cannot be read as Parquet",
        "wide": "stores column id as double, but the table's type is int64",
        "torn": "cannot be read as Parquet",
        "miscounted": "contains 2 rows, but the table's metadata records 1",
        "damaged": "cannot be read as Parquet",
    }
    assert len(written(lake)) == 1


def test_a_file_with_none_of_the_columns_has_rows_of_nulls(lake: Cloud) -> None:
    """They were dropped since."""
    dropped = put(lake, "dropped", [{"old": 1}, {"old": 2}], pa.schema([field(9, "old", pa.int64())]))

    file = compacted(task(lake, put(lake, "a", ids(1)), dropped))

    assert content(lake, file).read().to_pylist() == [*ids(1), *[{"id": None, "name": None}] * 2]


def test_files_that_cannot_be_compacted_are_read_once(lake: Cloud) -> None:
    """A table may have thousands of them."""
    sources = []
    for number in range(20):
        sources += [put(lake, f"foreign {number}", [{"id": 1}], pa.schema([("id", pa.int64())]))]
        sources += [put(lake, str(number), ids(number))]
    read: list[str] = []

    def notice(params: Any, **_: Any) -> None:
        read.append(params["url_path"])

    with during(lake.access, "before-call.s3.GetObject", notice):
        file = compacted(task(lake, *sources))

    assert len(read) == 40
    assert content(lake, file).read().to_pylist() == ids(*range(20))


def test_unsupported_value_after_written_rows_restarts_the_task(lake: Cloud) -> None:
    nanoseconds = pa.schema([field(1, "id", pa.int64()), field(3, "at", pa.timestamp("ns"))])
    target = pa.schema([ID, field(3, "at", pa.timestamp("us"))])
    good, bad = [{"id": 1, "at": 1000}] * 10_000, [{"id": 2, "at": 1}]
    sources = [
        put(lake, "a", good, nanoseconds),
        put(lake, "b", [*good, *bad], nanoseconds),
        put(lake, "c", good, nanoseconds),
    ]

    file = compacted(task(lake, *sources, schema=target))

    assert file.rows == 20_000
    assert [source.reason for source in file.skipped] == [
        "contains values in column at that type timestamp[us] cannot represent"
    ]
    assert len(written(lake)) == 1


def test_no_file_is_written_for_one_that_is_left_alone(lake: Cloud) -> None:
    broken = put_body(lake, "broken", b"no Parquet")

    [result] = compact([task(lake, put(lake, "a", ids(1)), broken)])

    assert isinstance(result, NotCompacted)
    assert len(result.skipped) == 1
    assert written(lake) == []


def test_a_failure_leaves_nothing_and_does_not_stop_the_others(lake: Cloud) -> None:
    gone = SourceFile(f"{FOLDER}/gone", 100, 1)
    good = task(lake, put(lake, "a", ids(1)), put(lake, "b", ids(2)))

    failed, done = compact([task(lake, put(lake, "c", ids(3)), gone), good])

    assert isinstance(failed, Failed)
    assert isinstance(done, Compacted)
    assert len(written(lake)) == 1


def test_a_missing_permission_is_named(lake: Cloud) -> None:
    sources = [put(lake, "a", ids(1)), put(lake, "b", ids(2))]

    with lake.refusing("PutObject"):
        [failed] = compact([task(lake, *sources)])

    assert isinstance(failed, Failed)
    assert failed.failure.type == "config_error"
    assert "Allow s3:PutObject" in failed.failure.message


def test_large_files_are_read_by_row_group(lake: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory holds one row group; of one that is too large, a piece of each column."""
    import destination_datalake.files.reading as reading

    monkeypatch.setattr(reading, "_MAX_WHOLE_BYTES", 0)
    monkeypatch.setattr(reading, "_FOOTER_BYTES", 70_000)
    rows = [{"id": number, "name": f"{number:0100}"} for number in range(3000)]
    large = put(lake, "large", rows, row_group_size=1000, compression="none", use_dictionary=False)
    ranges: list[str] = []
    sources = [large, put(lake, "b", ids(1))]

    def notice(params: Any, **_: Any) -> None:
        if params["url_path"].endswith("/large"):  # The other one is read ahead, at any time.
            ranges.append(params["headers"]["Range"])

    with during(lake.access, "before-call.s3.GetObject", notice):
        file = compacted(task(lake, *sources))

    assert content(lake, file).read().to_pylist() == [*rows, *ids(1)]
    starts = [int(header.removeprefix("bytes=").split("-")[0]) for header in ranges]
    assert starts[0] == large.size - 70_000
    assert (len(starts), starts[1:]) == (4, sorted(starts[1:]))

    monkeypatch.setattr(reading, "_MAX_GROUP_BYTES", 10_000)
    assert content(lake, compacted(task(lake, large, put(lake, "c", ids(1))))).read().to_pylist() == [*rows, *ids(1)]


def test_rows_of_a_table_with_a_sort_order_are_sorted(lake: Cloud) -> None:
    order = SortOrder((SortField(("name",), ascending=False, nulls_first=True),), 1)
    sources = [put(lake, "a", [*ids(5, 1), {"id": 9, "name": None}]), put(lake, "b", ids(7)), put(lake, "c", ids(3))]

    file = compacted(task(lake, *sources, order=order))

    assert content(lake, file).read().column("id").to_pylist() == [9, 7, 5, 3, 1]
    assert file.is_sorted


def test_rows_that_position_deletes_remove_are_left_out(lake: Cloud) -> None:
    first, second = put(lake, "a", ids(0, 1, 2, 3), row_group_size=2), put(lake, "b", ids(4, 5))
    deletes = put_deletes(lake, "deletes", [*dead(first, [1, 2]), *dead(second, [0])])

    file = compacted(task(lake, with_deletes(first, deletes), with_deletes(second, deletes), put(lake, "c", ids(6))))

    assert content(lake, file).read().to_pylist() == ids(0, 3, 5, 6)
    assert (file.rows, file.deleted) == (4, 3)


def test_one_file_is_enough_where_rows_are_deleted(lake: Cloud) -> None:
    source = put(lake, "a", ids(0, 1))

    [untouched] = compact([task(lake, source)])
    file = compacted(task(lake, with_deletes(source, put_deletes(lake, "deletes", dead(source, [0, 1])))))

    assert isinstance(untouched, NotCompacted)
    assert (file.rows, file.deleted) == (0, 2)


def test_a_file_whose_position_deletes_cannot_be_read_is_left(lake: Cloud) -> None:
    sources = [put(lake, name, ids(number)) for number, name in enumerate("abc")]

    file = compacted(task(lake, *sources[:2], with_deletes(sources[2], put_body(lake, "deletes", b"no Parquet"))))

    assert [source.reason for source in file.skipped] == ["has position delete files that cannot be read as Parquet"]
    assert content(lake, file).read().to_pylist() == ids(0, 1)
