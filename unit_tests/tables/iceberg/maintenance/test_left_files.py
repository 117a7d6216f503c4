"""Files and bins that a compaction leaves as they are, and what it says of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.types import UUIDType

from destination_datalake.errors import ConnectorError, Failure
from destination_datalake.files.plan import CompactResult, CompactTask
from destination_datalake.schema.types import Field, Int32, Int64
from destination_datalake.tables.table import Committed
from unit_tests.tables.iceberg.lake import Lake, no_rewrite
from unit_tests.tables.iceberg.maintenance.compacting import (
    after_writing,
    commit_files,
    compacted,
    filled,
    keys,
    live_keys,
    on_executors,
)

pytestmark = pytest.mark.share(3)

ID = Field("id", "id", Int64())
SORTED = {
    "order-id": 1,
    "fields": [{"transform": "identity", "source-id": 99, "direction": "asc", "null-order": "nulls-first"}],
}


def test_what_equality_deletes_may_apply_to_is_left_with_a_note(lake: Lake) -> None:
    opened = filled(lake)
    lake.delete_by_equality()
    commit_files(lake, opened, range(10, 16))

    report = compacted(lake)

    assert (report.files_before, report.files_after) == (6, 1)
    assert report.notes == ("the compaction skips 6 files to which equality deletes may apply",)


def test_files_of_other_writers_without_field_ids_are_left_with_a_note(lake: Lake) -> None:
    filled(lake)
    table = lake.load()
    body = pa.BufferOutputStream()
    pq.write_table(pa.table({"id": pa.array([7], pa.int64())}), body)
    foreign = lake.put(body.getvalue().to_pybytes())
    table.add_files([foreign])

    report = compacted(lake)

    assert report.notes == ("the compaction skips 1 file: contains columns without field IDs",)
    assert (report.files_before, report.files_after) == (6, 1)
    assert lake.ids() == [0, 1, 2, 3, 4, 5, 7]
    assert foreign in {file.file_path for file in lake.files()}


def in_two_partitions(lake: Lake) -> None:
    opened = lake.open(columns=(ID, Field("p", "p", Int32())), partition_by=[{"source": "p"}])
    rows = [{"id": number, "p": number % 2 + 1} for number in range(10)]
    written = [file for row in rows for file in lake.write_partitions(opened, row)]
    assert opened.commit(written, no_rewrite) == Committed()


def test_bins_that_fail_are_left_and_the_others_committed(lake: Lake) -> None:
    in_two_partitions(lake)
    lost = next(file for file in lake.files() if file.partition[0] == 1)
    lake.delete_object(lost.file_path)

    report = compacted(lake)

    assert (report.files_before, report.files_after, report.commits) == (5, 1, 1)
    assert len(report.failures) == 1
    assert keys(lake) - live_keys(lake) == {key for key in keys(lake) if "p=2" in key} - live_keys(lake)


def test_a_bin_that_kills_its_worker_does_not_stop_the_others(lake: Lake) -> None:
    in_two_partitions(lake)

    def execute(tasks: Sequence[CompactTask]) -> Sequence[CompactResult]:
        if any("p=1" in task.folder for task in tasks):
            raise ConnectorError(Failure("Spark could not run a job.", "", "transient_error"))
        return on_executors(tasks)

    report = compacted(lake, execute)

    assert (report.files_before, report.files_after) == (5, 1)
    assert [failure.message for failure in report.failures] == ["Spark could not run a job."]


def test_a_compaction_ends_when_no_job_can_be_run(lake: Lake) -> None:
    in_two_partitions(lake)

    def execute(_: object) -> Sequence[CompactResult]:
        raise ConnectorError(Failure("Spark has ended.", "", "transient_error"))

    with pytest.raises(ConnectorError, match="Spark has ended"):
        compacted(lake, execute)
    assert len(lake.files()) == 10


def test_a_file_that_the_table_lists_twice_is_left_with_a_note(lake: Lake) -> None:
    """Its rows are in the table twice. A removal, which is by path, would remove both."""
    opened = filled(lake, count=5)
    file = lake.write(opened, 5)
    for _ in range(2):
        assert opened.commit([file], no_rewrite) == Committed()

    report = compacted(lake)

    assert report.notes == ("the compaction skips 2 files that the table lists more than once",)
    assert (report.files_before, report.files_after) == (5, 1)
    assert lake.ids() == [0, 1, 2, 3, 4, 5, 5]


def test_a_file_that_is_listed_again_meanwhile_is_left(lake: Lake) -> None:
    opened = filled(lake, count=5)
    file = lake.write(opened, 5)
    assert opened.commit([file], no_rewrite) == Committed()

    compacted(lake, after_writing(lambda: opened.commit([file], no_rewrite)))

    assert lake.ids() == [0, 1, 2, 3, 4, 5, 5]


@pytest.mark.parametrize(
    ("change", "note"),
    [
        (
            {"format-version": 3, "next-row-id": 0},
            "its format-version is 3, ",
        ),
        ({"sort-orders": [SORTED], "default-sort-order-id": 1}, "its sort order contains a dropped column"),
    ],
)
def test_a_table_that_the_connector_cannot_write_is_left(lake: Lake, change: dict[str, Any], note: str) -> None:
    filled(lake)
    lake.edit_metadata(change)

    report = compacted(lake)

    assert report.commits == 0
    assert [text[: len(note)] for text in report.notes] == [note]


def test_a_table_with_a_type_that_is_unknown_here_is_left(lake: Lake) -> None:
    filled(lake)
    with lake.load().update_schema() as update:
        update.add_column("key", UUIDType())

    assert compacted(lake).notes == ("it contains columns of types that this connector does not support",)
