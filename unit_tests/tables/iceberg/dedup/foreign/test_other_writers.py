"""Other writers while a merge is under way: what they have done stays, and no key is there twice."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from pyiceberg.types import LongType, StringType

from destination_datalake.schema.types import Field, Int32
from destination_datalake.tables.iceberg.dedup import merge
from destination_datalake.tables.iceberg.table import IcebergTable
from destination_datalake.tables.table import TableConflict
from unit_tests.tables.iceberg.dedup.orders import COLUMNS, DAY, Orders, named
from unit_tests.tables.iceberg.lake import no_rewrite

pytestmark = pytest.mark.share(3)


class Interrupted:
    """Does something after the first jobs of a name."""

    def __init__(self) -> None:
        self.at = "remove"
        self.acts: list[Callable[[], object]] = []
        self.jobs: list[str] = []

    def __call__(self, name: str, *_: object) -> None:
        self.jobs.append(name)
        if name == self.at and self.acts:
            self.acts.pop(0)()


@pytest.fixture
def executors(orders: Orders) -> Interrupted:
    """What happens to the jobs of syncs that begin after a table of two files has been made."""
    orders.sync([named(1, "old", 1), named(2, "old", 1)])
    orders.sync([named(3, "old", 1)])
    interrupted = Interrupted()
    orders.watch(interrupted)
    return interrupted


def pending(orders: Orders) -> IcebergTable:
    opened = orders.open()
    orders.land(opened, named(1, "new", 2), named(4, "new", 2), named(3, "older", 0))
    return opened


def meanwhile(executors: Interrupted, *acts: Callable[[], object], at: str = "remove") -> None:
    executors.at, executors.acts = at, list(acts)


MERGED = {1: "new", 2: "old", 3: "old", 4: "new"}


def unused(orders: Orders) -> set[str]:
    """Return the data files that no snapshot has."""
    table = orders.lake.load()
    known: set[str] = set()
    for snapshot in table.metadata.snapshots:
        for manifest in snapshot.manifests(table.io):
            entries = manifest.fetch_manifest_entry(table.io, discard_deleted=False)
            known |= {entry.data_file.file_path for entry in entries}
    return orders.lake.uris(".parquet") - known


def test_an_undisturbed_merge_runs_each_job_once(orders: Orders, executors: Interrupted) -> None:
    pending(orders).publish(no_rewrite)

    assert orders.names() == MERGED
    assert executors.jobs == ["winners", "remove", "remove"]
    assert unused(orders) == set()


def merge_too(orders: Orders) -> None:
    orders.open().publish(no_rewrite)


def append(orders: Orders) -> None:
    table = orders.lake.load()
    rows = [
        {"id": 4, "name": "theirs, older", "version": 1, "_airbyte_extracted_at": DAY},
        {"id": 6, "name": "theirs", "version": 1, "_airbyte_extracted_at": DAY},
    ]
    table.append(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))


def add_a_column(orders: Orders) -> None:
    with orders.lake.load().update_schema() as update:
        update.add_column("theirs", StringType())


def rename_the_cursor(orders: Orders) -> None:
    with orders.lake.load().update_schema() as update:
        update.rename_column("version", "revision")


@pytest.mark.parametrize(
    ("act", "foreign_rows"),
    [(merge_too, {}), (append, {6: "theirs"}), (add_a_column, {}), (rename_the_cursor, {})],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_merge_is_right_and_leaves_no_file_behind_whatever_others_do_meanwhile(
    orders: Orders, executors: Interrupted, act: Callable[[Orders], None], foreign_rows: dict[int, str]
) -> None:
    opened = pending(orders)
    meanwhile(executors, lambda: act(orders))

    opened.publish(no_rewrite)

    assert orders.names() == {**MERGED, **foreign_rows}
    assert unused(orders) == set()


def test_rows_that_become_pending_meanwhile_are_merged_too(orders: Orders, executors: Interrupted) -> None:
    opened, other_table = pending(orders), orders.open()
    meanwhile(executors, lambda: orders.land(other_table, named(1, "newest", 3), named(5, "new", 1)))

    opened.publish(no_rewrite)

    assert orders.names() == {**MERGED, 1: "newest", 5: "new"}
    other_table.publish(no_rewrite)
    assert orders.names() == {**MERGED, 1: "newest", 5: "new"}
    assert unused(orders) == set()


def test_files_that_another_engine_has_compacted_meanwhile_are_looked_at_again(
    orders: Orders, executors: Interrupted
) -> None:
    opened = pending(orders)
    old = orders.files()
    meanwhile(executors, orders.lake.compact_and_expire)

    opened.publish(no_rewrite)

    assert orders.names() == MERGED
    assert unused(orders) == old


def test_files_that_are_gone_before_they_are_read_are_looked_for_again(orders: Orders, executors: Interrupted) -> None:
    """Another engine has compacted the table after the merge was planned, and removed what it replaced."""
    opened = pending(orders)

    def replace() -> None:
        old = orders.files()
        orders.lake.compact_and_expire()
        for path in old:
            orders.lake.delete_object(path)

    meanwhile(executors, replace, at="winners")
    opened.publish(no_rewrite)

    assert orders.names() == MERGED


@pytest.mark.share(1)
@pytest.mark.parametrize("deletes", ["copy_on_write", "merge_on_read"])
def test_rows_that_another_engine_deletes_meanwhile_stay_deleted(
    orders: Orders, executors: Interrupted, deletes: str
) -> None:
    opened = orders.open(dedup={"deletes": deletes})
    orders.land(opened, named(1, "new", 2), named(4, "new", 2))
    meanwhile(executors, lambda: orders.lake.load().delete("id = 2"))

    opened.publish(no_rewrite)

    assert orders.names() == {1: "new", 3: "old", 4: "new"}


def test_a_key_that_is_promoted_meanwhile_is_the_same_key(orders: Orders) -> None:
    columns = (Field("id", "id", Int32()), *COLUMNS[1:])
    orders.sync([named(1, "old", 1), named(2, "old", 1)], columns=columns)
    executors = Interrupted()
    orders.watch(executors)
    opened = orders.open(columns=columns)
    orders.land(opened, named(1, "new", 2))

    def promote() -> None:
        with orders.lake.load().update_schema() as update:
            update.update_column("id", LongType())

    meanwhile(executors, promote)
    opened.publish(no_rewrite)

    assert orders.names() == {1: "new", 2: "old"}


@pytest.mark.slow
def test_what_others_change_all_the_time_is_left_to_the_next_sync(
    orders: Orders, executors: Interrupted, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge, "_ATTEMPTS", 2)
    opened, other_table = pending(orders), orders.open()
    meanwhile(executors, *(lambda n=n: orders.land(other_table, named(1, f"new {n}", 3 + n)) for n in range(5)))

    opened.publish(no_rewrite)

    assert orders.names() == {1: "old", 2: "old", 3: "old"}
    assert "no acknowledged rows are lost. The next sync merges the rows." in caplog.text
    assert unused(orders) == set()
    meanwhile(executors)
    orders.sync()
    assert orders.names()[4] == "new"


@pytest.mark.usefixtures("executors")
def test_the_commit_of_a_merge_whose_response_is_lost_is_found(orders: Orders) -> None:
    opened = pending(orders)
    orders.lake.at_the_next_update(lambda: None, response_lost=True)

    opened.publish(no_rewrite)

    assert orders.names() == MERGED
    assert unused(orders) == set()


def test_equality_deletes_are_refused_and_what_is_pending_stays(orders: Orders, executors: Interrupted) -> None:
    opened = pending(orders)
    orders.lake.delete_by_equality()

    with pytest.raises(TableConflict, match=r"added equality deletes, .* Compact the table"):
        opened.publish(no_rewrite)

    assert orders.lake.branches() == ["airbyte_pending"]
    assert executors.jobs == []


@pytest.mark.share(1)
@pytest.mark.usefixtures("executors")
@pytest.mark.parametrize("deletes", ["copy_on_write", "merge_on_read"])
def test_rows_that_others_have_deleted_by_position_do_not_come_back_and_do_not_win(
    orders: Orders, deletes: str
) -> None:
    """Of the file with keys 1 and 2, key 1 is deleted, which had the higher cursor."""
    orders.lake.delete_first_row()
    gone = next(key for key in (1, 2, 3) if key not in orders.names())

    orders.sync([named(gone, "again", 0)], dedup={"deletes": deletes})

    assert orders.names() == {**{1: "old", 2: "old", 3: "old"}, gone: "again"}
