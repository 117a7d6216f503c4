"""Merges that fail: nothing that was acknowledged is lost, nothing is left behind, and the next sync merges it."""

from __future__ import annotations

from pathlib import Path

import pytest

from destination_datalake.errors import ConnectorError, Failure
from destination_datalake.files.dedup import index
from destination_datalake.tables.iceberg.table import IcebergTable
from unit_tests.tables.iceberg.dedup.orders import Orders, named
from unit_tests.tables.iceberg.lake import no_rewrite
from unit_tests.tables.jobs import Watch, in_process

pytestmark = pytest.mark.share(2)

OLD = {1: "old", 2: "old"}


def failing(job: str) -> Watch:
    """A job of this name fails after its tasks have run."""

    def fail(name: str, *_: object) -> None:
        if name == job:
            raise ConnectorError(Failure("A worker has died.", "exit code 137", "transient_error"))

    return fail


def landed(orders: Orders, watch: Watch) -> IcebergTable:
    """Return a sync that has landed all its rows, and whose jobs are watched."""
    orders.sync([named(1, "old", 1), named(2, "old", 1)])
    working = orders.lake.jobs
    orders.watch(watch)
    opened = orders.open()
    orders.lake.jobs = working
    orders.land(opened, named(1, "new", 2), named(3, "new", 2), named(3, "newer", 3))
    return opened


@pytest.mark.parametrize("job", ["winners", "remove"])
def test_a_job_that_fails_fails_the_stream_and_says_that_nothing_is_lost(orders: Orders, job: str) -> None:
    opened = landed(orders, failing(job))

    with pytest.raises(ConnectorError) as raised:
        opened.publish(no_rewrite)

    failure = raised.value.failure
    assert failure.type == "transient_error"
    assert failure.message == (
        "A worker has died. No acknowledged rows are lost: the branch airbyte_pending of table "
        f"{orders.lake.name} contains these rows. The next sync of the stream merges the rows, unless it overwrites "
        "the table."
    )
    assert orders.names() == OLD
    orders.sync()
    assert orders.names() == {1: "new", 2: "old", 3: "newer"}


def test_files_that_were_written_before_another_task_failed_are_deleted(orders: Orders) -> None:
    orders.sync([named(1, "old", 1), named(2, "old", 1)])
    first = orders.files()
    orders.sync([named(3, "old", 1), named(4, "old", 1)])
    [second] = orders.files() - first
    opened = orders.open()
    orders.land(opened, named(1, "new", 2), named(3, "new", 2))
    lost = orders.lake.read_object(second)
    orders.lake.delete_object(second)
    before = orders.lake.uris(".parquet")

    with pytest.raises(ConnectorError):
        opened.publish(no_rewrite)

    assert orders.lake.uris(".parquet") == before
    orders.lake.write_object(second, lost)
    opened.publish(no_rewrite)
    assert orders.names() == {1: "new", 2: "old", 3: "new", 4: "old"}


def test_an_overwrite_that_cannot_be_deduplicated_is_not_published(orders: Orders) -> None:
    working = orders.lake.jobs
    orders.sync([named(1, "old", 1)])
    orders.watch(failing("winners"))
    opened = orders.open(2, overwrite=True)
    orders.land(opened, named(2, "a", 1), named(2, "b", 2))

    with pytest.raises(ConnectorError, match=r"the branch airbyte_generation_2 of table .* contains these rows"):
        opened.publish(no_rewrite)

    assert orders.names() == {1: "old"}
    orders.lake.jobs = working
    orders.sync(generation=2, overwrite=True)
    assert orders.names() == {2: "b"}


def test_indexes_are_deleted_when_the_merge_has_ended(
    orders: Orders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "_INLINE_BYTES", 0)
    written: list[Path] = []

    def look(*_: object) -> None:
        written.extend(path for path in tmp_path.rglob("*") if path.is_file())

    orders.lake.jobs = in_process(tmp_path)
    landed(orders, look).publish(no_rewrite)

    assert written
    assert not any(path.exists() for path in written)
