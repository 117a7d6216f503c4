"""What a merge plans: the files that may have its keys, what becomes of each, the parts of the keys, and memory."""

from __future__ import annotations

import logging
import tracemalloc
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestamptzType,
)

from destination_datalake.files.dedup.tasks import IndexPart, KeyBounds, RemoveTask
from destination_datalake.schema.types import Field, String
from destination_datalake.tables.iceberg.snapshots.change import Change, change_branch
from destination_datalake.tables.iceberg.snapshots.files import BranchFiles, KeyColumns
from destination_datalake.tables.iceberg.table import IcebergTable
from unit_tests.tables.iceberg.dedup.orders import Orders, named
from unit_tests.tables.iceberg.lake import Lake, no_rewrite

pytestmark = pytest.mark.share(8)

# --- Which files a merge writes again, adds as they are, and leaves alone.


MERGE_ON_READ = {"deletes": "merge_on_read"}


def test_files_without_losers_enter_the_table_as_they_are(orders: Orders) -> None:
    orders.sync([named(1, "a")])
    opened = orders.open()
    orders.land(opened, named(2, "b"))
    landed = orders.files("airbyte_pending")

    before = orders.files()
    opened.publish(no_rewrite)

    assert orders.files() == before | landed


def test_only_files_that_may_have_the_keys_are_written_again(orders: Orders) -> None:
    orders.sync([named(1, "a"), named(2, "b")])
    first = orders.files()
    orders.sync([named(3, "c"), named(4, "d")])
    second = orders.files() - first

    orders.sync([named(4, "e")])

    assert first < orders.files()
    assert not second & orders.files()
    assert orders.names() == {1: "a", 2: "b", 3: "c", 4: "e"}


def test_position_deletes_leave_the_file_and_are_repeated_by_later_ones(orders: Orders) -> None:
    orders.sync([named(number, "a") for number in range(10)])
    [file] = orders.files()

    orders.sync([named(3, "b")], dedup=MERGE_ON_READ)
    orders.sync([named(4, "c")], dedup=MERGE_ON_READ)

    tasks = orders.lake.load().scan().plan_files()
    [[deletes]] = [task.delete_files for task in tasks if task.file.file_path == file]
    assert deletes.record_count == 2
    assert orders.names() == {**dict.fromkeys(range(10), "a"), 3: "b", 4: "c"}


def test_a_file_with_position_deletes_is_written_again_without_them_by_copy_on_write(orders: Orders) -> None:
    orders.sync([named(number, "a") for number in range(10)])
    orders.sync([named(3, "b")], dedup=MERGE_ON_READ)

    orders.sync([named(4, "c")])

    assert not any(task.delete_files for task in orders.lake.load().scan().plan_files())
    assert orders.names() == {**dict.fromkeys(range(10), "a"), 3: "b", 4: "c"}
    snapshot = orders.lake.load().current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert (snapshot.summary["total-delete-files"], snapshot.summary["total-position-deletes"]) == ("0", "0")


@pytest.mark.parametrize("deletes", ["copy_on_write", "merge_on_read"])
def test_a_file_whose_rows_are_all_replaced_is_removed(orders: Orders, deletes: str) -> None:
    orders.sync([named(1, "a"), named(2, "b")])
    old = orders.files()

    orders.sync([named(1, "c"), named(2, "d")], dedup={"deletes": deletes})

    assert not old & orders.files()
    assert orders.names() == {1: "c", 2: "d"}


# --- Small files, as of many batches


def landed(orders: Orders, batches: int, **more: Any) -> IcebergTable:
    """Return a sync that has landed batches of two rows, one of which the next batch replaces."""
    opened = orders.open(**more)
    for number in range(batches):
        orders.land(opened, named(0, f"{number}", number), named(number + 1, "once"))
    return opened


@pytest.mark.parametrize("deletes", ["copy_on_write", "merge_on_read"])
def test_small_pending_files_that_lose_rows_become_one(orders: Orders, deletes: str) -> None:
    counted = counting(orders)
    opened = landed(orders, 6, dedup={"deletes": deletes})

    opened.publish(no_rewrite)

    assert len(orders.files()) == 2
    assert counted == {"winners": 1}
    assert not any(task.delete_files for task in orders.lake.load().scan().plan_files())
    assert orders.names() == {0: "5", **dict.fromkeys(range(1, 7), "once")}


def test_small_stored_files_that_lose_rows_become_one(orders: Orders) -> None:
    for number in range(5):
        orders.sync([named(number, "old"), named(number + 10, "stays")])
    counted = counting(orders)

    orders.sync([named(number, "new", 1) for number in range(4)])

    assert len(orders.files()) == 3
    assert counted == {"winners": 1, "remove": 1}
    assert orders.names() == {
        **dict.fromkeys(range(4), "new"), 4: "old", **dict.fromkeys(range(10, 15), "stays")
    }  # fmt: skip


def test_small_stored_files_get_position_deletes_each(orders: Orders) -> None:
    for number in range(3):
        orders.sync([named(number, "old"), named(number + 10, "stays")])
    before = orders.files()

    orders.sync([named(number, "new", 1) for number in range(3)], dedup=MERGE_ON_READ)

    assert before < orders.files()
    assert orders.names() == {**dict.fromkeys(range(3), "new"), **dict.fromkeys(range(10, 13), "stays")}


def test_files_of_several_partitions_do_not_become_one(orders: Orders) -> None:
    opened = orders.open(partition_by=BY_NAME)
    for number in range(4):
        orders.land(opened, *(named(id_, name, number) for id_, name in enumerate("ab")), named(number + 10, "a"))

    opened.publish(no_rewrite)

    scanned = [task.file for task in orders.lake.load().scan().plan_files()]
    assert sorted(file.partition[0] for file in scanned) == ["a", "a", "b"]
    assert orders.names() == {0: "a", 1: "b", **dict.fromkeys(range(10, 14), "a")}


def test_files_with_an_order_of_rows_stay_in_it(orders: Orders) -> None:
    opened = landed(orders, 4, sort_by=[{"source": "id"}])

    opened.publish(no_rewrite)

    assert {task.file.sort_order_id for task in orders.lake.load().scan().plan_files()} == {1}
    assert orders.names() == {0: "3", **dict.fromkeys(range(1, 5), "once")}


def test_of_files_that_were_put_together_a_row_that_comes_too_late_is_left_out(orders: Orders) -> None:
    orders.sync([named(0, "later", 9)])
    opened = landed(orders, 4)

    opened.publish(no_rewrite)

    assert orders.names() == {0: "later", **dict.fromkeys(range(1, 5), "once")}


def counting(orders: Orders) -> Counter[str]:
    """Return the numbers of tasks of the jobs that syncs run from now on."""
    tasks_of: Counter[str] = Counter()
    orders.watch(lambda name, tasks, _: tasks_of.update({name: len(tasks)}))
    return tasks_of


# --- Partitions

BY_NAME = [{"source": "name"}]
BY_ID = [{"source": "id", "transform": "bucket[4]"}]


def test_a_row_whose_partition_has_changed_moves(orders: Orders) -> None:
    orders.sync([named(1, "a", 1), named(2, "a", 1), named(3, "b", 1)], partition_by=BY_NAME)

    orders.sync([named(1, "b", 2), named(3, "b", 0)], partition_by=BY_NAME)

    assert orders.names() == {1: "b", 2: "a", 3: "b"}
    scan = orders.lake.load().scan(row_filter="name = 'a'")
    assert [row["id"] for row in scan.to_arrow().to_pylist()] == [2]


def test_partitions_of_the_key_say_which_files_to_look_at(orders: Orders) -> None:
    """The files have no bounds of their columns here."""
    orders.sync([named(number, "a", 1) for number in range(8)], partition_by=BY_ID)
    old = orders.files()

    orders.sync([named(5, "b", 2)], partition_by=BY_ID)

    assert len(old - orders.files()) == 1
    assert orders.names() == {**dict.fromkeys(range(8), "a"), 5: "b"}


def test_partitions_of_the_key_say_so_beside_files_of_a_former_spec(orders: Orders) -> None:
    orders.sync([named(5, "former", 1)], partition_by=BY_NAME)
    earlier_files = orders.files()
    orders.sync([named(number, "a", 1) for number in (0, 1, 2, 3, 4, 6, 7)], partition_by=BY_ID)
    files, probed = orders.files(), set[str]()

    def note(_name: str, tasks: Sequence[Any], _results: object) -> None:
        probed.update(removal.source.uri for task in tasks if isinstance(task, RemoveTask) for removal in task.files)

    orders.watch(note)
    orders.sync([named(5, "b", 2)], partition_by=BY_ID)

    assert earlier_files <= probed
    assert len(probed) <= 2 < len(files)
    assert orders.names() == {**dict.fromkeys((0, 1, 2, 3, 4, 6, 7), "a"), 5: "b"}


def test_rows_of_a_former_partition_spec_are_found(orders: Orders) -> None:
    orders.sync([named(1, "a", 1), named(2, "b", 1)], partition_by=BY_ID)

    orders.sync([named(1, "c", 2)], partition_by=BY_NAME)

    assert orders.names() == {1: "c", 2: "b"}


# --- The log


def test_the_log_says_what_a_merge_has_done(orders: Orders, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    orders.sync([named(number, "a" * 5000) for number in range(3)])
    caplog.clear()

    orders.sync([named(0, "b", 1), named(7, "c"), named(1, "", 1, deleted=True), named(8, "", deleted=True)])

    [line] = [record.getMessage() for record in caplog.records if "merged 4 rows" in record.getMessage()]
    assert line.startswith(
        f"Table {orders.lake.name}: merged 4 rows by (id): 1 inserted, 1 replaced, 1 deleted. "
        "Rewrote 1 file and added 0 files unchanged. "
    )
    assert "times as much)" in line


def test_a_high_write_amplification_is_logged_with_what_helps(
    orders: Orders, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("destination_datalake.tables.iceberg.dedup.merge._HIGH_AMPLIFICATION", 0.1)
    caplog.set_level(logging.INFO)
    orders.sync([named(1, "a"), named(2, "b")])

    orders.sync([named(1, "c")])

    assert "set dedup.deletes to merge_on_read, partition or sort by the key" in caplog.text


# --- Which files may have rows of the keys in an index, by the metrics in manifests.


ROWS = 10
NAN = float("nan")


def file_with(lower: Mapping[int, bytes], upper: Mapping[int, bytes], **counts: Mapping[int, int]) -> DataFile:
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path="s3://lake/file.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=ROWS,
        file_size_in_bytes=1,
        lower_bounds=dict(lower),
        upper_bounds=dict(upper),
        value_counts=counts.get("value_counts", dict.fromkeys(lower, ROWS)),
        null_value_counts=counts.get("null_value_counts", dict.fromkeys(lower, 0)),
        nan_value_counts=counts.get("nan_value_counts"),
    )


def index(*bounds: KeyBounds) -> IndexPart:
    return IndexPart(5, bounds)


def keys(low: Any, high: Any, *, null: bool = False, nan: bool = False) -> KeyBounds:
    return KeyBounds(low, high, null, nan)


def key_columns(*types: PrimitiveType) -> KeyColumns:
    fields = [NestedField(number, f"k{number}", type_) for number, type_ in enumerate(types, start=1)]
    return KeyColumns.for_fields([field.field_id for field in fields], Schema(*fields))


@pytest.mark.parametrize(
    ("current_type", "written_type", "low", "high", "before", "inside", "after"),
    [
        (LongType(), LongType(), 10, 20, (1, 9), (20, 30), (21, 30)),
        (LongType(), IntegerType(), 10, 20, (-5, 9), (15, 16), (2**40, 2**41)),
        (DoubleType(), FloatType(), 0.5, 1.5, (-1.0, 0.25), (-1.0, 0.5), (2.0, 3.0)),
        (DecimalType(9, 2), DecimalType(5, 2), Decimal("1.50"), Decimal("2.50"), (Decimal("1.49"),) * 2,
         (Decimal("2.5"),) * 2, (Decimal("2.51"),) * 2),
        (DateType(), DateType(), 20000, 20010, (date(1970, 1, 1),) * 2, (date(2024, 10, 4),) * 2,
         (date(2030, 1, 1),) * 2),
        (TimestamptzType(), TimestamptzType(), 10**15, 2 * 10**15, (datetime(2000, 1, 1, tzinfo=UTC),) * 2,
         (datetime(2010, 1, 1, tzinfo=UTC),) * 2, (datetime(2040, 1, 1, tzinfo=UTC),) * 2),
        (StringType(), StringType(), "bb", "dd", ("a", "b"), ("a", "cc"), ("é", "😀")),
        (StringType(), StringType(), "\uffff", "😀", ("é", "é"), ("😀", "😁"), ("😁", "😁")),
    ],
    ids=["long", "promoted int", "promoted float", "decimal", "date", "timestamp", "string", "code points"],
)  # fmt: skip
def test_a_file_is_looked_at_if_its_bounds_meet_those_of_the_index(
    current_type: PrimitiveType, written_type: PrimitiveType, low: Any, high: Any, before: Any, inside: Any, after: Any
) -> None:
    file = file_with({1: to_bytes(written_type, low)}, {1: to_bytes(written_type, high)})
    columns = key_columns(current_type)

    assert [columns.may_have(file, index(keys(*bounds))) for bounds in (before, inside, after)] == [False, True, False]


@pytest.mark.parametrize(
    ("counts", "bounds", "looked_at"),
    [
        ({}, keys(None, None, null=True), False),
        ({"null_value_counts": {1: 1}}, keys(None, None, null=True), True),
        ({"null_value_counts": {}}, keys(None, None, null=True), True),
        ({}, keys(50, 60, null=True), False),
        ({"null_value_counts": {1: ROWS}}, keys(10, 20), False),
        ({"nan_value_counts": {1: 0}}, keys(None, None, nan=True), False),
        ({"nan_value_counts": {1: 1}}, keys(None, None, nan=True), True),
        ({}, keys(None, None, nan=True), True),
    ],
)
def test_null_and_nan_are_keys_of_their_own(counts: Any, bounds: KeyBounds, *, looked_at: bool) -> None:
    file = file_with({1: to_bytes(DoubleType(), 10.0)}, {1: to_bytes(DoubleType(), 20.0)}, **counts)

    assert key_columns(DoubleType()).may_have(file, index(bounds)) is looked_at


def test_each_part_of_a_key_can_rule_a_file_out() -> None:
    low, high = to_bytes(LongType(), 10), to_bytes(LongType(), 20)
    file, columns = file_with({1: low, 2: low}, {1: high, 2: high}), key_columns(LongType(), LongType())

    assert columns.may_have(file, index(keys(15, 15), keys(15, 15)))
    assert not columns.may_have(file, index(keys(15, 15), keys(5, 5)))


def test_a_file_without_bounds_is_looked_at() -> None:
    assert key_columns(LongType()).may_have(file_with({}, {}), index(keys(1, 2)))


def test_bounds_that_cannot_be_compared_rule_nothing_out() -> None:
    file = file_with({1: to_bytes(LongType(), 1)}, {1: to_bytes(LongType(), 2)})

    assert key_columns(LongType()).may_have(file, index(keys("a", "b")))


@pytest.mark.parametrize("type_", [LongType(), DoubleType(), StringType()])
def test_bounds_that_are_no_values_of_the_column_rule_nothing_out(type_: PrimitiveType) -> None:
    file = file_with({1: b"\xff"}, {1: b"\xff"})

    assert key_columns(type_).may_have(file, index(keys(1, 2)))


def test_an_index_without_keys_needs_no_file() -> None:
    assert not key_columns(LongType()).may_have(file_with({}, {}), IndexPart(0, (keys(None, None),)))


# --- What the driver keeps of a table's files while it merges.


FILES = 300
COLUMNS = 30


def test_of_each_file_only_the_metrics_of_the_key_are_kept(lake: Lake) -> None:
    """So 10,000 files take 20 MB, however many columns they have. All entries of a manifest are there for a moment."""
    lake.open(columns=[Field(name, name, String()) for name in (f"c{number}" for number in range(COLUMNS))], key=["c0"])
    table = lake.load()
    ids = [field.field_id for field in table.schema().fields]
    with table.transaction() as transaction:
        change_branch(Change([_file(number, ids) for number in range(FILES)]), "main", table, transaction)
    table = lake.load()
    files = BranchFiles([table.schema().find_field("c0").field_id])

    tracemalloc.start()
    live_files = files.on_branch(table, "main")
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert len(live_files) == FILES
    assert kept < FILES * 3_000
    assert peak < FILES * 40_000
    assert {len(file.entry.lower_bounds) for file in live_files} == {1}


def _file(number: int, ids: list[int]) -> IcebergFile:
    file = IcebergFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"s3://lake/orders/data/{number:032x}.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=1_000_000,
        file_size_in_bytes=128_000_000,
        column_sizes=dict.fromkeys(ids, 1_000_000),
        value_counts=dict.fromkeys(ids, 1_000_000),
        null_value_counts=dict.fromkeys(ids, 0),
        nan_value_counts={},
        lower_bounds=dict.fromkeys(ids, b"%016d" % number),
        upper_bounds=dict.fromkeys(ids, b"%016d" % (number + 1)),
    )
    file.spec_id = 0
    return file
