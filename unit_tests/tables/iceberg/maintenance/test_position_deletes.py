"""Position deletes are applied by compaction, and go with the files that they are for."""

from __future__ import annotations

import pytest

from destination_datalake.tables.iceberg.snapshots.change import Change
from unit_tests.tables.iceberg.lake import Lake
from unit_tests.tables.iceberg.maintenance.compacting import after_writing, commit_files, compacted, filled
from unit_tests.tables.iceberg.maintenance.test_expiry import expire
from unit_tests.tables.iceberg.maintenance.test_orphans import remove

pytestmark = pytest.mark.share(2)

TINY = 100
"""A target size by which no file is small."""


def test_small_files_are_compacted_without_their_deleted_rows(lake: Lake) -> None:
    opened = filled(lake, count=3)
    lake.commit_rows(opened, {"id": 10}, {"id": 11})
    lake.commit_rows(opened, {"id": 12}, {"id": 13})
    first, second = [file for file in lake.files() if file.record_count == 2]
    lake.merge(Change([lake.position_deletes(first, [0]), lake.position_deletes(second, [0, 1])]))
    before = lake.ids()

    report = compacted(lake)

    assert (report.files_before, report.files_after, report.rows) == (5, 1, 4)
    assert lake.ids() == before
    assert lake.deletes() == []
    assert (lake.summary()["total-delete-files"], lake.summary()["total-position-deletes"]) == ("0", "0")
    assert lake.summary()["total-records"] == "4"


def test_deletes_of_other_engines_for_a_whole_partition_are_applied(lake: Lake) -> None:
    filled(lake)
    lake.delete_first_row()
    before = lake.ids()

    report = compacted(lake)

    assert (report.files_before, report.files_after) == (6, 1)
    assert lake.ids() == before
    assert len(before) == 5
    assert lake.deletes() == []
    assert compacted(lake).commits == 0


def test_deletes_that_another_file_needs_stay(lake: Lake) -> None:
    """Files of an engine's own format are not compacted, nor are those that are large enough."""
    opened = filled(lake)
    lake.commit_rows(opened, *({"id": id_} for id_ in range(100, 5000)))
    [large] = [file for file in lake.files() if file.record_count > 1]
    lake.delete_first_row()
    before = lake.ids()

    report = compacted(lake, target=large.file_size_in_bytes)

    assert report.files_before == 6
    assert lake.ids() == before
    assert len(lake.deletes()) == 1


def test_a_large_file_is_rewritten_when_a_fifth_of_it_is_deleted(lake: Lake) -> None:
    opened = lake.open()
    for start in (0, 10):
        lake.commit_rows(opened, *({"id": id_} for id_ in range(start, start + 10)))
    worn, good = lake.files()
    lake.merge(Change([lake.position_deletes(worn, [0, 1, 2]), lake.position_deletes(good, [0, 1])]))
    before = lake.ids()

    report = compacted(lake, target=TINY)

    assert (report.files_before, report.files_after, report.rows) == (1, 1, 7)
    assert good in lake.files()
    assert [file.record_count for file in lake.deletes()] == [2]
    assert lake.ids() == before
    assert compacted(lake, target=TINY).commits == 0


def test_a_file_without_rows_left_is_removed(lake: Lake) -> None:
    opened = lake.open()
    lake.commit_rows(opened, {"id": 1}, {"id": 2})
    lake.commit(opened, 3)
    [emptied] = [file for file in lake.files() if file.record_count == 2]
    lake.merge(Change([lake.position_deletes(emptied, [0, 1])]))
    before = lake.objects()

    report = compacted(lake, target=TINY)

    assert (report.files_before, report.files_after, report.bytes_after) == (1, 0, 0)
    assert lake.ids() == [3]
    assert lake.deletes() == []
    assert not [key for key in lake.objects() - before if key.endswith(".parquet")]


def test_rows_that_are_deleted_meanwhile_are_found_by_the_next_round(lake: Lake) -> None:
    filled(lake)
    first, *_ = lake.files()
    lake.merge(Change([lake.position_deletes(first, [])]))

    def delete() -> None:
        [old] = lake.deletes()
        lake.merge(Change([lake.position_deletes(first, [0])], [old]))

    report = compacted(lake, after_writing(delete))

    assert report.rows == len(lake.ids()) == 5


def test_later_deletes_apply_to_what_compaction_has_written(lake: Lake) -> None:
    opened = filled(lake)
    lake.delete_first_row()
    compacted(lake)

    lake.delete_first_row()
    commit_files(lake, opened, [20])

    assert len(lake.ids()) == 5


def test_orphans_and_expired_files_do_not_include_deletes_in_use(lake: Lake) -> None:
    lake.commit_rows(lake.open(), {"id": 1}, {"id": 2}, {"id": 3})
    [file] = lake.files()
    lake.merge(Change([lake.position_deletes(file, [0])]))
    [old] = lake.deletes()
    lake.merge(Change([lake.position_deletes(file, [0, 1])], [old]))
    [new] = lake.deletes()
    orphan = lake.put(b"of a merge that was killed", "deletes/")

    remove(lake)
    assert {file.file_path, old.file_path, new.file_path} <= lake.uris()
    assert orphan not in lake.uris()

    expire(lake)
    assert {file.file_path, new.file_path} <= lake.uris()
    assert old.file_path not in lake.uris()
    assert lake.ids() == [3]
