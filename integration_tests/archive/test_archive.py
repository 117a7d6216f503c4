"""The archive: the RECORD lines of every acknowledged row, byte for byte, and whose they are."""

import json
import random
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pytest
from emulated_aws.server import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY

from integration_tests.archive import archived
from integration_tests.archive.histories import FILL, KILLS
from integration_tests.archive.replays import ARCHIVE
from integration_tests.harness.faulty_aws import Fault, FaultyAws
from integration_tests.harness.lake import PREFIX, Lake
from integration_tests.harness.messages import Json, configured_stream, record, state, status
from integration_tests.harness.runs.kill_points import KillPoint
from integration_tests.harness.runs.output import ProtocolError
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.runs.warm import WarmLaunch
from integration_tests.harness.table_kinds import TABLE_KINDS, TableKind
from integration_tests.harness.warehouse import INTEGER, STRING, Warehouse, object_schema

pytestmark = pytest.mark.share(3)

SCHEMA = object_schema(id=INTEGER, name=STRING)
ORDERS = configured_stream("orders", SCHEMA)
COMPLETE = status("orders", "COMPLETE")
KEYS: dict[str, Any] = {"aws_access_key_id": ACCESS_KEY_ID, "aws_secret_access_key": SECRET_ACCESS_KEY}


@pytest.fixture
def iceberg(lake: Lake, platform: Platform) -> Warehouse:
    """A warehouse of one kind, for what all kinds share."""
    return Warehouse(lake, platform, TABLE_KINDS[0])


def order(id_: object, **more: object) -> bytes:
    return record("orders", {"id": id_, **more})


# Bytes


def without_ids(name: str, **more: Any) -> Json:
    """A stream of a platform that sends no statuses: the end of the input completes it."""
    return configured_stream(name, SCHEMA, generation=None, minimum=None, sync_id=None, **more)


DATA_LAST = b'{"type":"RECORD","record":{"stream":"orders","emitted_at":1700000000000,"data":{"name":"\xc3\xa9"}}}'
ODD = [
    DATA_LAST,
    b' {"type" : "RECORD",\t"record":{"data":{"id":1},"stream":"orders","emitted_at":1700000000000,"more":[1]},"x":1} ',
    b'{"record":{"stream":"orders","data":{"id":2},"emitted_at":1700000000000},"type":"RECORD"}\r',
    order(3).replace(b"3", b"NaN"),
    order(4, name="").replace(b'""', rb'"\ud800"'),
    order(5, name={"a": 1}).replace(b'{"a":1}', b"[" * 2000 + b"]" * 2000),
    order("no number"),
    order(6, undeclared="x"),
    order(7).replace(b'"id":7', b'"id":7,"id":8'),
    record("orders", {}),
    order(8, name="x" * 2_000_000),
    record("orders", {"id": 9}, emitted_at=1e30),
]


def test_lines_are_archived_byte_for_byte_however_odd_they_are(warehouse: Warehouse) -> None:
    """But for a byte order mark, which is no part of its line, and the newline that a last line lacks."""
    shop = warehouse.lake.name("shop")
    user, last = record("users", {"id": 1}, namespace=shop), order(10)
    sent = [b"\xef\xbb\xbf" + order(0), b"", b"  \r", *ODD, user, state("orders", 1), ODD[0], user, last]

    with warehouse.start([without_ids("orders"), without_ids("users", namespace=shop)], **ARCHIVE) as running:
        assert running.process.stdin is not None
        running.process.stdin.write(b"\n".join(sent))
        run = running.close()

    assert run.exit_code == 0, run.report()
    assert_archived(warehouse.lake, "orders", [order(0), *ODD, ODD[0], last])
    assert_archived(warehouse.lake, "users", [user, user], shop)
    assert warehouse.lake.unfinished_uploads() == []


@pytest.mark.share(1)
@pytest.mark.parametrize("shared_disk", [True, False], ids=["here", "executors elsewhere"])
def test_lines_of_many_chunks_and_batches_are_archived_as_they_were(
    lake: Lake, launch: WarmLaunch, tmp_path: Path, table_kind: TableKind, shared_disk: bool
) -> None:
    """Chunks of many lines, among them some odd ones; in batches and, elsewhere, staged."""
    launch = launch if shared_disk else launch.without_shared_disk()
    warehouse = Warehouse(lake, Platform(tmp_path, launch), table_kind)
    orders = [
        line
        for number in range(6000)
        for line in ([order(number, name="x" * (number % 400))] + ([ODD[number % 3]] if number % 40 == 0 else []))
    ]
    users = [record("users", {"id": number}, emitted_at=10**12 + number) for number in range(2000)]
    orders[3000:3000] = [order(0, name=FILL), order(1, name=FILL)]
    users_and_orders = [*orders[:3000], *users[:1000], *orders[3000:], *users[1000:]]
    streams = [without_ids("orders"), without_ids("users")]

    warehouse.sync(streams, [*users_and_orders, state("orders", 1)], batch_size_mb=1, **ARCHIVE)

    assert_archived(lake, "orders", orders)
    assert_archived(lake, "users", users)
    assert len(archived.objects(lake, "orders")) > 1
    assert (lake.unfinished_uploads(), lake.objects(f"{PREFIX}/_staging/")) == ([], {})


def assert_archived(lake: Lake, table: str, sent: Sequence[bytes], database: str | None = None) -> None:
    """Each object has the lines that it says it has, in their order; together they have each line once."""
    numbers: list[int] = []
    for key, lines in archived.objects(lake, table, database).items():
        metadata = lake.s3.head_object(Bucket=lake.bucket, Key=key)["Metadata"]
        first = int(metadata["first-record"])
        assert lines == [line + b"\n" for line in sent[first : first + int(metadata["lines"])]]
        assert int(metadata["bytes"]) == sum(map(len, lines))
        numbers += range(first, first + len(lines))
    assert sorted(numbers) == [*range(len(sent))]


# What is said of them


def test_objects_say_whose_they_are_and_the_index_has_those_of_each_committed_batch(warehouse: Warehouse) -> None:
    lake = warehouse.lake
    for sync_id in (1, 2):
        stream = configured_stream("orders", SCHEMA, generation=4, sync_id=sync_id)
        sent = [order(10 * sync_id + number, name=FILL) for number in range(4)]
        warehouse.sync([stream], [*sent, state("orders", 1), COMPLETE], batch_size_mb=1, **ARCHIVE)

    index = archived.index(lake, "orders")
    begins = [entry for key, entry in index.items() if key.endswith("/begin.json")]
    assert [(begin["sync_id"], begin["generation"], begin.get("found_empty", False)) for begin in begins] == [
        (1, 4, True),
        (2, 4, False),
    ]
    (catalog,) = lake.objects(f"{archived.folder(lake, 'orders')}catalog/")
    assert {f"{begin['catalog']}.json" for begin in begins} == {catalog.rpartition("/")[2]}
    of_raw_ids = {row["id"]: row["_airbyte_raw_id"].replace("-", "") for row in warehouse.whole_rows("orders")}
    remaining_objects = archived.objects(lake, "orders")
    for begin in begins:
        own = f"{archived.folder(lake, 'orders')}index/{begin['started']:013d}-{begin['sync']}"
        batches = [entry for key, entry in index.items() if key.startswith(own) and "objects" in entry]
        committed = [batch["committed"] for batch in batches]
        assert len(batches) > 1
        assert begin["started"] <= min(committed) <= max(committed) <= index[f"{own}/end.json"]["published"]
        for batch in batches:
            for archived_object in batch["objects"]:
                key = f"{archived.folder(lake, 'orders')}{archived_object['name']}"
                lines = remaining_objects.pop(key)
                assert (archived_object["lines"], archived_object["bytes"]) == (len(lines), sum(map(len, lines)))
                assert archived_object["first_id"] == of_raw_ids[json.loads(lines[0])["record"]["data"]["id"]]
                properties = {name.replace("_", "-"): str(value) for name, value in (begin | archived_object).items()}
                of_the_entry = ("name", "found-empty", "table", "position", "sha256")
                metadata = lake.s3.head_object(Bucket=lake.bucket, Key=key)["Metadata"]
                assert metadata == {name: value for name, value in properties.items() if name not in of_the_entry}
    assert remaining_objects == {}


@pytest.mark.share(1)
@pytest.mark.parametrize("name", ["é" * 1000, 'an "order" \n京都 '], ids=["long", "odd"])
def test_streams_are_archived_whatever_they_are_called(iceberg: Warehouse, name: str) -> None:
    sent = record(name, {"id": 1})

    iceberg.sync([configured_stream(name, SCHEMA)], [sent, status(name, "COMPLETE")], **ARCHIVE)

    ((database, table),) = iceberg.lake.tables()
    assert archived.lines(iceberg.lake, table, database) == [sent + b"\n"]
    assert [entry["stream"] for entry in archived.index(iceberg.lake, table).values() if "stream" in entry] == [name]


def test_without_the_option_nothing_is_archived(iceberg: Warehouse) -> None:
    iceberg.sync([ORDERS], [order(1), COMPLETE])

    assert (iceberg.lake.objects(f"{PREFIX}/_raw/"), iceberg.lake.objects(f"{PREFIX}/_schema/")) == ({}, {})


@pytest.mark.slow
def test_the_archive_is_encrypted_as_data_files_are(iceberg: Warehouse) -> None:
    kms = boto3.client("kms", REGION, endpoint_url=iceberg.lake.endpoint_url, **KEYS)
    key = kms.create_key()["KeyMetadata"]["Arn"]
    encryption = {"encryption_type": "SSE-KMS", "kms_key_arn": key}

    iceberg.sync([ORDERS], [order(1), order(2, name="x" * 3_000_000), COMPLETE], encryption=encryption, **ARCHIVE)

    keys = iceberg.lake.objects(f"{PREFIX}/_raw/")
    heads = [iceberg.lake.s3.head_object(Bucket=iceberg.lake.bucket, Key=object_key) for object_key in keys]
    assert len(keys) >= 5, "lines, catalog and index"
    assert {(head["ServerSideEncryption"], head["SSEKMSKeyId"]) for head in heads} == {("aws:kms", key)}


# What cannot be archived


def denied(*parts: str) -> Fault:
    """S3 denies writes and deletes in the archive, of objects whose paths have these parts (AccessDenied)."""
    body = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
    return Fault(
        lambda request: (
            request.method in ("PUT", "POST", "DELETE") and all(part in request.path for part in ("/_raw/", *parts))
        ),
        403,
        body,
        1_000_000,
    )


@pytest.mark.share(1)
@pytest.mark.parametrize("parts", [(), ("/dt",)], ids=["everything", "the lines"])
@pytest.mark.parametrize("size", [1, 3_000_000], ids=["small", "large"])
def test_no_state_passes_a_record_that_is_not_archived(warehouse: Warehouse, parts: Sequence[str], size: int) -> None:
    """Where the archive may not be written, the stream fails, and nothing of it is committed or left behind."""
    with FaultyAws(warehouse.lake.endpoint_url, denied(*parts)) as aws:
        lines = [order(1, name=random_text(size)), state("orders", 1), COMPLETE]
        run = warehouse.attempt([ORDERS], lines, endpoint_url=aws.endpoint_url, **ARCHIVE)

    assert aws.refused > 0
    assert run.exit_code == 1
    (error,) = run.errors
    assert error["failure_type"] == "config_error"
    assert "archive" in error["message"]
    assert run.states == []
    assert warehouse.whole_rows("orders") == []
    assert (archived.objects(warehouse.lake, "orders"), warehouse.lake.unfinished_uploads()) == ({}, [])


def random_text(size: int) -> str:
    """A text that cannot be compressed to less than half."""
    return random.Random(size).randbytes(size).hex()[:size]


def test_no_state_passes_a_batch_that_is_not_in_the_journal(warehouse: Warehouse) -> None:
    with FaultyAws(warehouse.lake.endpoint_url, denied("/index/", "/0")) as aws:
        lines = [order(1), state("orders", 1), COMPLETE]
        run = warehouse.attempt([ORDERS], lines, endpoint_url=aws.endpoint_url, **ARCHIVE)

    assert aws.refused == 1
    assert (run.exit_code, run.states) == (1, [])
    (error,) = run.errors
    assert error["failure_type"] == "config_error"
    assert "Cannot write the journal of the archive" in error["message"]


@pytest.mark.slow
def test_publication_that_is_not_in_the_journal_is_a_failure(warehouse: Warehouse) -> None:
    with FaultyAws(warehouse.lake.endpoint_url, denied("/index/", "/end")) as aws:
        lines = [order(1), state("orders", 1), COMPLETE]
        run = warehouse.attempt([ORDERS], lines, endpoint_url=aws.endpoint_url, **ARCHIVE)

    assert aws.refused == 1
    assert (run.exit_code, len(run.states)) == (1, 1)
    assert "Cannot write the journal of the archive" in run.errors[0]["message"]


# What was not committed


def test_a_batch_that_is_encoded_again_is_archived_once(warehouse: Warehouse) -> None:
    """As a Hive table of Parquet has it when a column becomes wider."""
    warehouse.sync([ORDERS], [order(1), COMPLETE], **ARCHIVE)

    warehouse.sync([ORDERS], [order(2**31), order(2), COMPLETE], **ARCHIVE)

    assert archived.lines(warehouse.lake, "orders") == archived.as_archived([order(1), order(2**31), order(2)])
    assert names(warehouse.lake) == indexed(warehouse.lake)
    assert warehouse.lake.unfinished_uploads() == []


def names(lake: Lake) -> set[str]:
    return {key.removeprefix(archived.folder(lake, "orders")) for key in archived.objects(lake, "orders")}


def indexed(lake: Lake) -> set[str]:
    entries = archived.index(lake, "orders").values()
    return {archived_object["name"] for entry in entries for archived_object in entry.get("objects", ())}


def test_nothing_is_archived_of_a_batch_that_fails(warehouse: Warehouse) -> None:
    lines = [order("x"), order("y"), order(1), state("orders", 1), COMPLETE]

    run = warehouse.attempt([ORDERS], lines, rejects={"max_count": 1}, **ARCHIVE)

    assert (run.exit_code, run.states) == (1, [])
    assert warehouse.whole_rows("orders") == []
    assert (archived.objects(warehouse.lake, "orders"), warehouse.lake.unfinished_uploads()) == ({}, [])


# Overlapping and killed syncs


def ids(lines: Sequence[bytes]) -> Counter[int]:
    return Counter(json.loads(line)["record"]["data"]["id"] for line in lines)


def assert_every_row_is_archived(warehouse: Warehouse) -> None:
    assert Counter(warehouse.ids("orders")) <= ids(archived.lines(warehouse.lake, "orders"))


@pytest.mark.slow
def test_overlapping_syncs_archive_their_own_lines(warehouse: Warehouse) -> None:
    """Of a Hive table the newer one goes on alone, and what the older one has acknowledged stays."""
    first_lines, second_lines = [order(10 + n) for n in range(4)], [order(20 + n) for n in range(3)]
    options = {"flush_interval_seconds": 1, **ARCHIVE}
    runs = []
    with warehouse.start([ORDERS], **options) as first:
        # It has the table before the other one begins, which is the newer one then.
        first.send([first_lines[0], state("orders", 1)])
        first.wait_for_states(1)
        with warehouse.start([ORDERS], **options) as second:
            for number in range(3):
                for running, sent in ((first, first_lines[: number + 2]), (second, second_lines[: number + 1])):
                    running.send([sent[-1], state("orders", len(sent))])
                    with suppress(ProtocolError):
                        running.wait_for_states(len(sent))
            for running in (first, second):
                running.send([COMPLETE])
                runs.append(running.close())

    released = [len(run.states) for run in runs]
    acknowledged = [*first_lines[: released[0]], *second_lines[: released[1]]]
    assert released[1] == 3
    assert ids([line + b"\n" for line in acknowledged]) <= ids(archived.lines(warehouse.lake, "orders"))
    assert_every_row_is_archived(warehouse)
    begun = [entry["sync"] for entry in archived.index(warehouse.lake, "orders").values() if "sync" in entry]
    assert len({*begun}) == 2
    assert indexed(warehouse.lake) <= names(warehouse.lake), "that of a commit that failed may stay"


MOMENTS = [
    KillPoint(moment, function, call)
    for function in KILLS
    for moment in ("before", "after")
    for call in ((1,) if function.endswith(("Ledger.begin", "Ledger.end", "Landing.publish")) else (1, 2))
]
"""What is called once in a sync, and what is called for each batch."""


@pytest.mark.share(1)
@pytest.mark.parametrize("point", MOMENTS, ids=str)
def test_every_acknowledged_record_is_archived_at_any_kill(
    warehouse: Warehouse, launch: WarmLaunch, tmp_path: Path, point: KillPoint
) -> None:
    dying = replace(warehouse, platform=Platform(tmp_path, launch.killed_at(point)))
    batches = [[order(10 * number + offset) for offset in range(2)] for number in range(3)]

    with dying.start([ORDERS], flush_interval_seconds=1, **ARCHIVE) as running, suppress(ProtocolError):
        for number, batch in enumerate(batches):
            running.send([*batch, state("orders", number)])
            running.wait_for_states(number + 1)
        running.send([COMPLETE])
    killed = running.perish()

    assert killed.exit_code == -9, f"the point was not reached\n{killed.report()}"
    acknowledged = [line + b"\n" for batch in batches[: len(killed.states)] for line in batch]
    assert {*acknowledged} <= {*archived.lines(warehouse.lake, "orders")}
    if warehouse.exists("orders"):
        assert_every_row_is_archived(warehouse)
    unacknowledged = [line for batch in batches[len(killed.states) :] for line in batch]
    warehouse.sync([ORDERS], [*unacknowledged, COMPLETE], **ARCHIVE)
    assert {*archived.lines(warehouse.lake, "orders")} == {line + b"\n" for batch in batches for line in batch}
    assert_every_row_is_archived(warehouse)
