"""What a sync notes beside its archived lines: how streams were configured, what was committed, what was published."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from destination_datalake.archive.ledger import remove_hashes
from destination_datalake.errors import ConnectorError
from destination_datalake.files.plan import LineFile
from destination_datalake.schema.types import Field, Int64, List, String
from destination_datalake.tables.table import TablePosition
from integration_tests.harness.messages import configured_stream
from unit_tests.archive.archive import AT, FOLDER, KEY, NOW, Archiving
from unit_tests.cloud import BUCKET, Cloud, another_client, during

BEGIN = f"{KEY}/index/1764000000000-0a/begin.json"
DAY = 24 * 3600
COLUMNS = [Field("id", "Id", Int64()), Field("tags", "tags", List(String()))]


def entry(cloud: Cloud, key: str) -> Any:
    return json.loads(cloud.objects()[key])


def catalogs(cloud: Cloud) -> list[str]:
    return [key for key in cloud.objects() if key.startswith(f"{KEY}/catalog/")]


def test_a_sync_that_has_prepared_its_table_says_who_it_is_and_how_the_stream_was_configured(cloud: Cloud) -> None:
    schema = {"type": "object", "properties": {"z": {"type": "integer"}, "a": {"type": "string"}}}
    stream = configured_stream(
        "orders", schema, namespace="é", mode="append_dedup", primary_key=["z"], cursor="a", generation=2, sync_id=3
    )
    Archiving(cloud, "0a", catalog=stream).begin(found_empty=True)

    (kept,) = catalogs(cloud)
    assert entry(cloud, BEGIN) == {
        "sync": "0a",
        "started": int(NOW * 1000),
        "stream": "orders",
        "namespace": "é",
        "catalog": kept.removeprefix(f"{KEY}/catalog/").removesuffix(".json"),
        "mode": "append_dedup",
        "key": ["z"],
        "cursor": ["a"],
        "generation": 2,
        "minimum_generation": 0,
        "sync_id": 3,
        "found_empty": True,
        "table": "a table",
        "position": 1,
    }
    content = cloud.objects()[kept]
    assert kept == f"{KEY}/catalog/{hashlib.sha256(content).hexdigest()}.json"
    configured = json.loads(content)
    assert configured == {name: value for name, value in stream.items() if not name.endswith("_id")}
    assert [*configured["stream"]["json_schema"]["properties"]] == ["z", "a"], "columns are in the order of fields"


def test_syncs_that_differ_in_their_ids_alone_share_a_catalog(cloud: Cloud) -> None:
    for sync_id in (1, 2):
        stream = configured_stream("orders", {}, generation=sync_id, minimum=sync_id, sync_id=sync_id)
        Archiving(cloud, f"0{sync_id}", catalog=stream).begin()
    assert len(catalogs(cloud)) == 1

    Archiving(cloud, "03", catalog=configured_stream("orders", {"type": "object"})).begin()
    assert len(catalogs(cloud)) == 2


@contextmanager
def catalog_writes(cloud: Cloud) -> Iterator[list[str | None]]:
    """Lend the conditions (`If-None-Match`) with which catalogs are put, as the list grows."""
    conditions: list[str | None] = []

    def note(params: dict[str, Any], **_: object) -> None:
        if "/catalog/" in params["url_path"]:
            conditions.append(params["headers"].get("If-None-Match"))

    with during(cloud.access, "before-call.s3.PutObject", note):
        yield conditions


@pytest.mark.parametrize(("days", "writes"), [(0, ["*"]), (1, ["*", None]), (30, ["*", None])])
def test_catalog_of_an_earlier_day_is_written_again(cloud: Cloud, days: int, writes: list[str | None]) -> None:
    """S3 rounds the end of a life up to midnight, so a rule would end it a day before the lines of this sync."""
    Archiving(cloud, "0a").begin()
    (kept,) = catalogs(cloud)
    content = cloud.objects()[kept]
    modified = cloud.access.client("s3").head_object(Bucket=BUCKET, Key=kept)["LastModified"]
    midnight = modified.replace(hour=0, minute=0, second=0).timestamp()

    with catalog_writes(cloud) as conditions:
        Archiving(cloud, "0b", lambda: midnight + days * DAY).begin()

    assert conditions == writes
    assert cloud.objects()[kept] == content


def test_a_committed_batch_is_indexed_with_its_objects_and_an_empty_one_is_not(cloud: Cloud) -> None:
    sync = Archiving(cloud, "0a").begin()
    first, second = sync.committed(12, "0000-aa", "0001-bb")
    sync.committed(13)

    document = entry(cloud, f"{KEY}/index/1764000000000-0a/000012.json")

    assert document == {
        "batch": 12,
        "committed": int(NOW * 1000),
        "objects": [expected_object(cloud, first), expected_object(cloud, second)],
        "position": 1,
        "table": "a table",
    }
    assert f"{KEY}/index/1764000000000-0a/000013.json" not in cloud.objects()


def expected_object(cloud: Cloud, file: LineFile) -> dict[str, object]:
    content = cloud.objects()[file.uri.removeprefix(f"s3://{BUCKET}/")]
    return {
        "name": file.uri.removeprefix(f"s3://{BUCKET}/{KEY}/"),
        "lines": 2,
        "bytes": 18,
        "first_record": 0,
        "first_id": file.content.first_id,
        "sha256": hashlib.sha256(content).hexdigest(),
    }


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(lambda sync: sync.begin(), id="begin"),
        pytest.param(lambda sync: sync.ledger.add(sync.stream, 1, [], AT, 5), id="batch"),
        pytest.param(lambda sync: sync.end(COLUMNS), id="end"),
    ],
)
def test_entry_that_s3_refuses_is_a_failure_of_the_stream(cloud: Cloud, record: Callable[[Archiving], object]) -> None:
    sync = Archiving(cloud, "0a").begin()

    with cloud.refusing("PutObject"), pytest.raises(ConnectorError) as raised:
        record(sync)

    assert raised.value.failure.type == "config_error"
    assert raised.value.failure.message.startswith(f"Cannot write the journal of the archive {FOLDER}/")
    assert "(S3, PutObject): access denied" in raised.value.failure.message


def test_sync_without_an_archive_records_its_rows_in_the_journal_of_an_archived_table(cloud: Cloud) -> None:
    sync = Archiving(cloud, "0a", keeps_lines=False)
    sync.ledger.add(sync.stream, 1, [], AT, 5)
    sync.end(COLUMNS)
    assert cloud.objects() == {}, "a table without an archive has no journal"

    sync.begin(position=TablePosition("a table", 7))
    sync.ledger.add(sync.stream, 1, [], TablePosition("a table", 8), 5)

    assert sync.ledger.sinks(sync.stream) == ()
    assert (entry(cloud, BEGIN)["keeps_lines"], entry(cloud, BEGIN)["position"]) == (False, 7)
    batch = entry(cloud, f"{KEY}/index/1764000000000-0a/000001.json")
    expected = {"batch": 1, "committed": int(NOW * 1000), "objects": [], "position": 8, "rows": 5, "table": "a table"}
    assert batch == expected


def test_lines_of_a_batch_that_was_not_committed_are_deleted_published_or_not(cloud: Cloud) -> None:
    sync = Archiving(cloud, "0a").begin()
    before = cloud.objects()
    files = [sync.published("000001-0000-aa"), sync.written("000001-0001-bb")]

    for _ in range(2):
        sync.ledger.delete_uncommitted(files)

    assert cloud.objects() == before
    assert cloud.unfinished_uploads() == []


SCHEMA = "lake/_schema/shop/orders.json"


def test_a_sync_that_has_published_its_table_says_so_and_what_columns_it_has(cloud: Cloud) -> None:
    sync = Archiving(cloud, "0a").begin()
    sync.committed(1, "0000-aa")
    sync.committed(2)
    sync.committed(3, "0000-aa")

    for _ in range(2):
        sync.end(COLUMNS)

    expected = {"published": int(NOW * 1000), "position": 1, "table": "a table", "batches": 2}
    assert entry(cloud, BEGIN.replace("begin", "end")) == expected
    assert entry(cloud, SCHEMA) == {
        "database": "shop",
        "table": "orders",
        "stream": "orders",
        "files": "s3://lake/shop/orders",
        "columns": [
            {"name": "id", "type": "bigint", "origin": "Id"},
            {"name": "tags", "type": "array<string>", "origin": "tags"},
        ],
    }


def test_columns_are_described_without_asking_whether_they_were_before(cloud: Cloud) -> None:
    """Who may not list the folder is not told that there is no object, but that it may not be read."""
    sync = Archiving(cloud, "0a").begin()

    with cloud.refusing("GetObject"):
        sync.end(COLUMNS)

    assert len(entry(cloud, SCHEMA)["columns"]) == 2


def test_columns_that_have_changed_are_described_anew(cloud: Cloud) -> None:
    sync = Archiving(cloud, "0a").begin()
    for count in (1, 2):
        sync.end(COLUMNS[:count])

        assert len(entry(cloud, SCHEMA)["columns"]) == count


def test_of_two_syncs_that_describe_a_table_at_once_none_overwrites_what_it_has_not_read(cloud: Cloud) -> None:
    sync = Archiving(cloud, "0a").begin()
    other_client = another_client().client("s3")
    asked: list[object] = []

    def interfere(params: dict[str, Any], **_: object) -> None:
        if "/_schema/" in params["url_path"]:
            asked.append(params["headers"].get("If-None-Match") or params["headers"]["If-Match"])
            if len(asked) <= 2:
                other_client.put_object(Bucket=BUCKET, Key=SCHEMA, Body=f"{len(asked)}".encode())

    with during(cloud.access, "before-call.s3.PutObject", interfere):
        sync.end(COLUMNS)

    assert len(asked) == 3
    assert asked[0] == "*"
    assert len(entry(cloud, SCHEMA)["columns"]) == 2


def test_columns_that_cannot_be_described_are_a_warning(cloud: Cloud, caplog: pytest.LogCaptureFixture) -> None:
    sync = Archiving(cloud, "0a").begin()

    def refuse(params: dict[str, Any], **_: object) -> None:
        if "/_schema/" in params["url_path"]:
            raise RuntimeError

    with during(cloud.access, "before-call.s3.PutObject", refuse), caplog.at_level(logging.WARNING):
        sync.end(COLUMNS)

    assert [SCHEMA in message for message in caplog.messages] == [True]


def index_entry(sync: Archiving) -> tuple[str, list[LineFile]]:
    """Commit a batch of two objects; the key of its entry, and the objects."""
    files = sync.committed(1, "0000-aa", "0001-aa")
    return f"{KEY}/index/1764000000000-{sync.name}/000001.json", files


def hashes(cloud: Cloud, key: str) -> list[str]:
    return [lines.get("sha256", "") for lines in entry(cloud, key)["objects"]]


def test_two_erasures_at_once_do_not_restore_each_others_hashes(cloud: Cloud) -> None:
    key, (first, second) = index_entry(Archiving(cloud, "0a").begin())
    assert all(hashes(cloud, key))
    others = [second.uri]

    def erase_too(**_: object) -> None:
        if others:
            remove_hashes(FOLDER, [others.pop()], another_client())

    with during(cloud.access, "before-call.s3.PutObject", erase_too):
        remove_hashes(FOLDER, [first.uri], cloud.access)

    assert hashes(cloud, key) == ["", ""]


def test_a_damaged_entry_of_the_journal_does_not_stop_an_erasure(cloud: Cloud) -> None:
    key, files = index_entry(Archiving(cloud, "0a").begin())
    cloud.access.client("s3").put_object(Bucket=BUCKET, Key=key, Body=b"not json")

    remove_hashes(FOLDER, [file.uri for file in files], cloud.access)

    assert cloud.objects()[key] == b"not json"
