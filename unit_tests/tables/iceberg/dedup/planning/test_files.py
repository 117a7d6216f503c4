"""Which files a merge writes again, adds as they are, and leaves alone."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from destination_datalake.files.dedup.tasks import RemoveTask
from destination_datalake.tables.context import Jobs
from destination_datalake.tables.iceberg.dedup import plan
from unit_tests.tables.iceberg.dedup.orders import Orders, named
from unit_tests.tables.iceberg.lake import no_rewrite
from unit_tests.tables.jobs import InProcess

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


def test_keys_that_do_not_fit_into_one_index_are_merged_in_parts(
    orders: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders.sync([named(number, "a") for number in range(40)])
    monkeypatch.setattr(plan, "_INDEX_BYTES", 1000)
    opened = orders.open()
    for number in (0, 20):
        orders.land(opened, *(named(each, "b", 1) for each in range(number, number + 10)))
    orders.land(opened, *(named(each, "", 2, deleted=True) for each in range(5)), named(30, "older", -1))

    opened.publish(no_rewrite)

    replaced = dict.fromkeys([*range(10), *range(20, 30)], "b")
    expected = {**dict.fromkeys(range(40), "a"), **replaced}
    assert orders.names() == {id_: name for id_, name in expected.items() if id_ >= 5}


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
    former = orders.files()
    orders.sync([named(number, "a", 1) for number in (0, 1, 2, 3, 4, 6, 7)], partition_by=BY_ID)
    files, probed = orders.files(), set[str]()

    class Noting(InProcess):
        def run(self, work: Callable[[Iterable[Any]], Iterable[Any]], tasks: Sequence[Any]) -> list[Any]:
            probed.update(task.source.uri for task in tasks if isinstance(task, RemoveTask))
            return super().run(work, tasks)

    orders.lake.jobs = Jobs(Noting(), orders.lake.jobs.scratch)
    orders.sync([named(5, "b", 2)], partition_by=BY_ID)

    assert former <= probed
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

    [line] = [each.getMessage() for each in caplog.records if "rows were merged" in each.getMessage()]
    assert line.startswith(
        f"Table {orders.lake.name}: 4 rows were merged by (id): 1 inserted, 1 replaced, 1 deleted. "
        "1 files were rewritten, 0 added as they were: "
    )
    assert "times as much)" in line


def test_a_high_write_amplification_is_logged_with_what_helps(
    orders: Orders, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("destination_datalake.tables.iceberg.dedup.merge._HIGH_AMPLIFICATION", 0.1)
    caplog.set_level(logging.INFO)
    orders.sync([named(1, "a"), named(2, "b")])

    orders.sync([named(1, "c")])

    assert "dedup.deletes merge_on_read, partitioning or sorting by the key" in caplog.text
