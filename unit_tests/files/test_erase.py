"""Objects without some of their rows: what is left is as it was, and nothing else takes an object's place."""

from __future__ import annotations

import base64
import gzip
import io
import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from destination_datalake.aws import objects as uploads
from destination_datalake.aws.access import AwsAccess
from destination_datalake.files import erase as erasing
from destination_datalake.files.erase import Content, Erased, EraseResult, EraseTask, NotErased, StoredObject, erase
from destination_datalake.files.ids import Ids
from destination_datalake.schema.types import ColumnType, Field, Int64, String
from unit_tests.cloud import BUCKET, Cloud, another_client, at_the_next, before
from unit_tests.records.test_search import Values, line

USER = Field("user_id", "user_id", Int64())
SEVEN = Values.from_values(Int64(), 7)


def put(cloud: Cloud, key: str, body: bytes, **metadata: str) -> StoredObject:
    cloud.access.client("s3").put_object(Bucket=BUCKET, Key=key, Body=body, Metadata=metadata)
    return stored(cloud, key)


def stored(cloud: Cloud, key: str) -> StoredObject:
    head = cloud.access.client("s3").head_object(Bucket=BUCKET, Key=key)
    return StoredObject(f"s3://{BUCKET}/{key}", head["ETag"], head["ContentLength"])


def run(
    cloud: Cloud,
    content: Content,
    *groups: Sequence[StoredObject],
    column: Field = USER,
    chosen: Any = SEVEN,
    write: bool = True,
    access: AwsAccess | None = None,
) -> list[EraseResult]:
    task = EraseTask(tuple(map(tuple, groups)), content, (column,), access or cloud.access, write, chosen)
    return [*erase([task])]


def user_rows(count: int) -> bytes:
    return b"".join(b'{"user_id":%d}\n' % number for number in range(count))


LARGE = b'{"x":"%b"}\n' % (b"x" * uploads.PART_BYTES)
"""A row that makes an upload consist of several parts."""


def counts(results: Sequence[EraseResult]) -> list[int]:
    assert all(isinstance(result, Erased) for result in results), results
    return [result.matches for result in results if isinstance(result, Erased)]


def losing_response(call: str, act: Callable[[], object] = lambda: None) -> AwsAccess:
    """Access through clients whose next call of this name S3 executes, but whose response is lost."""
    access = another_client()
    at_the_next(access, call, act, response_lost=True)
    return access


# --- Lines of the archive -------------------------------------------------------------------------------------------

LINES = [line(f'{{"user_id":{number}, "é":"{number}" }}') + b"\n" for number in (7, 1, "7.0", 2, '"7"')]


def test_a_line_of_the_archive_leaves_an_empty_line_behind(cloud: Cloud) -> None:
    members = gzip.compress(b"".join(LINES[:2])) + gzip.compress(b"".join(LINES[2:]))
    archived = put(cloud, "_raw/a.jsonl.gz", members, lines="5", stream="users")

    assert run(cloud, "archive", [archived]) == [Erased(archived, 3, was_written=True)]

    remaining = gzip.decompress(cloud.objects()["_raw/a.jsonl.gz"])
    assert remaining == b"\n" + LINES[1] + b"\n" + LINES[3] + b"\n"
    head = cloud.access.client("s3").head_object(Bucket=BUCKET, Key="_raw/a.jsonl.gz")
    assert head["Metadata"] == {"lines": "5", "stream": "users"}


def test_erased_lines_are_not_found_again_and_other_ids_still_are(cloud: Cloud) -> None:
    put(cloud, "a", gzip.compress(b"".join(LINES)))
    run(cloud, "archive", [stored(cloud, "a")])
    once = cloud.objects()

    rewritten = stored(cloud, "a")
    assert run(cloud, "archive", [rewritten]) == [Erased(rewritten, 0)]
    assert cloud.objects() == once
    assert counts(run(cloud, "archive", [rewritten], chosen=Values.from_values(Int64(), 2))) == [1]
    assert gzip.decompress(cloud.objects()["a"]) == b"\n" + LINES[1] + b"\n\n\n"


def test_search_without_write_writes_nothing(cloud: Cloud) -> None:
    archived = put(cloud, "a", gzip.compress(b"".join(LINES)))
    before = cloud.objects()
    assert run(cloud, "archive", [archived], write=False) == [Erased(archived, 3)]
    assert cloud.objects() == before


def test_long_objects_are_written_piece_by_piece(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (erasing, uploads):
        monkeypatch.setattr(module, "PIECE_BYTES", 300)
    monkeypatch.setattr(erasing, "MEMBER_BYTES", 2000)
    lines = [line(f'{{"user_id":{number % 10}}}') + b"\n" for number in range(500)]
    archived = put(cloud, "a", gzip.compress(b"".join(lines)))

    assert counts(run(cloud, "archive", [archived])) == [50]

    expected = b"".join(text if number % 10 != 7 else b"\n" for number, text in enumerate(lines))
    assert b"".join(uploads.gunzipped([cloud.objects()["a"]])) == expected
    members = [*uploads.gunzipped([cloud.objects()["a"]])]
    assert len(members) > 1
    assert all(member.endswith(b"\n") for member in members)


def test_an_object_that_was_replaced_meanwhile_is_left_alone(cloud: Cloud) -> None:
    archived = put(cloud, "a", gzip.compress(b"".join(LINES)))
    replacement = gzip.compress(b"other\n")
    put(cloud, "a", replacement)
    assert run(cloud, "archive", [archived]) == [Erased(archived, 0, is_gone=True)]
    assert cloud.objects()["a"] == replacement


@pytest.mark.parametrize("deleted", [True, False])
def test_an_object_that_is_replaced_or_deleted_while_it_is_read_is_left_alone(cloud: Cloud, *, deleted: bool) -> None:
    archived = put(cloud, "a", gzip.compress(b"".join(LINES)))
    second_client = another_client()

    def interfere(time: int) -> None:
        if time > 1:
            return
        if deleted:
            second_client.client("s3").delete_object(Bucket=BUCKET, Key="a")
        else:
            second_client.client("s3").put_object(Bucket=BUCKET, Key="a", Body=b"other")

    executor = another_client()
    before(executor, "s3", "PutObject", interfere)
    [result] = erase([EraseTask(((archived,),), "archive", (USER,), executor, write=True, ids=SEVEN)])

    assert result == Erased(archived, 0, is_gone=True)
    assert cloud.objects() == ({} if deleted else {"a": b"other"})


def test_deleted_object_is_distinguished_from_a_denied_one(cloud: Cloud) -> None:
    """S3 answers 403 for both, to an identity that may list the folders of the connector alone."""
    gone, kept = StoredObject(f"s3://{BUCKET}/gone", '"etag"', 10), put(cloud, "a", gzip.compress(b"".join(LINES)))

    with cloud.refusing("GetObject"):
        first, second = run(cloud, "archive", [gone], [kept])

    assert first == Erased(gone, 0, is_gone=True)
    assert isinstance(second, NotErased)


@pytest.mark.parametrize("body", [b"\x1f\x8bno gzip", gzip.compress(b"".join(LINES))[:-9]], ids=["none", "cut"])
def test_what_cannot_be_read_fails_by_name_and_stops_no_other(cloud: Cloud, body: bytes) -> None:
    damaged, intact = put(cloud, "a", body), put(cloud, "b", gzip.compress(b"".join(LINES)))
    failed, done = run(cloud, "archive", [damaged], [intact])
    assert isinstance(failed, NotErased)
    assert failed.object == damaged
    assert f"whether s3://{BUCKET}/a contains rows" in failed.failure.message
    assert isinstance(done, Erased)
    assert (done.matches, cloud.objects()["a"], cloud.unfinished_uploads()) == (3, body, [])


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
@pytest.mark.parametrize("ending", [b"", b"\n"])
def test_a_line_beyond_the_limit_fails_by_name(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, compress: Any, ending: bytes
) -> None:
    for module in (erasing, uploads):
        monkeypatch.setattr(module, "PIECE_BYTES", 300)
    monkeypatch.setattr(uploads, "_MAX_INFLATED", 300)
    monkeypatch.setattr(uploads, "MAX_MEMBER_BYTES", 1000)
    many = put(cloud, "many", compress(LINES[0] * 100))
    long = put(cloud, "long", compress(LINES[0] + b'"' + b"x" * 2000 + ending))

    done, failed = run(cloud, "archive", [many], [long])

    assert counts([done]) == [100]
    assert isinstance(failed, NotErased)
    assert (
        f"s3://{BUCKET}/long contains rows to erase: the file has a line of more than 1,000" in failed.failure.message
    )


def test_a_former_version_is_searched_and_not_written(cloud: Cloud) -> None:
    s3 = cloud.access.client("s3")
    s3.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"})
    put(cloud, "a", gzip.compress(b"".join(LINES)))
    put(cloud, "a", gzip.compress(b""))
    [_, previous] = s3.list_object_versions(Bucket=BUCKET)["Versions"]
    version = StoredObject(f"s3://{BUCKET}/a", previous["ETag"], previous["Size"], previous["VersionId"])

    assert run(cloud, "archive", [version]) == [Erased(version, 3)]
    assert len(s3.list_object_versions(Bucket=BUCKET)["Versions"]) == 2


# --- Rejects --------------------------------------------------------------------------------------------------------


def reject(sequence: str, number: int, raw: bytes | None = None, **fields: object) -> bytes:
    encoded = None if raw is None else base64.b64encode(raw).decode()
    members = {"rawData": encoded, "sequenceNumber": sequence, "subSequenceNumber": number, **fields}
    return json.dumps(members).encode() + b"\n"


ONE_REASON = [
    reject("u-1", 0, line('{"user_id":7,"age":"x","born":"y"}'), column_name="age", column_value='"x"'),
    reject("u-2", 1, column_name="age", column_value='"x"'),
    reject("u-3", 0, line('{"user_id":9,"age":"z"}'), column_name="age", column_value='"z"'),
]
OTHER_REASON = [
    reject("u-1", 1, column_name="born", column_value='"y"'),
    reject("u-2", 0, line('{"user_id":"7","born":"q","age":"x"}'), column_name="born", column_value='"q"'),
    reject("u-4", 0, line('{"user_id":8,"note":"7"}', "1e30")),
    reject("u-5", 0, line('{"user_id":7}', "1e30")),
]


def both_reasons(cloud: Cloud) -> list[StoredObject]:
    return [
        put(cloud, "_errors/ONE/a.gz", gzip.compress(b"".join(ONE_REASON))),
        put(cloud, "_errors/OTHER/a.gz", gzip.compress(b"".join(OTHER_REASON))),
    ]


def left_of_rejects(cloud: Cloud) -> list[list[bytes]]:
    return [gzip.decompress(body).splitlines(keepends=True) for _, body in sorted(cloud.objects().items())]


def test_all_rejects_of_a_record_go_whichever_object_they_are_in(cloud: Cloud) -> None:
    results = run(cloud, "rejects", both_reasons(cloud))
    assert counts(results) == [2, 3]
    assert left_of_rejects(cloud) == [ONE_REASON[2:], [OTHER_REASON[2]]]


def test_an_object_without_other_rejects_is_empty(cloud: Cloud) -> None:
    """A partition of the table of rejects has an object, or some engines would not read the others."""
    put(cloud, "a", gzip.compress(ONE_REASON[0]))
    put(cloud, "b", gzip.compress(OTHER_REASON[0]))
    assert counts(run(cloud, "rejects", [stored(cloud, "a"), stored(cloud, "b")])) == [1, 1]
    assert left_of_rejects(cloud) == [[], []]


@pytest.mark.parametrize("writes", range(1, 5))
def test_interrupted_erasure_of_rejects_can_be_repeated(cloud: Cloud, writes: int) -> None:
    """Of the four writes of two objects, any number is done before the job dies."""
    group = both_reasons(cloud)
    dying = another_client()

    def die(time: int) -> None:
        if time == writes:
            raise KeyboardInterrupt

    before(dying, "s3", "PutObject", die)
    with pytest.raises(KeyboardInterrupt):
        [*erase([EraseTask((tuple(group),), "rejects", (USER,), dying, write=True, ids=SEVEN)])]

    keys = [object_.uri.removeprefix(f"s3://{BUCKET}/") for object_ in group]
    run(cloud, "rejects", [stored(cloud, key) for key in keys])

    assert left_of_rejects(cloud) == [ONE_REASON[2:], [OTHER_REASON[2]]]


def test_a_value_of_the_column_is_found_without_its_record(cloud: Cloud) -> None:
    lines = [
        reject("u-1", 1, column_name="user.id", column_value='"7"', change="TRUNCATED"),
        reject("u-2", 1, column_name="user", column_value='"7"'),
    ]
    put(cloud, "a", gzip.compress(b"".join(lines)))
    column = Field("user_id", "id", Int64(), ("user",))
    assert counts(run(cloud, "rejects", [stored(cloud, "a")], column=column)) == [1]
    assert gzip.decompress(cloud.objects()["a"]) == lines[1]


# --- Rows -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compress", [gzip.compress, bytes], ids=["gzip", "plain"])
@pytest.mark.parametrize("ending", [b"\n", b""], ids=["ended", "not-ended"])
@pytest.mark.parametrize("last", [7, 8])
def test_rows_of_json_lines_are_removed_with_their_lines(cloud: Cloud, compress: Any, ending: bytes, last: int) -> None:
    kept_lines = [b'{"a":7,"user_id":1}', b'{"USER":7}', b"", b'{"user_id":null}']
    lines = [*kept_lines[:2], b'{"user_id": 7.0 }', *kept_lines[2:], b'{"user_id":%d}' % last]
    put(cloud, "a", compress(b"\n".join(lines) + ending))

    results = run(cloud, "rows", [stored(cloud, "a")])

    assert counts(results) == [2 if last == 7 else 1]
    body = cloud.objects()["a"]
    remaining = gzip.decompress(body) if compress is gzip.compress else body
    assert remaining == b"\n".join([*kept_lines, *([lines[-1]] if last == 8 else [])]) + (
        b"\n" if last == 7 else ending
    )


def test_keys_of_rows_are_compared_without_case_as_readers_do(cloud: Cloud) -> None:
    lines = [b'{"User_ID":7}\n', b'{"user_id":1,"USER_ID":null}\n', b'{"USER_ID":"7"}\n', b'{"user_id":7}\n']
    put(cloud, "a", b"".join(lines))
    assert counts(run(cloud, "rows", [stored(cloud, "a")])) == [3]
    assert cloud.objects()["a"] == lines[1]


def test_lines_of_white_space_are_no_rows_and_stay(cloud: Cloud) -> None:
    lines = [
        b" " * 30 + b"\n",
        b'  {"user_id":1}\n',
        b"\t\r\n",
        b'{"user_id":7}\r\n',
        b"\r\n",
        b'\t{"user_id":2}\n',
        b"  ",
    ]
    put(cloud, "a", b"".join(lines))
    assert counts(run(cloud, "rows", [stored(cloud, "a")])) == [1]
    assert cloud.objects()["a"] == b"".join(lines[:3] + lines[4:])


@pytest.mark.parametrize("size", [0, 20])
def test_an_object_without_rows_has_none(cloud: Cloud, size: int) -> None:
    body = b"\n" * size
    empty = put(cloud, "a", body)
    assert run(cloud, "rows", [empty]) == [Erased(empty, 0)]


def parquet(table: pa.Table, **options: Any) -> bytes:
    content = io.BytesIO()
    pq.write_table(table, content, **options)
    return content.getvalue()


TABLE = pa.table(
    {
        "User_Id": pa.array([1, 7, None, 7, 2**31 - 1], pa.int32()),
        "name": pa.array(["a", "b", "c", "d", "e"]).dictionary_encode(),
        "tags": pa.array([["x"], [], None, ["y", None], ["z"]], pa.list_(pa.string())),
    }
).replace_schema_metadata({"org": "kept"})


def test_rows_of_a_parquet_file_are_removed_and_the_rest_of_it_stays(cloud: Cloud) -> None:
    put(cloud, "a", parquet(TABLE, row_group_size=2, compression="zstd", use_dictionary=["name"]))

    assert counts(run(cloud, "rows", [stored(cloud, "a")])) == [2]

    file = pq.ParquetFile(cloud.arrow("a"))
    assert file.read().equals(TABLE.take([0, 2, 4]), check_metadata=False)
    assert file.schema_arrow.metadata[b"org"] == b"kept"
    assert [file.metadata.row_group(index).num_rows for index in range(file.num_row_groups)] == [1, 1, 1]
    first = file.metadata.row_group(0)
    statistics = first.column(0).statistics
    assert statistics is not None
    assert (first.column(0).compression, statistics.max) == ("ZSTD", 1)


@pytest.mark.parametrize(
    "body", [parquet(TABLE.take([1, 3])), b'{"user_id":7}\n\n{"user_id":7}'], ids=["parquet", "json lines"]
)
def test_a_file_that_has_no_other_rows_is_deleted(cloud: Cloud, body: bytes) -> None:
    whole = put(cloud, "a", body)
    assert run(cloud, "rows", [whole]) == [Erased(whole, 2, was_written=True, was_removed=True)]
    assert (cloud.objects(), cloud.unfinished_uploads()) == ({}, [])


def test_an_object_of_the_archive_is_never_deleted(cloud: Cloud) -> None:
    """The index names it, and counts its lines."""
    archived = put(cloud, "a", gzip.compress(LINES[0] + LINES[2]))
    assert run(cloud, "archive", [archived]) == [Erased(archived, 2, was_written=True)]
    assert gzip.decompress(cloud.objects()["a"]) == b"\n\n"


def test_a_file_that_was_replaced_while_it_was_read_is_not_deleted(cloud: Cloud) -> None:
    whole = put(cloud, "a", b'{"user_id":7}')
    executor = another_client()
    second_client = another_client()
    before(
        executor,
        "s3",
        "DeleteObject",
        lambda _: second_client.client("s3").put_object(Bucket=BUCKET, Key="a", Body=b"x"),
    )
    [result] = erase([EraseTask(((whole,),), "rows", (USER,), executor, write=True, ids=SEVEN)])
    assert (result, cloud.objects()) == (Erased(whole, 0, is_gone=True), {"a": b"x"})


@pytest.mark.parametrize("body", [user_rows(9), user_rows(9) + LARGE], ids=["small", "large"])
def test_a_rewritten_object_keeps_its_headers_and_its_storage_class(cloud: Cloud, body: bytes) -> None:
    s3: Any = cloud.access.client("s3")
    attributes = {
        "CacheControl": "max-age=60",
        "ContentDisposition": 'attachment; filename="a"',
        "ContentEncoding": "identity",
        "ContentLanguage": "de",
        "ContentType": "application/x-ndjson",
        "Expires": datetime(2030, 1, 2, tzinfo=UTC),
        "Metadata": {"owner": "them"},
        "StorageClass": "STANDARD_IA",
        "WebsiteRedirectLocation": "/elsewhere",
    }
    s3.put_object(Bucket=BUCKET, Key="a", Body=body, **attributes)

    assert counts(run(cloud, "rows", [stored(cloud, "a")])) == [1]

    head = s3.head_object(Bucket=BUCKET, Key="a")
    assert {name: head.get(name) for name in attributes} == attributes


def test_an_archived_object_that_was_restored_can_be_read_after_the_rewrite(cloud: Cloud) -> None:
    s3 = cloud.access.client("s3")
    s3.put_object(Bucket=BUCKET, Key="a", Body=user_rows(9), StorageClass="GLACIER")
    s3.restore_object(Bucket=BUCKET, Key="a", RestoreRequest={"Days": 1})

    assert counts(run(cloud, "rows", [stored(cloud, "a")])) == [1]
    assert counts(run(cloud, "rows", [stored(cloud, "a")])) == [0]


# --- Lost responses -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "body", "matches"),
    [
        pytest.param("archive", gzip.compress(b"".join(LINES)), 3, id="archive"),
        pytest.param("rows", user_rows(9), 1, id="json lines"),
        pytest.param("rows", parquet(TABLE), 2, id="parquet"),
    ],
)
def test_an_object_that_the_task_itself_has_replaced_counts_although_the_response_was_lost(
    cloud: Cloud, content: Content, body: bytes, matches: int
) -> None:
    old = put(cloud, "a", body)

    results = run(cloud, content, [old], access=losing_response("s3.PutObject"))

    assert results == [Erased(old, matches, was_written=True)]
    assert counts(run(cloud, content, [stored(cloud, "a")])) == [0]


@pytest.mark.parametrize(("status", "code"), [(412, "PreconditionFailed"), (404, "NoSuchUpload")])
def test_a_large_object_that_the_task_itself_has_replaced_counts_although_the_response_was_lost(
    cloud: Cloud, status: int, code: str
) -> None:
    old = put(cloud, "a", user_rows(8) + LARGE)

    with ExitStack() as repetition:
        refusal = cloud.refusing("CompleteMultipartUpload", status=status, code=code)
        complete = "s3.CompleteMultipartUpload"
        at_the_next(cloud.access, complete, lambda: repetition.enter_context(refusal), response_lost=True)
        results = run(cloud, "rows", [old])

    assert results == [Erased(old, 1, was_written=True)]
    assert cloud.objects() == {"a": user_rows(7) + LARGE}
    assert cloud.unfinished_uploads() == []


def test_an_upload_that_someone_has_aborted_replaces_nothing(cloud: Cloud) -> None:
    old, executor = put(cloud, "a", user_rows(8) + LARGE), another_client()

    def abort() -> None:
        s3 = cloud.access.client("s3")
        [upload] = s3.list_multipart_uploads(Bucket=BUCKET)["Uploads"]
        s3.abort_multipart_upload(Bucket=BUCKET, Key="a", UploadId=upload["UploadId"])

    at_the_next(executor, "s3.CompleteMultipartUpload", abort)
    [result] = run(cloud, "rows", [old], access=executor)

    assert isinstance(result, NotErased)
    assert (cloud.objects(), cloud.unfinished_uploads()) == ({"a": user_rows(8) + LARGE}, [])


@pytest.mark.parametrize("theirs", [b"", b'{"user_id":9}', user_rows(8)])
def test_another_writer_s_object_does_not_count_although_the_response_was_lost(cloud: Cloud, theirs: bytes) -> None:
    old = put(cloud, "a", user_rows(9))
    executor = losing_response("s3.PutObject", lambda: put(cloud, "a", theirs))

    assert run(cloud, "rows", [old], access=executor) == [Erased(old, 0, is_gone=True)]
    assert cloud.objects() == {"a": theirs}


def test_a_deleted_object_counts_although_the_response_was_lost_and_is_searched_again(cloud: Cloud) -> None:
    """S3 does not say who has deleted it: another writer may have moved its rows."""
    whole = put(cloud, "a", b'{"user_id":7}')

    results = run(cloud, "rows", [whole], access=losing_response("s3.DeleteObject"))

    assert results == [Erased(whole, 1, was_written=True, was_removed=True, is_gone=True)]
    assert cloud.objects() == {}


@pytest.mark.parametrize("response_lost", [True, False])
def test_an_object_that_another_writer_has_replaced_or_deleted_is_not_the_task_s(
    cloud: Cloud, *, response_lost: bool
) -> None:
    whole, executor = put(cloud, "a", b'{"user_id":7}'), another_client()

    def interfere() -> None:
        if response_lost:
            put(cloud, "a", b"x")
        else:
            cloud.access.client("s3").delete_object(Bucket=BUCKET, Key="a")

    at_the_next(executor, "s3.DeleteObject", interfere, response_lost=response_lost)

    assert run(cloud, "rows", [whole], access=executor) == [Erased(whole, 0, is_gone=True)]


# --- Columns --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "column", "chosen", "count"),
    [
        (pa.array(["7", "x"]), Field("v", "v", String()), Values.from_values(String(), "7"), 1),
        (pa.array([7, 8], pa.int8()), Field("v", "v", Int64()), SEVEN, 1),
        (pa.array(["7", "8"]), Field("v", "v", Int64()), SEVEN, 1),
        (pa.array([{"id": 7}, None, {"id": None}]), Field("v", "Id", Int64(), ("V",)), SEVEN, 1),
        (pa.array([1, 2]), Field("w", "w", Int64()), SEVEN, 0),
    ],
)
def test_columns_are_found_by_their_path_and_values_by_the_tables_type(
    cloud: Cloud, values: Any, column: Field, chosen: Values, count: int
) -> None:
    put(cloud, "a", parquet(pa.table({"v": values})))
    assert counts(run(cloud, "rows", [stored(cloud, "a")], column=column, chosen=chosen)) == [count]


NO_ROWS = {
    "cut": b"PAR1 and no more",
    "other type": parquet(pa.table({"user_id": ["x"]})),
    "csv": b"user_id\n7\n",
    "orc": b"ORC\0\n7",
    "gzip": gzip.compress(b"7"),
}


@pytest.mark.parametrize("body", NO_ROWS.values(), ids=NO_ROWS)
def test_a_file_that_cannot_be_searched_fails_by_name(cloud: Cloud, body: bytes) -> None:
    [failed] = run(cloud, "rows", [put(cloud, "a", body)])
    assert isinstance(failed, NotErased)
    assert f"s3://{BUCKET}/a" in failed.failure.message
    assert "Another program wrote or changed this file" in failed.failure.message


def test_a_file_whose_other_columns_are_damaged_fails_by_name_and_stays(cloud: Cloud) -> None:
    """The search reads only the column with the ids, and the rewrite all others."""
    table = pa.table({"user_id": [1, 7], "name": ["spoilt", "b"]})
    options = {"use_dictionary": False, "compression": "none", "write_statistics": False}
    body = parquet(table, write_page_checksum=True, **options).replace(b"spoilt", b"SPOILT")
    damaged = put(cloud, "a", body)

    [failed] = run(cloud, "rows", [damaged])

    assert isinstance(failed, NotErased)
    assert "the file cannot be read as Parquet. Another program wrote or changed this file" in failed.failure.message
    assert (cloud.objects(), cloud.unfinished_uploads()) == ({"a": body}, [])


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        (pa.array([5, 7], pa.int32()), Int64()),
        (pa.array([5, 7], pa.uint8()), Int64()),
        (pa.array([5.0, 7.0]), Int64()),
        (pa.array(["70", "7"]), Int64()),
        (pa.array([5, 7]), String()),
        (pa.array([b"5", b"7"]), String()),
        (pa.array(["5", "7"], pa.large_string()), String()),
    ],
    ids=lambda parameter: str(parameter.type) if isinstance(parameter, pa.Array) else "",
)
def test_statistics_of_another_type_exclude_no_rows(cloud: Cloud, values: pa.Array[Any], type_: ColumnType) -> None:
    ids = Ids.from_array(pa.array([7] if type_ == Int64() else ["7"]))
    body = put(cloud, "a", parquet(pa.table({"user_id": values}), row_group_size=1))

    assert counts(run(cloud, "rows", [body], column=Field("user_id", "user_id", type_), chosen=ids, write=False)) == [1]


@pytest.mark.parametrize("source", ["user.id", "id"])
def test_statistics_of_ambiguous_columns_exclude_no_rows(cloud: Cloud, source: str) -> None:
    table = pa.table({"user.id": [7, 1], "user": [{"id": 2}, {"id": 7}]})
    column = Field(source, source, Int64(), () if source == "user.id" else ("user",))
    body = put(cloud, "a", parquet(table, row_group_size=1))

    assert counts(run(cloud, "rows", [body], column=column, chosen=Ids.from_array(pa.array([7])), write=False)) == [1]


def test_a_large_file_is_read_by_row_groups_and_written_in_parts(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    from destination_datalake.files import reading

    monkeypatch.setattr(reading, "_MAX_WHOLE_BYTES", 1000)
    monkeypatch.setattr(reading, "_FOOTER_BYTES", 2000)
    rows = 20_000
    noise = np.random.default_rng(1).integers(0, 2**62, rows)
    table = pa.table({"user_id": pa.array(np.arange(rows) % 100), "noise": noise, "more": noise[::-1]})
    put(cloud, "a", parquet(table, row_group_size=6_000))

    assert counts(run(cloud, "rows", [stored(cloud, "a")])) == [200]

    kept = table.filter(pa.array(np.arange(rows) % 100 != 7))
    assert pq.read_table(cloud.arrow("a")).equals(kept)
