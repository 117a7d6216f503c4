"""The Glue catalog of one commit: requests, and what became of a commit without a response."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ConnectionClosedError
from pyiceberg.table.locations import SimpleLocationProvider

from destination_datalake.aws.objects import DeferredUpload
from destination_datalake.files.plan import DataFile
from destination_datalake.tables.glue.glue_table import as_table_input
from destination_datalake.tables.iceberg import file_io, table
from destination_datalake.tables.iceberg.table import IcebergTable
from destination_datalake.tables.table import CommitStateUnknown, Committed
from unit_tests.cloud import during
from unit_tests.tables.iceberg.lake import Lake, no_rewrite


def glue_reads(lake: Lake, syncing: IcebergTable, id_: int) -> int:
    """Commit a row; return how often the Glue table was read for that."""
    calls = list[object]()
    file = lake.write(syncing, id_)
    with during(lake.access, "before-call.glue.GetTable", lambda **call: calls.append(call)):
        syncing.commit([file], no_rewrite)
    return len(calls)


def test_first_commit_of_a_sync_does_not_read_the_prepared_table_again(lake: Lake) -> None:
    lake.open()
    syncing = lake.open()

    assert [glue_reads(lake, syncing, id_) for id_ in (1, 2)] == [0, 1]


def test_first_commit_long_after_the_preparation_reads_the_table_again(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.open()
    monkeypatch.setattr(table, "_FRESH_SECONDS", 0.0)

    assert glue_reads(lake, lake.open(), 1) == 1


def test_first_commit_keeps_what_another_writer_has_committed_since_the_preparation(lake: Lake) -> None:
    lake.open()
    syncing = lake.open()
    lake.append(2)

    lake.commit(syncing, 1)

    assert lake.ids() == [1, 2]


FILES_OF_A_COMMIT = ["/data/", "-m0.avro", "snap-", ".metadata.json"]


def held(lake: Lake, file: DataFile, folder: Path) -> DataFile:
    """Return the file as it is before its commit: on the disk, not in S3."""
    bucket, _, key = file.uri.removeprefix("s3://").partition("/")
    (folder / "held").write_bytes(lake.read_object(file.uri))
    lake.delete_object(file.uri)
    return replace(file, pending_upload=DeferredUpload(bucket, key, str(folder / "held")))


@pytest.mark.share(1)
@pytest.mark.parametrize("name", FILES_OF_A_COMMIT)
def test_catalog_is_updated_after_all_files_of_the_commit_are_written(lake: Lake, tmp_path: Path, name: str) -> None:
    syncing = lake.open()
    file, before = held(lake, lake.write(syncing, 1), tmp_path), set[str]()

    def delay(params: dict[str, str], **_: object) -> None:
        if name in params["Key"]:
            time.sleep(0.3)

    lake.at_the_next_update(lambda: before.update(lake.objects()))
    with during(lake.access, "provide-client-params.s3.PutObject", delay):
        assert syncing.commit([file], no_rewrite) == Committed()

    assert before == lake.objects()
    assert all(any(name in key for key in before) for name in FILES_OF_A_COMMIT)
    assert lake.ids() == [1]


@pytest.mark.share(1)
@pytest.mark.parametrize("name", FILES_OF_A_COMMIT)
def test_catalog_is_not_updated_if_a_file_of_the_commit_cannot_be_written(
    lake: Lake, tmp_path: Path, name: str
) -> None:
    syncing = lake.open()
    lake.commit(syncing, 1)
    file = held(lake, lake.write(syncing, 2), tmp_path)
    location = lake.load().metadata_location

    def lose(params: dict[str, str], **_: object) -> None:
        if name in params["Key"]:
            time.sleep(0.1)
            raise ConnectionClosedError(endpoint_url="s3")

    with (
        during(lake.access, "provide-client-params.s3.PutObject", lose),
        pytest.raises(ConnectionClosedError),
    ):
        syncing.commit([file], no_rewrite)

    assert lake.load().metadata_location == location
    lake.commit(lake.open(), 3)
    assert lake.ids() == [1, 3]


def test_a_commit_whose_responses_are_all_lost_is_found(lake: Lake) -> None:
    syncing = lake.open()

    def lose(**_: object) -> None:
        raise ConnectionClosedError(endpoint_url="glue")

    with during(lake.access, "after-call.glue.UpdateTable", lose):
        lake.commit(syncing, 1)

    assert lake.ids() == [1]


def test_nothing_is_deleted_when_the_commit_state_is_unknown(lake: Lake) -> None:
    """The metadata log does not reach back to the commit, and its snapshot is expired."""
    syncing = lake.open()
    lake.commit(syncing, 1)
    files = [lake.write(syncing, 2)]
    before = set[str]()

    def expire() -> None:
        lake.set_properties({"write.metadata.previous-versions-max": "1"})
        lake.compact_and_expire()
        before.update(lake.objects())

    lake.at_the_next_update(expire, response_lost=True)
    with pytest.raises(CommitStateUnknown, match="cannot determine whether the commit succeeded"):
        syncing.commit(files, no_rewrite)

    assert before <= lake.objects()
    assert lake.ids() == [1, 2]


@pytest.mark.parametrize(
    ("location", "content", "reason"),
    [
        ("s3://{bucket}/other.metadata.json", b"x" * 2_000_000, "exceeds 1,000,000 bytes"),
        ("https://example.com/other.metadata.json", None, "not an S3 address"),
    ],
    ids=["too large", "outside S3"],
)
def test_nothing_is_deleted_when_a_commit_without_a_response_cannot_be_searched_for(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, location: str, content: bytes | None, reason: str
) -> None:
    syncing = lake.open()
    lake.commit(syncing, 1)
    file, glue = lake.write(syncing, 2), lake.access.client("glue")
    location = location.format(bucket=lake.bucket)
    before = set[str]()

    def replace_metadata() -> None:
        before.update(lake.objects())
        if content is not None:
            lake.write_object(location, content)
        monkeypatch.setattr(file_io, "MAX_FILE_BYTES", 1_000_000)
        table = glue.get_table(DatabaseName=lake.name.database, Name=lake.name.table)["Table"]
        parameters = {**table["Parameters"], "metadata_location": location}
        changed: Any = as_table_input({**table, "Parameters": parameters})
        glue.update_table(DatabaseName=lake.name.database, TableInput=changed)

    lake.at_the_next_update(replace_metadata, response_lost=True)
    with pytest.raises(CommitStateUnknown, match=reason):
        syncing.commit([file], no_rewrite)

    assert before <= lake.objects()


class Planted(SimpleLocationProvider):
    """What a table's property names as the class that chooses paths."""

    def __init__(self, *_: object) -> None:
        raise AssertionError("a table's property was imported and called")


def test_a_property_that_names_code_is_kept_and_not_followed(lake: Lake) -> None:
    syncing = lake.open()
    lake.commit(syncing, 1)
    planted = f"{__name__}.Planted"
    properties = {"write.py-location-provider.impl": planted, "py-io-impl": planted, "io-impl": planted}
    location = lake.load().metadata_location
    metadata = json.loads(lake.read_object(location))
    lake.edit_metadata({"properties": {**metadata["properties"], **properties}})

    lake.commit(lake.open(2, overwrite=True), 2)
    lake.commit(lake.open(2), 3)

    # PyIceberg's own reader would call what is planted.
    entry = lake.access.client("glue").get_table(DatabaseName=lake.name.database, Name=lake.name.table)["Table"]
    metadata = json.loads(lake.read_object(entry["Parameters"]["metadata_location"]))
    assert properties.items() <= metadata["properties"].items()
    assert len(metadata["snapshots"]) > 2
