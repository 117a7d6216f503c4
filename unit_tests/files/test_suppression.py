"""The ledger of erasures, as a sync reads it when it begins: whose records it rejects, and how that may fail."""

from __future__ import annotations

import base64
import subprocess
import sys

import msgspec
import pytest

from destination_datalake.aws.access import take_usage
from destination_datalake.errors import ConfigError, ConnectorError
from destination_datalake.files.suppression import (
    ErasedColumn,
    RequestRecord,
    SuppressionRule,
    read_suppressed,
    requests,
    rules_of,
)
from unit_tests.cloud import BUCKET, Cloud

FOLDER = f"s3://{BUCKET}/lake/_deletions"


def put(cloud: Cloud, id_: str, content: bytes) -> None:
    cloud.access.client("s3").put_object(Bucket=BUCKET, Key=f"lake/_deletions/{id_}/request.json", Body=content)


def request(cloud: Cloud, id_: str, *tables: str, suppress: bool) -> None:
    salt = base64.b64encode(id_.encode()).decode()
    erased = {table: ErasedColumn("user.id", "timestamp[us, tz=UTC]") for table in tables}
    record = RequestRecord(id_, "user.id", ("all",), 1, salt, "", "2026-11-25", tables=erased, suppress=suppress)
    put(cloud, id_, msgspec.json.encode(record))


UNPREPARED = """
import gc, sys
from pkgutil import resolve_name
for name in sys.argv[1:]:
    cls = resolve_name("destination_datalake." + name)
    prepared = [*gc.get_referents(cls), cls.__dict__.get("__msgspec_cache__")]
    if not {"StructInfo", "DataclassInfo"} & {type(item).__name__ for item in prepared}:
        print(name)
"""


def test_types_that_threads_decode_are_prepared_at_import() -> None:
    """msgspec 0.22 crashes if two threads decode a type at the same time for the first time."""
    names = [
        "archive.objects:ArchivedBatch",
        "files.suppression:ErasedColumn",
        "files.suppression:RequestRecord",
        "reports.health:_Erased",
        "reports.health:_Members",
        "tables.fencing:Overwrites",
        "tables.iceberg.dedup.plan:Definition",
        "tables.iceberg.maintenance.second_reader:Metadata",
    ]

    done = subprocess.run([sys.executable, "-c", UNPREPARED, *names], capture_output=True, text=True, check=True)

    assert done.stdout.split() == []


def rule(id_: str) -> SuppressionRule:
    return SuppressionRule("user.id", f"{FOLDER}/{id_}/hashes/timestamp_us__tz_UTC_.bin", id_.encode())


def test_syncs_reject_whom_requests_suppress_and_replays_leave_all_of_them_out(cloud: Cloud) -> None:
    request(cloud, "1", "lake.orders", suppress=True)
    request(cloud, "2", "lake.orders", "lake.users", suppress=False)
    request(cloud, "3", "lake.orders", suppress=True)

    assert read_suppressed(FOLDER, cloud.access) == {"lake.orders": (rule("1"), rule("3"))}
    assert rules_of(FOLDER, requests(FOLDER, cloud.access.client("s3"))) == {
        "lake.orders": (rule("1"), rule("2"), rule("3")),
        "lake.users": (rule("2"),),
    }


def test_without_erasures_the_ledger_is_listed_and_nothing_else(cloud: Cloud) -> None:
    cloud.access.client("s3").put_object(Bucket=BUCKET, Key="lake/orders/data/1.parquet", Body=b"")
    take_usage()

    assert read_suppressed(FOLDER, cloud.access) == {}

    assert {name: count for name, count in take_usage().calls.items() if name.startswith("s3.")} == {
        "s3.ListObjectsV2": 1
    }


def test_a_request_that_was_written_before_there_was_suppression_has_none(cloud: Cloud) -> None:
    put(cloud, "1", b'{"id":"1","column":"a","target":["all"],"ids":1,"salt":"","check":"","started":""}')

    assert read_suppressed(FOLDER, cloud.access) == {}


@pytest.mark.parametrize("operation", ["ListObjectsV2", "GetObject"])
def test_what_may_not_be_read_is_an_error_that_names_the_permission(cloud: Cloud, operation: str) -> None:
    request(cloud, "1", "lake.orders", suppress=True)

    with cloud.refusing(operation), pytest.raises(ConnectorError) as failed:
        read_suppressed(FOLDER, cloud.access)

    assert failed.value.failure.type == "config_error"
    assert f"Cannot read the suppression requests (`delete-rows --suppress`) from {FOLDER}/" in str(failed.value)


def test_a_request_that_was_killed_before_it_was_written_suppresses_nobody(cloud: Cloud) -> None:
    """S3 answers 403 for its object to an identity that may list the folders of the connector alone."""
    cloud.access.client("s3").put_object(Bucket=BUCKET, Key="lake/_deletions/1/hashes/int64.bin", Body=b"")

    with cloud.refusing("GetObject"):
        assert read_suppressed(FOLDER, cloud.access) == {}


INVALID = [b"{", msgspec.json.encode(RequestRecord("1", "id", ("all",), 1, "no base64", "", "2026-11-25"))]


@pytest.mark.parametrize("content", INVALID, ids=["no JSON", "no salt"])
def test_what_is_no_request_is_an_error(cloud: Cloud, content: bytes) -> None:
    put(cloud, "1", content)

    with pytest.raises(ConnectorError, match="json in this folder is not valid") as failed:
        read_suppressed(FOLDER, cloud.access)

    assert failed.value.failure.type == "config_error"


@pytest.mark.parametrize("content", INVALID, ids=["no JSON", "no salt"])
def test_commands_name_the_object_that_is_no_request(cloud: Cloud, content: bytes) -> None:
    put(cloud, "1", content)

    with pytest.raises(ConfigError, match=f"^{FOLDER}/1/request.json is not a valid erasure request. Restore"):
        [*requests(FOLDER, cloud.access.client("s3"))]
