"""Compaction: fewer, larger files with the same rows."""

from __future__ import annotations

from datetime import datetime, time
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.types import BinaryType, FixedType, LongType, MapType, NestedField, StringType, TimeType

from destination_datalake.schema.types import Field, Int32, Int64, List, String, Struct, Timestamp
from destination_datalake.tables.iceberg.maintenance.compaction import TableCompaction, plan_compaction
from destination_datalake.tables.table import Committed
from unit_tests.cloud import ungoverned
from unit_tests.tables.iceberg.lake import Lake, no_rewrite
from unit_tests.tables.iceberg.maintenance.compacting import TARGET, commit_files, compacted, filled, keys, on_executors

pytestmark = pytest.mark.share(6)

ID = Field("id", "id", Int64())


def test_small_files_become_one_in_one_snapshot_that_changes_no_rows(lake: Lake) -> None:
    """Incremental readers skip snapshots of the operation `replace` (Iceberg spec: Snapshots)."""
    filled(lake)
    before, total = lake.rows(), sum(file.file_size_in_bytes for file in lake.files())

    report = compacted(lake)

    assert lake.rows() == before
    [file] = lake.files()
    assert (report.files_before, report.files_after, report.rows, report.commits) == (6, 1, 6, 1)
    assert (report.bytes_before, report.bytes_after) == (total, file.file_size_in_bytes)
    assert (report.notes, report.failures) == ((), [])
    assert lake.summary().operation == Operation.REPLACE
    totals = {"total-records": "6", "total-data-files": "1", "deleted-data-files": "6", "added-data-files": "1"}
    assert {key: lake.summary()[key] for key in totals} == totals


def test_the_old_files_stay_for_older_snapshots(lake: Lake) -> None:
    filled(lake)
    old = lake.load().current_snapshot()
    before = keys(lake)

    compacted(lake)

    assert before < keys(lake)
    assert old is not None
    assert lake.load().scan(snapshot_id=old.snapshot_id).to_arrow().num_rows == 6


def test_a_table_whose_files_are_large_or_few_is_left_as_it_is(lake: Lake) -> None:
    filled(lake, count=4)
    location = lake.load().metadata_location

    assert compacted(lake).commits == 0
    lake.commit(lake.open(), 4)
    assert compacted(lake, target=lake.files()[0].file_size_in_bytes).commits == 0

    assert lake.load().metadata.metadata_log[-1].metadata_file == location


def test_a_table_without_rows_is_left_as_it_is(lake: Lake) -> None:
    lake.open()

    assert compacted(lake).commits == 0


def test_compacting_again_changes_nothing(lake: Lake) -> None:
    filled(lake)
    compacted(lake)
    location = lake.load().metadata_location

    assert compacted(lake).commits == 0
    assert lake.load().metadata_location == location


def test_sequence_numbers_are_kept_so_that_later_deletes_apply(lake: Lake) -> None:
    """An equality delete applies to data files with lower ones (Iceberg spec: Scan Planning)."""
    opened = lake.open()
    for number in range(5):
        lake.commit(opened, number)
    newest = max(entry.sequence_number or 0 for entry in lake.entries())

    compacted(lake)

    [entry] = lake.entries()
    assert (entry.status, entry.sequence_number) == (ManifestEntryStatus.ADDED, newest)
    assert entry.file_sequence_number == newest + 1


def test_sequence_numbers_survive_the_merging_of_manifests(lake: Lake) -> None:
    opened = filled(lake)
    lake.set_properties({"commit.manifest.min-count-to-merge": "2"})
    compacted(lake)
    [before] = lake.entries()

    for number in range(10, 14):
        lake.commit(opened, number)

    [after, *_] = lake.entries()
    assert after.data_file.file_path == before.data_file.file_path
    assert (after.sequence_number, after.file_sequence_number) == (before.sequence_number, before.file_sequence_number)
    assert after.status == ManifestEntryStatus.EXISTING


def test_entries_have_statistics_of_all_rows(lake: Lake) -> None:
    filled(lake)

    compacted(lake)

    [file] = lake.files()
    id_ = lake.load().schema().find_field("id").field_id
    assert (file.lower_bounds[id_], file.upper_bounds[id_]) == (to_bytes(LongType(), 0), to_bytes(LongType(), 5))
    assert file.record_count == file.value_counts[id_] == 6
    assert lake.scanned("id = 9") == 0
    assert lake.scanned("id = 3") == 1


AT = Field("at", "at", Timestamp(zoned=False))
DAYS = ("2024-01-01", "2024-01-02")


@pytest.mark.slow
def test_files_of_different_partitions_and_specs_stay_apart(lake: Lake) -> None:
    by: dict[str, Any] = {"columns": (ID, AT), "cursor": "at"}
    for units in ("MONTH", "DAY"):
        opened = lake.open(partitioning=units, **by)
        rows_of_days = [{"id": id_, "at": datetime.fromisoformat(day)} for id_ in range(6) for day in DAYS]
        written = [file for row in rows_of_days for file in lake.write_partitions(opened, row)]
        assert opened.commit(written, no_rewrite) == Committed()
    before = lake.rows()

    report = compacted(lake)

    assert (report.files_before, report.files_after) == (24, 3)
    assert lake.rows() == before
    assert lake.specs_of_files() == [0, 1, 1]
    assert lake.scanned("at = '2024-01-02T00:00:00'") == 2
    folders = sorted(file.file_path.rpartition("/")[0].rpartition("/data/")[2] for file in lake.files())
    assert folders == ["at_day=2024-01-01", "at_day=2024-01-02", "at_month=2024-01"]


def test_columns_are_what_the_table_has_now(lake: Lake) -> None:
    """Added, dropped, renamed and promoted since the files were written, inside structs and lists too."""
    inner = Struct((Field("a", "a", Int32()), Field("b", "b", String())))
    columns = (
        Field("n", "n", Int32()),
        Field("gone", "gone", String()),
        Field("l", "l", List(inner)),
        Field("s", "s", inner),
    )
    opened = lake.open(columns=columns)
    for n in range(3):
        nested = {"a": n, "b": str(n)}
        file = lake.write_rows(opened, {"n": n, "gone": "x", "l": [nested, None], "s": nested}, {"n": None})
        opened.commit([file], lambda _: [])
    with lake.load().update_schema() as update:
        update.delete_column("gone")
        update.rename_column("s", "renamed")
        update.rename_column("l.element.b", "c")
        update.delete_column("s.a")
        update.update_column("n", field_type=LongType())
    with lake.load().update_schema() as update:
        update.add_column("gone", StringType())
        update.add_column(("renamed", "a"), StringType())
    wide = (Field("n", "n", Int64()), ID)
    for n in range(3):
        late = lake.open(columns=wide)
        lake.commit_rows(late, {"n": 2**40 + n, "id": n})
    before = lake.rows()

    compacted(lake)

    assert len(lake.files()) == 1
    assert lake.rows() == before
    assert {row["gone"] for row in before} == {None}
    assert {row["n"] for row in before} == {None, 0, 1, 2, 2**40, 2**40 + 1, 2**40 + 2}


@pytest.mark.parametrize(
    ("sort_by", "order_id", "expected_ids"),
    [(None, None, [3, 1, 5, 2, 4]), ([{"source": "id", "direction": "descending"}], 1, [5, 4, 3, 2, 1])],
    ids=["of the commits", "of the table"],
)
def test_rows_are_in_the_order_of_the_table_or_else_of_the_commits(
    lake: Lake, sort_by: Any, order_id: int | None, expected_ids: list[int]
) -> None:
    opened = lake.open(sort_by=sort_by)
    for number in (3, 1, 5, 2, 4):
        lake.commit(opened, number)

    compacted(lake)

    [file] = lake.files()
    assert file.sort_order_id == order_id
    assert lake.load().scan().to_arrow().column("id").to_pylist() == expected_ids


def test_files_of_pyiceberg_are_compacted_with_ours(lake: Lake) -> None:
    opened = filled(lake, count=3)
    for number in range(10, 13):
        lake.append(number)
    lake.commit(opened, 20)

    assert compacted(lake).files_before == 7

    assert lake.ids() == [0, 1, 2, 10, 11, 12, 20]
    assert len(lake.files()) == 1


def test_a_table_of_format_version_1_is_compacted(lake: Lake) -> None:
    lake.create(Schema(NestedField(1, "id", LongType())), properties={"format-version": "1"})
    for number in range(6):
        lake.append(number)
    assert lake.load().metadata.format_version == 1

    compacted(lake)

    assert lake.ids() == [0, 1, 2, 3, 4, 5]
    assert len(lake.files()) == 1


def test_branches_and_tags_keep_their_files(lake: Lake) -> None:
    filled(lake)
    head = lake.load().metadata.current_snapshot_id
    assert head is not None
    lake.load().manage_snapshots().create_tag(head, "release").create_branch(head, "airbyte_pending").commit()
    overwriting = lake.open(2, overwrite=True)
    commit_files(lake, overwriting, range(100, 106))
    refs = {name: ref for name, ref in lake.load().metadata.refs.items() if name != "main"}

    compacted(lake)

    assert {name: ref for name, ref in lake.load().metadata.refs.items() if name != "main"} == refs
    assert [len(lake.files(branch)) for branch in ("main", "airbyte_pending", "airbyte_generation_2")] == [1, 6, 6]
    overwriting.publish(lambda _: [])
    assert lake.ids() == [100, 101, 102, 103, 104, 105]


def test_it_goes_on_only_as_long_as_it_may(lake: Lake) -> None:
    filled(lake)

    compaction = TableCompaction(lake.name, ungoverned(lake.access), on_executors, TARGET)

    assert compaction.run(lambda: False).commits == 0


def test_a_plan_says_what_would_be_done(lake: Lake) -> None:
    filled(lake)
    table: Table = lake.load()

    plan = plan_compaction(table, TARGET)

    assert (len(plan.bins), plan.files) == (1, 6)
    assert plan.bytes == sum(file.file_size_in_bytes for file in lake.files())
    assert lake.load().metadata_location == table.metadata_location


def test_files_have_the_codec_of_the_table(lake: Lake) -> None:
    filled(lake, count=5)
    lake.set_properties({"write.parquet.compression-codec": "gzip"})

    compacted(lake)

    body = lake.read_object(lake.files()[0].file_path)
    column = pa.parquet.ParquetFile(pa.BufferReader(body)).metadata.row_group(0).column(0)
    assert column.compression == "GZIP"


def test_types_that_this_connector_never_writes_stay_as_they_are(lake: Lake) -> None:
    map_ = MapType(key_id=11, key_type=StringType(), value_id=12, value_type=LongType())
    types = [TimeType(), BinaryType(), FixedType(4), map_]
    lake.create(Schema(*(NestedField(number, f"c{number}", type_) for number, type_ in enumerate(types, start=1))))
    for number in range(5):
        row = {"c1": time(1, 2, number, 5), "c2": bytes([number]), "c3": b"abcd", "c4": [("k", number)]}
        lake.load().append(pa.Table.from_pylist([row, {}], lake.load().schema().as_arrow()))
    before = lake.rows()

    report = compacted(lake)

    assert (report.files_before, report.files_after, report.notes) == (5, 1, ())
    assert lake.rows() == before
    assert lake.scanned("c1 > '02:00:00'") == 0
