"""Compaction beside other writers, and killed anywhere: readers see what they would see without it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.table.refs import MAIN_BRANCH

from destination_datalake.files.plan import CompactResult, CompactTask
from destination_datalake.schema.types import Field, Float32, Float64, Int64
from destination_datalake.tables.iceberg.table import IcebergTable
from destination_datalake.tables.table import Committed
from unit_tests.tables.iceberg.lake import Lake, no_rewrite
from unit_tests.tables.iceberg.maintenance.compacting import (
    after_writing,
    commit_files,
    compacted,
    keys,
    live_keys,
    on_executors,
)
from unit_tests.tables.iceberg.test_promotion import Executors

ID, PRICE = Field("id", "id", Int64()), Field("price", "price", Float32())

pytestmark = [pytest.mark.usefixtures("syncing"), pytest.mark.share(4)]


@pytest.fixture
def syncing(lake: Lake) -> IcebergTable:
    """A sync that has committed six small files."""
    opened = lake.open(columns=(ID, PRICE))
    commit_files(lake, opened, range(6), price=0.5)
    return opened


def orphans(lake: Lake, before: set[str]) -> set[str]:
    """Return what compaction has written in vain and left."""
    return keys(lake) - before - live_keys(lake)


def test_what_a_sync_appends_meanwhile_stays(lake: Lake, syncing: IcebergTable) -> None:
    report = compacted(lake, after_writing(lambda: lake.commit(syncing, 6, price=0.5)))

    assert (report.files_before, report.files_after) == (6, 1)
    assert lake.ids() == list(range(7))
    assert len(lake.files()) == 2


def test_what_a_sync_appends_at_the_moment_of_the_commit_stays(lake: Lake, syncing: IcebergTable) -> None:
    before = keys(lake)
    lake.at_the_next_update(lambda: lake.commit(syncing, 6, price=0.5))

    report = compacted(lake)

    assert report.commits == 1
    assert lake.ids() == list(range(7))
    assert len(orphans(lake, before)) == 0


def test_a_sync_whose_commit_follows_a_compaction_appends_to_it(lake: Lake, syncing: IcebergTable) -> None:
    file = lake.write(syncing, 6, price=0.5)
    compacted(lake)

    assert syncing.commit([file], no_rewrite) == Committed()

    assert lake.ids() == list(range(7))
    assert len(lake.files()) == 2


def test_a_table_that_an_overwrite_replaces_meanwhile_has_its_rows_only(lake: Lake) -> None:
    overwriting = lake.open(2, overwrite=True, columns=(ID, PRICE))
    lake.commit(overwriting, 100, price=0.5)
    before = keys(lake)

    report = compacted(lake, after_writing(lambda: overwriting.publish(no_rewrite)))

    assert report.commits == 0
    assert lake.ids() == [100]
    assert orphans(lake, before) == set()


def test_an_overwrite_that_is_published_after_a_compaction_replaces_what_came_of_it(lake: Lake) -> None:
    overwriting = lake.open(2, overwrite=True, columns=(ID, PRICE))
    lake.commit(overwriting, 100, price=0.5)

    compacted(lake)
    overwriting.publish(no_rewrite)

    assert lake.ids() == [100]


def test_a_column_that_becomes_double_meanwhile_is_double_in_all_files(lake: Lake, syncing: IcebergTable) -> None:
    """The promotion has rewritten the files that were compacted: what came of it is planned anew."""
    wide = (ID, Field("price", "price", Float64()))
    before = keys(lake)

    def promote() -> None:
        file = lake.write_rows(syncing, {"id": 6, "price": 0.1}, columns=wide)
        assert syncing.commit([file], Executors()) == Committed()

    report = compacted(lake, after_writing(promote))

    assert (report.files_before, report.files_after) == (7, 1)
    assert lake.rows("id", "price") == [{"id": id_, "price": 0.1 if id_ == 6 else 0.5} for id_ in range(7)]
    assert len(keys(lake) - before) == 8  # The promotion's seven, and one of the compaction.


def test_a_promotion_after_a_compaction_finds_its_files(lake: Lake, syncing: IcebergTable) -> None:
    compacted(lake)
    wide = (ID, Field("price", "price", Float64()))

    executors = Executors()
    file = lake.write_rows(syncing, {"id": 6, "price": 0.1}, columns=wide)
    assert syncing.commit([file], executors) == Committed()

    assert len(executors.sources) == 1
    assert len(lake.rows()) == 7


def change_schema(act: Callable[[Any], object]) -> Callable[[Lake], None]:
    def change(lake: Lake) -> None:
        with lake.load().update_schema() as update:
            act(update)

    return change


@pytest.mark.parametrize(
    ("change", "rounds"),
    [
        (change_schema(lambda update: update.rename_column("price", "cost")), 2),
        (change_schema(lambda update: update.delete_column("price")), 2),
        (change_schema(lambda update: update.add_column("new", update._schema.find_type("id"))), 1),
    ],
    ids=["renamed", "dropped", "added"],
)
def test_a_column_that_changes_meanwhile_is_right(
    lake: Lake,
    change: Callable[[Lake], None],
    rounds: int,
) -> None:
    before = keys(lake)
    asked: list[Sequence[CompactTask]] = []

    def execute(tasks: Sequence[CompactTask]) -> Sequence[CompactResult]:
        results = on_executors(tasks)
        if not asked:
            change(lake)
        asked.append(tasks)
        return results

    report = compacted(lake, execute)

    assert (report.files_before, report.files_after, len(asked)) == (6, 1, rounds)
    assert lake.ids() == list(range(6))
    assert orphans(lake, before) == set()


def test_two_compactions_at_once_leave_one_file(lake: Lake) -> None:
    before = keys(lake)

    report = compacted(lake, after_writing(lambda: compacted(lake)))

    assert report.commits == 0
    assert lake.ids() == list(range(6))
    assert len(lake.files()) == 1
    assert orphans(lake, before) == set()


def test_two_compactions_that_commit_at_once_leave_one_file(lake: Lake) -> None:
    before = keys(lake)
    lake.at_the_next_update(lambda: compacted(lake))

    assert compacted(lake).commits == 0

    assert lake.ids() == list(range(6))
    assert orphans(lake, before) == set()


def test_rows_that_are_deleted_meanwhile_do_not_come_back(lake: Lake) -> None:
    """By a delete file, which refers to the old files, or by a rewriting of them."""
    before = keys(lake)

    def delete() -> None:
        lake.delete_first_row()
        lake.load().delete("id = 3")

    report = compacted(lake, after_writing(delete))

    assert report.rows == len(lake.ids()) == 4
    assert 3 not in lake.ids()
    assert all("bin" not in key for key in orphans(lake, before))


def test_a_table_that_is_emptied_meanwhile_stays_empty(lake: Lake) -> None:
    compacted(lake, after_writing(lambda: lake.load().delete(AlwaysTrue())))

    assert lake.ids() == []


def test_a_table_that_is_dropped_and_created_again_meanwhile_has_its_new_rows_only(lake: Lake) -> None:
    def replace() -> None:
        lake.access.client("glue").delete_table(DatabaseName=lake.name.database, Name=lake.name.table)
        lake.commit(lake.open(), 100)

    report = compacted(lake, after_writing(replace))

    assert report.commits == 0
    assert lake.ids() == [100]


def test_a_commit_whose_response_is_lost_keeps_its_files(lake: Lake) -> None:
    lake.at_the_next_update(lambda: None, response_lost=True)

    assert compacted(lake).files_after == 1

    assert lake.ids() == list(range(6))
    assert live_keys(lake) <= keys(lake)


class Killed(BaseException):
    """SIGKILL: nothing that would handle an error runs."""


def test_killed_at_any_request_it_leaves_the_table_as_it_is_or_compacted(lake: Lake) -> None:
    """And a later one finishes. What was written in vain stays: it may be removed when it is old."""
    events = [lake.access.client(service).meta.events for service in ("s3", "glue")]
    files_seen: set[int] = set()
    for survived in range(1000):
        remaining = [survived]

        def count(remaining: list[int] = remaining, **_: Any) -> None:
            if not remaining[0]:
                raise Killed
            remaining[0] -= 1

        for emitter in events:
            emitter.register("before-send", count)
        try:
            compacted(lake)
        except Killed:
            pass
        finally:
            for emitter in events:
                emitter.unregister("before-send", count)
        files_seen.add(len(lake.files()))
        assert live_keys(lake) <= keys(lake)
        if remaining[0]:
            break

    assert lake.ids() == list(range(6))
    assert files_seen == {6, 1}
    assert MAIN_BRANCH in lake.load().metadata.refs
