"""Lines archived beside their encoding, and encoded again from there: the same rows, with the same ids."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

from destination_datalake.archive import lines as archive_writing
from destination_datalake.archive import lines as reading
from destination_datalake.archive.lines import ArchivedLines, ArchiveObjectCorrupted, ArchiveObjectReplaced, ArchiveSink
from destination_datalake.archive.objects import ArchivedSync, ArchiveLocation
from destination_datalake.files.encode import encode
from destination_datalake.files.erase import Erased, EraseTask, StoredObject, erase
from destination_datalake.files.ids import digests_of, new_salt
from destination_datalake.files.plan import (
    Encoded,
    EncodeTask,
    EncodeUnit,
    LineFile,
    NotEncoded,
    UnitResult,
)
from destination_datalake.files.segments import StagedSegment, contents
from destination_datalake.files.suppression import RECORD_SUPPRESSED, SuppressionRule
from destination_datalake.protocol.messages import MessageReader, Records
from destination_datalake.schema.types import Field, Int32
from unit_tests.cloud import BUCKET, Cloud
from unit_tests.cloud import cloud as account
from unit_tests.examples import examples
from unit_tests.files.test_encode import ORDERS, PLAN, REJECTS, Segments, files, record, rows, segments
from unit_tests.records.test_search import Values

__all__ = ["segments"]

pytestmark = pytest.mark.share(14)

FOLDER = f"s3://{BUCKET}/_raw/shop.orders"
LOCATION = ArchiveLocation(FOLDER, "2026-11-25", ArchivedSync("0a", 7, "orders", "ab" * 32, "append"))


def encoded(cloud: Cloud, staged: Sequence[StagedSegment], rules: tuple[SuppressionRule, ...] = ()) -> UnitResult:
    """Encode a unit that is archived."""
    sinks = (ArchiveSink(LOCATION),)
    unit = EncodeUnit(ORDERS, "0a-000001-0000", tuple(staged), PLAN, REJECTS, filters=rules, sinks=sinks)
    [result] = encode([EncodeTask((unit,), cloud.access)])
    return result


def archived(cloud: Cloud, result: UnitResult) -> tuple[LineFile, list[bytes]]:
    """Publish the lines of a unit; return them."""
    assert isinstance(result, Encoded), result
    [file] = result.line_files
    assert isinstance(file, LineFile)
    file.pending_upload.publish(cloud.access.client("s3"))
    content = cloud.objects()[file.uri.removeprefix(f"s3://{BUCKET}/")]
    return file, gzip.decompress(content).splitlines(keepends=True)


def replayed(cloud: Cloud, file: LineFile, line_numbers: Sequence[int] | None = None) -> Encoded:
    """Encode the lines that were archived."""
    unit = EncodeUnit(ORDERS, "replay", (segment_of(cloud, file, line_numbers),), PLAN, REJECTS)
    [result] = encode([EncodeTask((unit,), cloud.access)])
    assert isinstance(result, Encoded), result
    assert result.line_files == ()
    return result


def segment_of(cloud: Cloud, file: LineFile, line_numbers: Sequence[int] | None = None) -> StagedSegment:
    head = cloud.access.client("s3").head_object(Bucket=BUCKET, Key=file.uri.removeprefix(f"s3://{BUCKET}/"))
    lines = None if line_numbers is None else BitMap(line_numbers)
    first_id = bytes.fromhex(file.content.first_id)
    location = ArchivedLines(file.uri, head["ETag"], head["ContentLength"], lines)
    counts = (file.content.bytes, file.content.first_record)
    return StagedSegment(location, *counts, records=file.content.lines, first_id=first_id)


def table(cloud: Cloud, result: Encoded) -> list[dict[str, Any]]:
    """The rows, by their ids: regular lines and others are decoded apart."""
    table_rows = [row for file in files(result) for row in rows(cloud, file)]
    return sorted(table_rows, key=lambda row: str(row["_airbyte_raw_id"]))


def with_record_count(lines: Sequence[bytes], staged: StagedSegment) -> StagedSegment:
    return replace(staged, records=len(lines))


ODD = record(3, "c").replace(b"000}}", b"000.5}}")
BAD = record("x", "b")
UNDECLARED = record(4).replace(b'"id"', b'"more": 1, "id"')
EMPTY = record(0).replace(b'{"id": 0, "Text": null}', b"{}")
SPACED = b' {"type":"RECORD",\t"record":{"stream":"orders","emitted_at":1700000000000,"data":{"id":6}},"x":1}\r\n'
REFUSED = record(7).replace(b"1700000000000", b"1e30")
LINES = [record(1, "a"), BAD, UNDECLARED, EMPTY, SPACED, ODD, REFUSED, record(2, "\ud800"), record(8, "é" * 500)]

PLAIN = [record(number, "x") for number in range(9)]

WAYS: list[Any] = [
    pytest.param(LINES, lambda segments: [segments.write(*LINES)], id="odd lines"),
    pytest.param(PLAIN, lambda segments: [segments.write(*PLAIN)], id="plain lines"),
    pytest.param(
        [*PLAIN, *LINES, *LINES],
        lambda segments: [segments.write(*PLAIN), segments.write(*LINES), segments.write(*LINES)],
        id="several segments",
    ),
]


@pytest.fixture(params=[2**24, 100], ids=["one member", "many members"])
def _members(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Members of any size, blocks of a line or two, and answers of S3 that end anywhere."""
    monkeypatch.setattr(archive_writing, "MEMBER_BYTES", request.param)
    if request.param == 100:
        monkeypatch.setattr("destination_datalake.records.decoder.BLOCK_BYTES", 300)
        monkeypatch.setattr(reading, "PIECE_BYTES", 61)


@pytest.mark.usefixtures("_members")
@pytest.mark.parametrize(("lines", "staged"), WAYS)
def test_archived_lines_are_as_received_and_yield_the_same_rows(
    cloud: Cloud, segments: Segments, lines: Sequence[bytes], staged: Callable[[Segments], list[StagedSegment]]
) -> None:
    first = encoded(cloud, [replace(segment, records=9) for segment in staged(segments)])
    file, kept = archived(cloud, first)
    assert isinstance(first, Encoded)

    assert kept == [*lines]
    replay = replayed(cloud, file)

    assert table(cloud, replay) == table(cloud, first)
    assert len({row["_airbyte_raw_id"] for row in table(cloud, replay)}) == len(lines) - lines.count(REFUSED)
    assert (replay.counts, replay.left_out) == (first.counts, 0)


@pytest.mark.usefixtures("_members")
@pytest.mark.parametrize(("lines", "staged"), WAYS)
@pytest.mark.parametrize("erased", [(0,), (1, 2, 6), (3, 5, 7), tuple(range(9))], ids=str)
def test_rows_of_lines_beside_erased_ones_have_the_ids_that_they_had(
    cloud: Cloud,
    segments: Segments,
    lines: Sequence[bytes],
    staged: Callable[[Segments], list[StagedSegment]],
    erased: Sequence[int],
) -> None:
    first = encoded(cloud, [replace(segment, records=9) for segment in staged(segments)])
    file, _ = archived(cloud, first)
    before = segment_of(cloud, file).location
    assert isinstance(before, ArchivedLines)
    gone = StoredObject(before.uri, before.etag, before.size)
    column = Field("id", "id", Int32())
    task = EraseTask(
        ((gone,),), "archive", (column,), cloud.access, write=True, ids=Values.from_values(Int32(), *erased)
    )
    [result] = erase([task])
    assert isinstance(result, Erased), result
    # The record that is refused for its time is found by its id as well.
    assert result.matches == sum(json.loads(line)["record"]["data"].get("id") in erased for line in lines)

    replay = replayed(cloud, file)

    assert isinstance(first, Encoded)
    assert table(cloud, replay) == [row for row in table(cloud, first) if row["id"] not in erased]
    assert replay.left_out == result.matches
    assert replay.counts.records == len(lines) - result.matches
    partial_replay = replayed(cloud, file, line_numbers=range(0, len(lines), 2))
    every_other = [row for row in table(cloud, replay) if int(row["_airbyte_raw_id"][-8:], 16) % 2 == 0]
    assert table(cloud, partial_replay) == every_other


def test_object_metadata_describes_its_lines(cloud: Cloud, segments: Segments) -> None:
    first_lines, second_lines = [record(1), BAD], [record(3)]
    staged = [
        replace(segments.write(*first_lines), records=2, first_record=70),
        replace(segments.write(*second_lines), records=1, first_record=72),
    ]

    result = encoded(cloud, staged)
    file, lines = archived(cloud, result)

    first_row = rows(cloud, files(result)[0])[0]
    assert file.content.first_id == first_row["_airbyte_raw_id"].replace("-", "")
    assert (file.content.lines, file.content.bytes) == (3, sum(map(len, lines)))
    assert file.content.first_record == 70
    assert file.uri == f"{FOLDER}/{file.content.name}"
    assert file.content.name.startswith("dt=2026-11-25/0a-000001-0000-")


def test_rows_are_made_of_some_lines_only_and_have_the_ids_that_they_had(cloud: Cloud, segments: Segments) -> None:
    lines = [record(n, "x") for n in range(6)]
    first = encoded(cloud, [with_record_count(lines, segments.write(*lines))])
    file, _ = archived(cloud, first)
    assert isinstance(first, Encoded)

    replay = replayed(cloud, file, line_numbers=[0, 4])

    assert table(cloud, replay) == [row for row in table(cloud, first) if row["id"] in (0, 4)]
    assert replay.left_out == 4


PEOPLE = pytest.mark.parametrize("people", [(0,), (1, 2, 7), (3,), tuple(range(9))], ids=str)


def rules_for(cloud: Cloud, people: Sequence[int]) -> tuple[SuppressionRule, ...]:
    """Rules with the salted hashes of these ids, for the column that has them and for others."""
    salt = new_salt()
    hashes = b"".join(digests_of(pa.array(people, pa.int64()), salt))
    key = f"_deletions/{salt.hex()}/hashes/int64.bin"
    cloud.access.client("s3").put_object(Bucket=BUCKET, Key=key, Body=hashes)
    return tuple(SuppressionRule(column, f"s3://{BUCKET}/{key}", salt) for column in ("ID", "other", "id.more"))


def id_of(line: bytes) -> object:
    return json.loads(line)["record"]["data"].get("id")


@PEOPLE
@pytest.mark.parametrize(("lines", "staged"), WAYS)
def test_replay_omits_erased_records(
    cloud: Cloud,
    segments: Segments,
    lines: Sequence[bytes],
    staged: Callable[[Segments], list[StagedSegment]],
    people: Sequence[int],
) -> None:
    """By the salted hashes of their ids; also refused records of theirs are no rejects again."""
    first = encoded(cloud, [replace(segment, records=9) for segment in staged(segments)])
    file, _ = archived(cloud, first)
    unit = EncodeUnit(ORDERS, "replay", (segment_of(cloud, file),), PLAN, REJECTS, filters=rules_for(cloud, people))

    [replay] = encode([EncodeTask((unit,), cloud.access)])

    assert isinstance(replay, Encoded), replay
    assert isinstance(first, Encoded)
    assert table(cloud, replay) == [row for row in table(cloud, first) if row["id"] not in people]
    of_people = sum(id_of(line) in people for line in lines)
    assert replay.counts.reasons.get((None, RECORD_SUPPRESSED), 0) == of_people
    assert replay.counts.records == len(lines)


@pytest.mark.usefixtures("_members")
@PEOPLE
@pytest.mark.share(2)
@pytest.mark.parametrize(("lines", "staged"), WAYS)
def test_of_suppressed_people_a_sync_keeps_a_count_and_nothing_else(
    cloud: Cloud,
    segments: Segments,
    lines: Sequence[bytes],
    staged: Callable[[Segments], list[StagedSegment]],
    people: Sequence[int],
) -> None:
    """No row, no reject and no archived line. What is left has the numbers of its lines, also in a replay."""
    content = [replace(segment, records=9) for segment in staged(segments)]
    everyone = encoded(cloud, content)
    assert isinstance(everyone, Encoded)

    result = encoded(cloud, content, rules_for(cloud, people))

    assert isinstance(result, Encoded), result
    other_rows = [row for row in table(cloud, everyone) if row["id"] not in people]
    assert [in_place(row) for row in table(cloud, result)] == [in_place(row) for row in other_rows]
    assert (result.counts.records, result.left_out) == (len(lines), 0)
    of_people = [line for line in lines if id_of(line) in people]
    assert result.counts.reasons.get((None, RECORD_SUPPRESSED), 0) == len(of_people)
    assert result.counts.refused == len(of_people) + [*lines].count(REFUSED) * (7 not in people)
    assert kept_rejects(cloud, result) == [line for line in kept_rejects(cloud, everyone) if line not in of_people]
    file, kept = archived(cloud, result)
    assert kept == [b"\n" if line in of_people else line for line in lines]
    assert table(cloud, replayed(cloud, file)) == table(cloud, result)


def in_place(row: dict[str, Any]) -> dict[str, Any]:
    """A row with the number of its line, as the ids of two encodings differ."""
    return {**row, "_airbyte_raw_id": row["_airbyte_raw_id"][-8:]}


def kept_rejects(cloud: Cloud, result: Encoded) -> list[bytes]:
    """The lines that the rejects of a unit have, in some order."""
    lines: list[bytes] = []
    for reject in result.rejects:
        reject.pending_upload.publish(cloud.access.client("s3"))
        content = gzip.decompress(cloud.objects()[reject.uri.removeprefix(f"s3://{BUCKET}/")])
        originals = (json.loads(line)["rawData"] for line in content.splitlines())
        lines += [base64.b64decode(raw) + b"\n" for raw in originals if raw]
    return sorted(lines)


@pytest.mark.parametrize("is_refused", [False, True])
def test_a_unit_whose_hashes_cannot_be_read_is_not_encoded(
    cloud: Cloud, segments: Segments, *, is_refused: bool
) -> None:
    lines = [record(1), record(2)]
    [rule, *_] = rules_for(cloud, [1])

    with cloud.refusing("GetObject") if is_refused else nullcontext():
        result = encoded(
            cloud, [with_record_count(lines, segments.write(*lines))], (replace(rule, uri=f"{rule.uri}.gone"),)
        )

    assert isinstance(result, NotEncoded), result
    assert "int64.bin.gone does not exist. This object contains the hashes of the IDs" in result.failure.message
    assert result.failure.type == "config_error"


def test_members_whose_lines_have_other_envelopes_are_read_too(cloud: Cloud) -> None:
    extended = [record(n).replace(b'"type"', b'"more": 1, "type"') for n in range(2, 4)]
    members = [[record(0), record(1)], extended, [SPACED, record(5)]]
    body = b"".join(gzip.compress(b"".join(member)) for member in members)
    uri = put(cloud, "mixed", body)
    unit = EncodeUnit(ORDERS, "replay", (uri,), PLAN, REJECTS)

    [result] = encode([EncodeTask((unit,), cloud.access)])

    assert isinstance(result, Encoded), result
    assert sorted(row["id"] for row in table(cloud, result)) == [0, 1, 2, 3, 5, 6]
    assert len({row["_airbyte_raw_id"] for row in table(cloud, result)}) == 6


def put(cloud: Cloud, name: str, body: bytes) -> StagedSegment:
    answer = cloud.access.client("s3").put_object(Bucket=BUCKET, Key=f"_raw/{name}", Body=body)
    location = ArchivedLines(f"s3://{BUCKET}/_raw/{name}", answer["ETag"], len(body))
    return StagedSegment(location, len(body), first_id=bytes(16))


@pytest.mark.parametrize("body", [b"", gzip.compress(b""), gzip.compress(b"") * 2], ids=["empty", "a member", "two"])
def test_an_object_without_lines_has_no_content(cloud: Cloud, body: bytes) -> None:
    assert [*contents([put(cloud, "empty", body)], cloud.access)] == []


@pytest.mark.parametrize(
    "change",
    [
        lambda s3, key: s3.delete_object(Bucket=BUCKET, Key=key),
        lambda s3, key: s3.put_object(Bucket=BUCKET, Key=key, Body=gzip.compress(b"another")),
        lambda s3, key: s3.put_object(Bucket=BUCKET, Key=key, Body=b""),
    ],
    ids=["deleted", "replaced", "emptied"],
)
def test_deleted_or_replaced_archived_object_is_not_read(cloud: Cloud, change: Callable[[Any, str], object]) -> None:
    segment = put(cloud, "gone", gzip.compress(record(1)))
    change(cloud.access.client("s3"), "_raw/gone")

    with pytest.raises(ArchiveObjectReplaced) as failed:
        [*contents([segment], cloud.access)]

    assert failed.value.failure.type == "transient_error"
    assert "_raw/gone" in failed.value.failure.message
    assert "replay again" in failed.value.failure.message


@pytest.mark.parametrize(
    "body",
    [
        b"no gzip file",
        gzip.compress(record(1))[:-1],
        gzip.compress(record(1))[:-8] + bytes(8),
        gzip.compress(record(1)) + b"more",
        gzip.compress(record(1)[:-1]),
    ],
    ids=["of another format", "cut", "of another checksum", "with more behind it", "with a part of a line"],
)
@pytest.mark.parametrize("has_isal", [True, False], ids=["isal", "zlib"])
def test_an_archived_object_that_is_damaged_is_named(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, has_isal: bool, body: bytes
) -> None:
    if not has_isal:
        monkeypatch.setitem(sys.modules, "isal", None)

    with pytest.raises(ArchiveObjectCorrupted) as failed:
        [*contents([put(cloud, "damaged", body)], cloud.access)]

    assert failed.value.failure.type == "config_error"
    assert failed.value.failure.message.startswith(f"Cannot replay s3://{BUCKET}/_raw/damaged")


def test_a_member_beyond_the_limit_is_named(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    segment = put(cloud, "large", gzip.compress(record(1) * 2) * 2)
    monkeypatch.setattr(reading, "MAX_MEMBER_BYTES", 2 * len(record(1)))
    assert len([*contents([segment], cloud.access)]) == 2

    monkeypatch.setattr(reading, "MAX_MEMBER_BYTES", 2 * len(record(1)) - 1)
    with pytest.raises(ArchiveObjectCorrupted, match="a gzip member exceeds") as failed:
        [*contents([segment], cloud.access)]

    assert failed.value.failure.message.startswith(f"Cannot replay s3://{BUCKET}/_raw/large")


def test_archived_object_that_is_not_the_one_of_the_journal_is_refused(cloud: Cloud) -> None:
    """It is a gzip file of whole lines, of another content."""
    segment = put(cloud, "swapped", gzip.compress(record(2)))
    assert isinstance(segment.location, ArchivedLines)
    expected = hashlib.sha256(gzip.compress(record(1))).hexdigest()

    with pytest.raises(ArchiveObjectCorrupted) as failed:
        [*contents([replace(segment, location=replace(segment.location, sha256=expected))], cloud.access)]

    assert "its hash differs from the journal" in failed.value.failure.message


def test_unit_fails_without_leftovers_if_it_cannot_be_archived(cloud: Cloud, segments: Segments) -> None:
    refused = cloud.access.client("s3").meta.events

    def deny(params: dict[str, Any], **_: object) -> None:
        if "/_raw/" in params["url_path"]:
            params["url_path"] = "/nobody-s-bucket/x"
            params["url"] = params["url"].replace(BUCKET, "nobody-s-bucket")

    refused.register("before-call.s3.CreateMultipartUpload", deny)
    try:
        result = encoded(cloud, [segments.write(record(1))])
    finally:
        refused.unregister("before-call.s3.CreateMultipartUpload", deny)

    assert isinstance(result, NotEncoded)
    assert f"Cannot archive records in {FOLDER}/dt=" in result.failure.message
    assert (cloud.objects(), cloud.unfinished_uploads()) == ({}, [])


# Any lines


KEYS = st.sampled_from(["id", "Text", "emitted_at", "data", 'a"b', "é"]) | st.text(max_size=5)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)
SHAPES = (
    b'{"type":"RECORD","record":{"stream":"orders","data":%b,"emitted_at":%d}}',
    b'{"type": "RECORD", "record": {"emitted_at": %d, "stream": "orders", "more": {"data": 1}, "data": %b}}',
    b' {"record":{"data":%b,"meta":{"changes":[]},"stream":"orders","emitted_at":%d },"type":"RECORD"}\t\r',
)


@st.composite
def lines_of(draw: st.DrawFn) -> bytes:
    shape = draw(st.sampled_from(SHAPES))
    data = json.dumps(draw(st.dictionaries(KEYS, VALUES, max_size=4)), ensure_ascii=draw(st.booleans()))
    time = draw(st.sampled_from([0, 1_700_000_000, 1_700_000_000_000, 1_700_000_000_001]))
    fields = (data.encode(), time) if shape.index(b"%b") < shape.index(b"%d") else (time, data.encode())
    return shape % fields + b"\n"


@settings(max_examples=examples(300))
@given(lines=st.lists(lines_of(), min_size=1, max_size=40), member=st.sampled_from([1, 500, 2**24]))
def test_any_lines_are_archived_as_received_and_become_the_same_rows_again(lines: list[bytes], member: int) -> None:
    with pytest.MonkeyPatch.context() as patched, account() as cloud, TemporaryDirectory() as folder:
        patched.setattr(archive_writing, "MEMBER_BYTES", member)

        first = encoded(cloud, received(Segments(Path(folder)), b"".join(lines)))
        file, kept = archived(cloud, first)

        assert kept == lines
        assert isinstance(first, Encoded)
        assert table(cloud, replayed(cloud, file)) == table(cloud, first)


def received(segments: Segments, text: bytes) -> list[StagedSegment]:
    """The segment of the records that were read."""
    items = [item for item in MessageReader().read(text) if isinstance(item, Records)]
    staged = segments.write(*(bytes(item.lines) for item in items))
    return [replace(staged, records=sum(item.count for item in items))]
