"""PyIceberg's FileIO over S3, and what is kept of metadata: within its bound, as long as nobody else writes."""

from __future__ import annotations

import gzip
import io
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import boto3
import pyiceberg.manifest
import pytest
from botocore.exceptions import ConnectionClosedError
from botocore.response import StreamingBody
from botocore.stub import Stubber
from emulated_aws.account import Account, allow
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.schema import Schema
from pyiceberg.serializers import FromInputFile
from pyiceberg.typedef import Record
from pyiceberg.types import NestedField, StringType

from destination_datalake.aws.access import AccessKeys
from destination_datalake.errors import ConnectorError
from destination_datalake.schema.types import Field, Int64, String
from destination_datalake.tables.glue.compare_and_set import METADATA, CompareAndSetGlueCatalog
from destination_datalake.tables.iceberg import file_io, pyiceberg_internals
from destination_datalake.tables.iceberg.file_io import (
    MANIFESTS,
    MANIFESTS_BYTES,
    MAX_BACKGROUND_WRITES,
    BackgroundWrites,
    LruCache,
    S3FileIO,
)
from destination_datalake.tables.iceberg.maintenance import second_reader
from unit_tests.cloud import during
from unit_tests.tables.iceberg.lake import Lake

pytestmark = pytest.mark.share(5)

CONTENT = b'{"format-version": 2}'


def test_a_metadata_file_is_read_again_after_a_truncated_response() -> None:
    s3 = boto3.client("s3", "eu-west-1", aws_access_key_id="AKIAIOSFODNN7EXAMPLE", aws_secret_access_key="none")
    with Stubber(s3) as answers:
        for sent in (CONTENT[:5], CONTENT):
            answers.add_response("get_object", {"Body": StreamingBody(io.BytesIO(sent), len(CONTENT))})

        read = S3FileIO(s3).new_input("s3://lake/t/metadata/1.json").open().read()

    assert read == CONTENT


def test_the_least_recently_used_is_forgotten_beyond_the_budget() -> None:
    kept: LruCache[str] = LruCache(10)
    kept.put("a", "A", 4)
    kept.put("b", "B", 4)
    assert kept.get("a") == "A"

    kept.put("c", "C", 4)

    assert [kept.get(address) for address in "abc"] == ["A", None, "C"]


def test_what_is_larger_than_the_budget_is_not_kept_and_drives_nothing_out() -> None:
    kept: LruCache[str] = LruCache(10)
    kept.put("a", "A", 4)

    kept.put("b", "B", 11)

    assert [kept.get(address) for address in "ab"] == ["A", None]


def test_what_is_forgotten_or_replaced_takes_no_room() -> None:
    kept: LruCache[str] = LruCache(10)
    for _ in range(5):
        kept.put("a", "A", 9)
    kept.forget("a")
    kept.forget("a")

    kept.put("b", "B", 5)
    kept.put("c", "C", 5)

    assert [kept.get(address) for address in "abc"] == [None, "B", "C"]


class SlowWrites:
    """Counts the calls that have ended."""

    def __init__(self) -> None:
        self.ended = 0

    def write(self) -> None:
        time.sleep(0.05)
        self.ended += 1


def test_writes_of_a_block_end_before_it_does() -> None:
    writes, slow = BackgroundWrites(), SlowWrites()

    with writes.begun():
        for _ in range(MAX_BACKGROUND_WRITES + 1):
            writes.run(slow.write)

    assert slow.ended == MAX_BACKGROUND_WRITES + 1


def test_writes_have_ended_when_the_block_raises() -> None:
    writes, slow = BackgroundWrites(), SlowWrites()

    def act() -> None:
        with writes.begun():
            writes.run(slow.write)
            raise KeyError

    with pytest.raises(KeyError):
        act()
    assert slow.ended == 1


def test_block_raises_what_a_write_raises_and_the_next_block_does_not() -> None:
    writes = BackgroundWrites()

    def fail() -> None:
        raise ConnectionError

    with pytest.raises(ConnectionError), writes.begun():
        writes.run(fail)
    with writes.begun():
        writes.run(lambda: None)


def test_writes_run_at_once_outside_a_block() -> None:
    ran = list[int]()
    BackgroundWrites().run(lambda: ran.append(1))

    assert ran == [1]


def test_file_is_read_and_deleted_while_it_is_being_written(lake: Lake) -> None:
    uri, content = f"s3://{lake.bucket}/orders/metadata/large.avro", bytes(MANIFESTS_BYTES + 1)
    writes = BackgroundWrites()
    file_io = S3FileIO(lake.access.client("s3"), writes)

    def delay(**_: object) -> None:
        time.sleep(0.2)

    with during(lake.access, "provide-client-params.s3.PutObject", delay), writes.begun():
        with file_io.new_output(uri).create(overwrite=True) as output:
            output.write(content)
        assert file_io.new_input(uri).open().read() == content
        file_io.delete(uri)

    assert uri not in lake.uris()


def test_failed_deletion_of_an_unneeded_file_does_not_hide_a_failed_write(lake: Lake) -> None:
    file_io = S3FileIO(lake.access.client("s3"))

    def fail() -> None:
        raise ConnectionClosedError(endpoint_url="s3")

    def commit() -> None:
        with file_io.writes.begun():
            file_io.writes.run(fail)
            with suppress(OSError):
                file_io.delete(f"s3://{lake.bucket}/orders/metadata/unneeded.avro")

    with pytest.raises(ConnectionClosedError):
        commit()


def test_the_metadata_of_a_table_is_read_once_as_long_as_nobody_else_writes(lake: Lake) -> None:
    lake.open()
    lake.append(9)
    with reads(lake) as read:
        syncing = lake.open()
        for id_ in range(3):
            lake.commit(syncing, id_)

    assert len([key for key in read if key.endswith(".metadata.json")]) == 1


def test_the_metadata_of_a_new_table_is_not_read(lake: Lake) -> None:
    with reads(lake) as read:
        lake.commit(lake.open(), 1)

    assert [key for key in read if key.endswith(".metadata.json")] == []


def test_manifests_that_this_process_has_written_are_not_read(lake: Lake) -> None:
    syncing = lake.open()
    lake.set_properties({"commit.manifest.min-count-to-merge": "2"})
    with reads(lake) as read:
        for id_ in range(4):
            lake.commit(syncing, id_)

    assert [key for key in read if key.endswith(".avro")] == []
    assert lake.ids() == list(range(4))


def test_manifests_that_this_process_has_read_are_not_read_again(lake: Lake) -> None:
    lake.open()
    lake.append(9)
    lake.append(10)
    with reads(lake) as read:
        for _ in range(2):
            table = CompareAndSetGlueCatalog(lake.access).load_table(lake.name)
            snapshot = table.current_snapshot()
            assert snapshot is not None
            assert [len(manifest.fetch_manifest_entry(table.io)) for manifest in snapshot.manifests(table.io)] == [1, 1]

    assert len([key for key in read if key.endswith(".avro")]) == 3


def test_of_many_commits_only_what_the_next_one_needs_is_kept(lake: Lake) -> None:
    syncing = lake.open()
    lake.set_properties({"commit.manifest.min-count-to-merge": "3"})
    earlier_keys = lake.objects()
    for id_ in range(11):
        lake.commit(syncing, id_)

    table = lake.load()
    snapshot = table.current_snapshot()
    assert snapshot is not None
    needed = {snapshot.manifest_list, *(manifest.manifest_path for manifest in snapshot.manifests(table.io))}
    addresses = {f"s3://{lake.bucket}/{key}" for key in lake.objects() - earlier_keys}
    assert {address for address in addresses if MANIFESTS.get(address) is not None} == needed
    assert {address for address in addresses if METADATA.get(address) is not None} == {table.metadata_location}


def test_the_metadata_of_another_writer_is_read_and_continued(lake: Lake) -> None:
    syncing = lake.open()
    lake.commit(syncing, 1)
    with lake.load().update_schema() as update:
        update.add_column("theirs", StringType())
    lake.append(2)

    with reads(lake) as read:
        lake.commit(syncing, 3)

    assert len([key for key in read if key.endswith(".metadata.json")]) == 1
    assert lake.ids() == [1, 2, 3]
    assert lake.load().schema().find_type("theirs") == StringType()


def test_a_commit_that_failed_leaves_the_metadata_as_it_was_planned_on(lake: Lake) -> None:
    syncing = lake.open()
    lake.commit(syncing, 1)
    before = lake.load()
    lake.at_the_next_update(lambda: lake.append(2))

    lake.commit(syncing, 3)

    assert lake.ids() == [1, 2, 3]
    assert [entry.snapshot_id for entry in lake.load().history()][:1] == [before.metadata.current_snapshot_id]
    assert len(lake.load().metadata.snapshots) == 3


def test_a_table_that_was_dropped_and_created_anew_is_not_taken_for_the_old_one(lake: Lake) -> None:
    lake.commit(lake.open(), 1)
    lake.access.client("glue").delete_table(DatabaseName=lake.name.database, Name=lake.name.table)

    syncing = lake.open(columns=(Field("id", "id", Int64()), Field("name", "name", String())))
    lake.commit(syncing, 2, name="b")

    assert lake.ids() == [2]


@contextmanager
def reads(lake: Lake) -> Iterator[list[str]]:
    """The keys of the objects that the connector reads meanwhile."""
    read = list[str]()

    def note(params: dict[str, Any], **_: object) -> None:
        read.append(params["Key"])

    with during(lake.access, "provide-client-params.s3.GetObject", note):
        yield read


def test_a_missing_object_is_missing_for_an_identity_that_may_list_only_the_folder(lake: Lake) -> None:
    """S3 may answer such an identity with status 403, as a request for an object has no prefix."""
    lists = allow("s3:ListBucket", condition={"StringLike": {"s3:prefix": ["orders/*"]}})
    member = Account(str(lake.access.endpoint_url)).user(allow("s3:GetObject"), lists).environment
    identity = AccessKeys(member["AWS_ACCESS_KEY_ID"], member["AWS_SECRET_ACCESS_KEY"])
    s3 = replace(lake.access, identity=identity).client("s3")
    gone = f"s3://{lake.bucket}/orders/metadata/gone.avro"

    file = S3FileIO(s3).new_input(gone)

    assert not file.exists()
    with pytest.raises(FileNotFoundError, match="does not exist"):
        file.open()
    with pytest.raises(FileNotFoundError, match="does not exist"):
        list(second_reader.SecondReader(s3).manifests(gone))


@pytest.mark.parametrize("location", ["file:///etc/passwd", "http://169.254.169.254/latest", "/etc/passwd", ""])
def test_a_file_that_is_not_in_s3_is_not_read(lake: Lake, location: str) -> None:
    lake.commit(lake.open(), 1)
    glue = lake.access.client("glue")
    entry = glue.get_table(DatabaseName=lake.name.database, Name=lake.name.table)["Table"]
    parameters = {**entry["Parameters"], "metadata_location": location}
    glue.update_table(
        DatabaseName=lake.name.database,
        TableInput={"Name": lake.name.table, "Parameters": parameters},
        SkipArchive=True,
    )

    with pytest.raises(ConnectorError, match="is not an S3 address") as refused:
        lake.open()
    assert refused.value.failure.type == "config_error"


# --- files that unpack to a thousand times their size -----------------------------------------------------------------


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> int:
    for module in (file_io, pyiceberg_internals):
        monkeypatch.setattr(module, "MAX_FILE_BYTES", 100_000)
    monkeypatch.setattr(second_reader, "_MAX_BYTES", 100_000)
    return 100_000


@pytest.mark.parametrize("zipped", [True, False])
def test_a_metadata_file_beyond_the_limit_is_an_error_with_its_name(lake: Lake, limit: int, zipped: bool) -> None:
    body = b" " * (limit + 1)
    uri = f"s3://{lake.bucket}/orders/metadata/00001-x{'.gz' if zipped else ''}.metadata.json"
    lake.write_object(uri, gzip.compress(body) if zipped else body)
    s3 = lake.access.client("s3")

    with pytest.raises(ConnectorError, match=f"{uri} exceeds 100,000 bytes uncompressed"):
        FromInputFile.table_metadata(S3FileIO(s3).new_input(uri))
    with pytest.raises(second_reader.Disagreement, match="exceeds the limit of 100,000 bytes"):
        second_reader.SecondReader(s3).metadata(uri)


@pytest.mark.parametrize("codec", ["deflate", "bzip2", "zstandard", "null"])
def test_an_avro_file_beyond_the_limit_is_an_error_with_its_name(lake: Lake, limit: int, codec: str) -> None:
    fields = Schema(NestedField(500, "p", StringType(), required=True))
    uri, io_ = f"s3://{lake.bucket}/orders/metadata/list", S3FileIO(lake.access.client("s3"))
    with AvroOutputFile[Record](io_.new_output(uri), fields, "r", metadata={"avro.codec": codec}) as file:
        for _ in range(3):
            file.write_block([Record("x" * (limit * 2 // 5))])
    reader: Any = vars(pyiceberg.manifest)["AvroFile"]

    with (
        pytest.raises(ConnectorError, match=f"{uri} exceeds 100,000 bytes uncompressed"),
        reader(io_.new_input(uri), fields) as manifest_list,
    ):
        list(manifest_list)
