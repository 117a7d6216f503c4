"""The archive and the rejects of a table without the records of some ids, by the column that values came to be in."""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from destination_datalake.archive.plan import read_history
from destination_datalake.tables.table import TableName
from integration_tests.harness.messages import configured_stream
from unit_tests.archive.archive import AT, FOLDER, Archiving
from unit_tests.cloud import BUCKET, Cloud
from unit_tests.erasure.places import erased, named, outcomes, request, second_search, traces
from unit_tests.tables.hive.orders import put

pytestmark = pytest.mark.share(4)

NAME = TableName("shop", "orders")
PERSON = 424242
INTEGER: Any = {"type": "integer"}


def schema(**properties: Any) -> Any:
    return {"type": "object", "properties": properties}


def line(data: Any) -> bytes:
    record = {"stream": "orders", "data": data, "emitted_at": 1_700_000_000_000}
    return json.dumps({"type": "RECORD", "record": record}).encode() + b"\n"


def lines_of(cloud: Cloud, key: str) -> list[bytes]:
    return gzip.decompress(cloud.objects()[key]).splitlines(keepends=True)


def key(uri: str) -> str:
    return uri.removeprefix(f"s3://{BUCKET}/")


def archived(cloud: Cloud, json_schema: Any, *records: Any, name: str = "0a") -> str:
    """A sync's archive with one committed batch of records; the key of the object."""
    sync = Archiving(cloud, name, catalog=configured_stream("orders", json_schema)).begin()
    file = sync.published("000001-0000-aa", b"".join(map(line, records)))
    sync.ledger.add(sync.stream, 1, [file], AT, len(records))
    return key(file.uri)


@pytest.mark.parametrize(
    ("column", "json_schema", "sent", "other_record"),
    [
        ("user_id", schema(userId=INTEGER), {"userId": PERSON}, {"user_id": PERSON + 1, "n": 1}),
        ("user_id", schema(**{"user id": INTEGER}), {"user id": str(PERSON)}, {"user id": None}),
        ("user.id", schema(user=schema(Id=INTEGER)), {"user": {"Id": PERSON}}, {"user": {"id": 1, "Id": 2}}),
        ("user.id", schema(User=schema(id=INTEGER)), {"User": {"id": float(PERSON)}}, {"User": [1]}),
        ("id", schema(id={"type": "string"}), {"id": str(PERSON)}, {"id": f"{PERSON}0"}),
    ],
)
def test_lines_are_found_by_where_the_column_came_from_in_the_record(
    cloud: Cloud, tmp_path: Path, column: str, json_schema: Any, sent: Any, other_record: Any
) -> None:
    """The table was dropped: the archived streams say what the column is made of, and its type."""
    object_ = archived(cloud, json_schema, other_record, sent, other_record)
    before = lines_of(cloud, object_)

    done = erased(request(tmp_path, cloud.access, column, PERSON, bucket_prefix="lake"), NAME)

    assert outcomes(done) == {object_.rpartition("/")[2]: "rewritten"}
    assert lines_of(cloud, object_) == [before[0], b"\n", before[2]]


def test_a_flattened_field_is_found_inside_its_object(cloud: Cloud, tmp_path: Path) -> None:
    object_ = archived(cloud, schema(user=schema(id=INTEGER)), {"user": {"id": PERSON}}, {"user_id": 1})
    asked = request(tmp_path, cloud.access, "user_id", PERSON, bucket_prefix="lake", nested="flatten")
    erased(asked, NAME)
    assert lines_of(cloud, object_)[0] == b"\n"


def test_syncs_that_sent_the_column_under_other_keys_are_all_searched(cloud: Cloud, tmp_path: Path) -> None:
    first = archived(cloud, schema(userId=INTEGER), {"userId": PERSON})
    second = archived(cloud, schema(user_id=INTEGER), {"user_id": PERSON}, name="0b")
    erased(request(tmp_path, cloud.access, "user_id", PERSON, bucket_prefix="lake"), NAME)
    assert [lines_of(cloud, object_) for object_ in (first, second)] == [[b"\n"], [b"\n"]]


def test_journal_keeps_its_counts_and_forgets_the_hashes_of_erased_objects(cloud: Cloud, tmp_path: Path) -> None:
    archived(cloud, schema(id=INTEGER), {"id": PERSON}, {"id": 1})
    before = read_history(FOLDER, cloud.access)
    erased(request(tmp_path, cloud.access, "id", PERSON, bucket_prefix="lake"), NAME)
    after = read_history(FOLDER, cloud.access)
    assert after.lost == []
    (lines_before,), (lines_after,) = ([*history.syncs[0].lines()] for history in (before, after))
    assert lines_before.archived.sha256
    assert (lines_after.archived, lines_after.uri) == (replace(lines_before.archived, sha256=""), lines_before.uri)
    assert traces(cloud, PERSON) == []


def test_lines_that_a_killed_sync_has_not_indexed_are_searched_too(cloud: Cloud, tmp_path: Path) -> None:
    sync = Archiving(cloud, "0c", catalog=configured_stream("orders", schema(id=INTEGER))).begin()
    file = sync.published("000001-0000-bb", line({"id": PERSON}) + line({"id": 3}))
    before = cloud.access.client("s3").head_object(Bucket=BUCKET, Key=key(file.uri))["Metadata"]

    erased(request(tmp_path, cloud.access, "id", PERSON, bucket_prefix="lake"), NAME)

    assert lines_of(cloud, key(file.uri)) == [b"\n", line({"id": 3})]
    assert cloud.access.client("s3").head_object(Bucket=BUCKET, Key=key(file.uri))["Metadata"] == before


def test_metadata_that_a_replacement_left_is_deleted(cloud: Cloud, tmp_path: Path) -> None:
    archived(cloud, schema(id=INTEGER), {"id": 1})
    put(cloud, "lake/_raw/shop.orders/replay/metadata/0.avro", b"bounds")
    put(cloud, "lake/_raw/shop.orders/replay/orders.json", b"{}")
    done = erased(request(tmp_path, cloud.access, "id", PERSON, bucket_prefix="lake"), NAME)
    assert outcomes(done) == {"0.avro": "removed"}
    assert "lake/_raw/shop.orders/replay/orders.json" in cloud.objects()


def test_rejects_of_a_person_go_with_what_their_records_said(cloud: Cloud, tmp_path: Path) -> None:
    archived(cloud, schema(id=INTEGER), {"id": 1})

    def reject(sequence: str, number: int, data: Any = None) -> bytes:
        raw = None if data is None else base64.b64encode(line(data).strip()).decode()
        members = {"rawData": raw, "sequenceNumber": sequence, "subSequenceNumber": number, "column_value": '"x"'}
        return json.dumps(members).encode() + b"\n"

    other_reject = reject("u-2", 0, {"id": 8, "age": "x"})
    for reason, lines in (
        ("A", [reject("u-1", 0, {"id": PERSON, "age": "x"}), other_reject]),
        ("B", [reject("u-1", 1)]),
    ):
        body = gzip.compress(b"".join(lines))
        put(cloud, f"lake/_errors/{reason}/shop.orders/dt=2026-11-25/0a-000001-0000-aa.jsonl.gz", body)
        put(cloud, f"lake/_errors/{reason}/shop.orders__replay/dt=2026-11-25/r.jsonl.gz", body)
        put(cloud, f"lake/_errors/{reason}/shop.others/dt=2026-11-25/0a.jsonl.gz", body)

    done = erased(request(tmp_path, cloud.access, "id", PERSON, bucket_prefix="lake"), NAME)

    assert [object_.outcome for object_ in done] == ["rewritten"] * 4
    kept = [name for name in cloud.objects() if "_errors/" in name]
    assert kept == [
        "lake/_errors/A/shop.orders/dt=2026-11-25/0a-000001-0000-aa.jsonl.gz",
        "lake/_errors/A/shop.orders__replay/dt=2026-11-25/r.jsonl.gz",
        "lake/_errors/A/shop.others/dt=2026-11-25/0a.jsonl.gz",
        "lake/_errors/B/shop.orders/dt=2026-11-25/0a-000001-0000-aa.jsonl.gz",
        "lake/_errors/B/shop.orders__replay/dt=2026-11-25/r.jsonl.gz",
        "lake/_errors/B/shop.others/dt=2026-11-25/0a.jsonl.gz",
    ]
    assert [lines_of(cloud, kept[number]) for number in (0, 1, 3, 4)] == [[other_reject], [other_reject], [], []]


def test_rejects_of_a_dropped_replay_with_a_name_of_its_own_are_searched(cloud: Cloud, tmp_path: Path) -> None:
    archived(cloud, schema(id=INTEGER), {"id": 1})
    put(cloud, "lake/_raw/shop.orders/replay/copy.json", b"{}")
    raw = base64.b64encode(line({"id": PERSON, "age": "x"}).strip()).decode()
    reject = json.dumps({"rawData": raw, "sequenceNumber": "u-1", "subSequenceNumber": 0}).encode() + b"\n"
    for table in ("copy", "others"):
        put(cloud, f"lake/_errors/A/shop.{table}/dt=2026-11-25/r.jsonl.gz", gzip.compress(reject))

    erased(request(tmp_path, cloud.access, "id", PERSON, bucket_prefix="lake"), NAME)

    assert lines_of(cloud, "lake/_errors/A/shop.copy/dt=2026-11-25/r.jsonl.gz") == []
    assert lines_of(cloud, "lake/_errors/A/shop.others/dt=2026-11-25/r.jsonl.gz") == [reject]


def test_what_waits_for_spark_is_deleted_once_its_sync_is_dead(
    cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(cloud, "lake/_staging/0a/00000001.jsonl", b"{}\n")
    put(cloud, "lake/_staging/0a/scratch/keys", b"keys")
    asked = request(tmp_path, cloud.access, "id", PERSON, bucket_prefix="lake")

    (place,) = [named(asked, "Staged records", NAME)]
    assert {object_.outcome for object_ in place.erase()} == {"left"}
    assert [object_.reason.partition(".")[0] for object_ in second_search(asked, NAME)] == [
        "written by a sync that may still be running"
    ] * 2

    from datetime import timedelta

    monkeypatch.setattr("destination_datalake.erasure.targets._MAX_SYNC_AGE", timedelta(seconds=-1))
    assert {object_.outcome for object_ in place.erase()} == {"removed"}
    assert cloud.objects() == {}
