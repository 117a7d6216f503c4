"""What a snapshot changes: files of any content added and removed at once, and a branch that goes with it."""

from __future__ import annotations

import io
from typing import Any

import fastavro
import pytest
from pyiceberg.exceptions import ValidationException
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestEntryStatus
from pyiceberg.table.snapshots import Operation

from destination_datalake.schema.types import Field, Int64, String
from destination_datalake.tables.iceberg.pyiceberg_internals import deleted_entries, referenced_data_file
from destination_datalake.tables.iceberg.snapshots.change import Change
from destination_datalake.tables.iceberg.snapshots.files import live_entries
from unit_tests.tables.iceberg.lake import Lake

pytestmark = pytest.mark.share(4)

PENDING = "airbyte_generation_2"
COLUMNS = (Field("id", "id", Int64()), Field("region", "region", String()))
PARTITIONED: dict[str, Any] = {"columns": COLUMNS, "partition_by": [{"source": "region"}]}


def with_pending(lake: Lake, *rows: dict[str, Any], **more: Any) -> list[IcebergFile]:
    """Leave rows on a branch of their own; return its files."""
    lake.commit_rows(lake.open(2, overwrite=True, **more), *rows)
    return lake.files(PENDING)


@pytest.mark.parametrize("how", [{}, PARTITIONED])
def test_a_merge_is_one_snapshot_and_removes_the_branch_of_what_was_pending(lake: Lake, how: dict[str, Any]) -> None:
    opened = lake.open(**how)
    regions = [{}] * 3 if not how else [{"region": name} for name in ("eu", "us", "eu")]
    lake.commit_rows(opened, {"id": 1, **regions[0]}, {"id": 2, **regions[1]})
    lake.commit_rows(opened, {"id": 3, **regions[2]})
    [*old] = lake.files()
    pending = with_pending(lake, {"id": 4, **regions[0]}, {"id": 5, **regions[1]}, **how)
    before = lake.load().metadata

    lake.merge(Change([*pending], [old[-1]]), without_branch=PENDING)

    after = lake.load().metadata
    assert lake.branches() == []
    gone = {snapshot.snapshot_id for snapshot in before.snapshots} - {
        snapshot.snapshot_id for snapshot in after.snapshots
    }
    assert before.refs[PENDING].snapshot_id in gone
    assert len(after.snapshots) == len(before.snapshots) + 1 - len(gone)
    assert after.current_snapshot_id != before.current_snapshot_id
    assert {4, 5} <= {*lake.ids()}
    assert old[-1].file_path not in {file.file_path for file in lake.files()}
    assert lake.summary().operation == Operation.OVERWRITE
    assert lake.summary()["airbyte.sync-id"] == "7"
    assert lake.summary()["deleted-data-files"] == "1"
    assert lake.summary()["total-data-files"] == str(len(lake.files()))
    assert sum(file.record_count for file in lake.files()) == int(str(lake.summary()["total-records"]))


@pytest.mark.parametrize("how", [{}, PARTITIONED])
def test_position_deletes_are_found_by_the_path_of_their_file(lake: Lake, how: dict[str, Any]) -> None:
    opened = lake.open(**how)
    region = {"region": "eu"} if how else {}
    for ids in (range(3), range(3, 6)):
        lake.commit_rows(opened, *({"id": id_, **region} for id_ in ids))
    first, second = sorted(lake.files(), key=lambda file: file.file_path)

    lake.merge(Change([lake.position_deletes(first, [0, 2])]))

    assert len(lake.ids()) == 4
    [entry] = lake.entries(ManifestContent.DELETES)
    assert entry.data_file.spec_id == first.spec_id
    assert repr(entry.data_file.partition) == repr(first.partition)
    assert referenced_data_file(entry.data_file) == first.file_path
    tasks = {task.file.file_path: len(task.delete_files) for task in lake.load().scan().plan_files()}
    assert tasks == {first.file_path: 1, second.file_path: 0}
    assert lake.summary().operation == Operation.DELETE
    assert lake.summary()["total-position-deletes"] == "2"
    assert lake.summary()["total-delete-files"] == "1"


def test_deletes_apply_to_files_that_the_same_snapshot_adds(lake: Lake) -> None:
    lake.commit(lake.open(), 1)
    [pending] = with_pending(lake, {"id": 2}, {"id": 3})

    lake.merge(Change([pending, lake.position_deletes(pending, [0])]), without_branch=PENDING)

    assert lake.ids() == [1, 3]
    assert lake.summary().operation == Operation.OVERWRITE


def test_the_ids_of_equality_deletes_are_integers_as_java_reads_them(lake: Lake) -> None:
    """It fails at the first entry whose ids are of the type long: nobody could read the table any more."""
    lake.commit(lake.open(), 1)
    lake.delete_by_equality()

    [manifest] = [candidate for candidate in lake.manifests() if candidate.content == ManifestContent.DELETES]
    with lake.load().io.new_input(manifest.manifest_path).open() as content:
        written = fastavro.reader(io.BytesIO(content.read())).writer_schema

    assert isinstance(written, dict)
    [file] = [field["type"] for field in written["fields"] if field["name"] == "data_file"]
    [ids] = [field["type"] for field in file["fields"] if field["name"] == "equality_ids"]
    assert [type_["items"] for type_ in ids if type_ != "null"] == ["int"]


def test_entry_of_removed_equality_deletes_keeps_their_required_ids(lake: Lake) -> None:
    lake.commit(lake.open(), 1)
    lake.delete_by_equality()

    lake.merge(Change(removed=lake.deletes()))

    io_ = lake.load().io
    [entry] = [entry for manifest in lake.manifests() for entry in deleted_entries(manifest, io_)]
    assert (entry.data_file.content, entry.data_file.equality_ids) == (DataFileContent.EQUALITY_DELETES, [1])


def test_deletes_that_newer_ones_repeat_are_removed_with_their_counts(lake: Lake) -> None:
    lake.commit_rows(lake.open(), *({"id": id_} for id_ in range(4)))
    lake.commit_rows(lake.open(), *({"id": id_} for id_ in range(4, 8)))
    first, second = lake.files()
    lake.merge(Change([lake.position_deletes(first, [0]), lake.position_deletes(second, [0])]))
    [old] = [file for file in lake.deletes() if referenced_data_file(file) == first.file_path]

    lake.merge(Change([lake.position_deletes(first, [0, 1])], [old]))

    assert len(lake.ids()) == 5
    assert sorted(file.record_count for file in lake.deletes()) == [1, 2]
    assert {referenced_data_file(file) for file in lake.deletes()} == {first.file_path, second.file_path}
    assert lake.summary()["total-position-deletes"] == "3"
    assert lake.summary()["removed-position-deletes"] == "1"


def test_a_file_goes_with_the_deletes_that_were_for_it_alone(lake: Lake) -> None:
    lake.commit(lake.open(), 1, 2)
    lake.commit(lake.open(), 3)
    [old] = [file for file in lake.files() if file.record_count == 2]
    lake.merge(Change([lake.position_deletes(old, [0])]))

    lake.merge(Change([], [old, *lake.deletes()]))

    assert lake.ids() == [3]
    assert lake.deletes() == []
    assert lake.summary().operation == Operation.DELETE
    assert (lake.summary()["total-delete-files"], lake.summary()["total-data-files"]) == ("0", "1")


def test_manifests_that_list_nothing_of_what_is_removed_stay_as_they_are(lake: Lake) -> None:
    opened = lake.open()
    for id_ in range(3):
        lake.commit(opened, id_)
    before = {manifest.manifest_path: manifest for manifest in lake.manifests()}
    [removed, *_] = lake.files()
    [listing] = [
        manifest
        for manifest in before.values()
        if removed in [entry.data_file for entry in live_entries(manifest, lake.load().io)]
    ]

    lake.merge(Change([], [removed], frozenset([listing.manifest_path])))

    after = {manifest.manifest_path for manifest in lake.manifests()}
    assert before.keys() - after == {listing.manifest_path}
    assert {entry.status for entry in lake.entries()} == {ManifestEntryStatus.ADDED}
    assert len(lake.ids()) == 2


def test_a_file_that_is_not_live_cannot_be_removed(lake: Lake) -> None:
    lake.commit(lake.open(), 1)
    lake.commit(lake.open(), 2)
    [gone, remaining] = lake.files()
    lake.merge(Change([], [gone]))
    before = lake.load().metadata_location

    with pytest.raises(ValidationException, match="Missing required files"):
        lake.merge(Change([], [gone, remaining]))

    assert lake.load().metadata_location == before


def test_only_added_files_are_an_append(lake: Lake) -> None:
    lake.commit(lake.open(), 1)

    lake.merge(Change(with_pending(lake, {"id": 2})))

    assert lake.summary().operation == Operation.APPEND
    assert lake.ids() == [1, 2]
