"""Objects in S3: uploads in parts, when their objects become visible, and what is left of a failed commit."""

from __future__ import annotations

import gzip
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from botocore.awsrequest import AWSPreparedRequest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from destination_datalake.aws.objects import (
    MAX_DEFERRED_BYTES,
    PART_BYTES,
    DeferredUpload,
    GzipUpload,
    PendingUpload,
    Upload,
    abort_all,
    delete_uncommitted,
    get_or_none,
    gunzipped,
    is_changed,
    put,
    rollback_on_error,
)
from destination_datalake.files.plan import WrittenFile
from unit_tests.cloud import BUCKET, Cloud
from unit_tests.cloud import cloud as an_account

CONTENTS = [b"", b"x", b"x" * (PART_BYTES + 1)]


def upload_to(cloud: Cloud, *, deferred: bool) -> Upload:
    return Upload(cloud.access.client("s3"), f"s3://{BUCKET}/folder/file", deferred=deferred)


@pytest.mark.parametrize("content", CONTENTS)
def test_an_object_is_visible_once_its_upload_is_closed(cloud: Cloud, content: bytes) -> None:
    upload = upload_to(cloud, deferred=False)
    upload.write(content)
    assert cloud.objects() == {}

    upload.close()
    upload.close()

    assert cloud.objects() == {"folder/file": content}
    assert (upload.written, upload.tell(), upload.uri) == (len(content), len(content), "s3://lake/folder/file")
    assert (upload.pending_upload, upload.closed, cloud.unfinished_uploads()) == (None, True, [])


@pytest.mark.parametrize("content", CONTENTS)
def test_a_deferred_object_is_visible_once_published_and_publishing_is_idempotent(cloud: Cloud, content: bytes) -> None:
    upload = upload_to(cloud, deferred=True)
    upload.write(content)
    upload.close()
    assert cloud.objects() == {}
    assert upload.pending_upload is not None

    for _ in range(2):
        upload.pending_upload.publish(cloud.access.client("s3"))
        assert cloud.objects() == {"folder/file": content}
    assert cloud.unfinished_uploads() == []


def test_a_finished_upload_that_is_aborted_leaves_nothing_and_aborting_is_idempotent(cloud: Cloud) -> None:
    upload = upload_to(cloud, deferred=True)
    upload.write(b"content")
    upload.close()
    assert upload.pending_upload is not None

    for _ in range(2):
        upload.pending_upload.abort(cloud.access.client("s3"))

    assert (cloud.objects(), cloud.unfinished_uploads()) == ({}, [])


def held(cloud: Cloud, content: bytes, folder: Path, *, deferred: bool = True) -> Upload:
    upload = Upload(
        cloud.access.client("s3"), f"s3://{BUCKET}/folder/file", deferred=deferred, spool_folder=str(folder)
    )
    upload.write(content)
    upload.close()
    return upload


@pytest.mark.parametrize("deferred", [False, True])
@pytest.mark.parametrize("content", [b"", b"x", b"x" * MAX_DEFERRED_BYTES])
def test_a_small_object_waits_on_the_shared_disk_until_it_is_published(
    cloud: Cloud, tmp_path: Path, content: bytes, deferred: bool
) -> None:
    folder = tmp_path / "new" / "folder"
    upload = held(cloud, content, folder, deferred=deferred)
    assert isinstance(upload.pending_upload, DeferredUpload)
    assert (cloud.objects(), cloud.unfinished_uploads(), len([*folder.iterdir()])) == ({}, [], 1)

    for _ in range(2):
        upload.pending_upload.publish(cloud.access.client("s3"))
        assert (cloud.objects(), [*folder.iterdir()]) == ({"folder/file": content}, [])


def test_what_is_held_and_not_published_does_not_exist(cloud: Cloud, tmp_path: Path) -> None:
    s3 = cloud.access.client("s3")
    upload = held(cloud, b"content", tmp_path)
    assert upload.pending_upload is not None

    for _ in range(2):
        upload.pending_upload.abort(s3)

    assert (cloud.objects(), cloud.unfinished_uploads(), [*tmp_path.iterdir()]) == ({}, [], [])
    with pytest.raises(s3.exceptions.ClientError, match="Not Found"):
        upload.pending_upload.publish(s3)


def test_an_object_whose_publication_fails_can_be_published_again(cloud: Cloud, tmp_path: Path) -> None:
    upload = held(cloud, b"content", tmp_path)
    assert upload.pending_upload is not None

    with cloud.refusing("PutObject"), pytest.raises(cloud.access.client("s3").exceptions.ClientError):
        upload.pending_upload.publish(cloud.access.client("s3"))
    upload.pending_upload.publish(cloud.access.client("s3"))

    assert cloud.objects() == {"folder/file": b"content"}


@pytest.mark.parametrize(
    ("content", "folder", "deferred"),
    [
        pytest.param(b"x" * (MAX_DEFERRED_BYTES + 1), "", True, id="a large object"),
        pytest.param(b"x", "a file", True, id="a disk that takes no more"),
        pytest.param(b"x" * (MAX_DEFERRED_BYTES + 1), "", False, id="a large object that is visible at once"),
        pytest.param(b"x", "a file", False, id="an object that is visible at once, as the disk takes no more"),
    ],
)
def test_other_objects_are_not_held(cloud: Cloud, tmp_path: Path, content: bytes, folder: str, deferred: bool) -> None:
    (tmp_path / "a file").write_bytes(b"")
    upload = held(cloud, content, tmp_path / folder, deferred=deferred)
    assert [path.name for path in tmp_path.iterdir()] == ["a file"]

    if upload.pending_upload is not None:
        upload.pending_upload.publish(cloud.access.client("s3"))

    assert cloud.objects() == {"folder/file": content}


@pytest.mark.parametrize("deferred", [False, True])
@pytest.mark.parametrize("content", CONTENTS)
def test_an_aborted_upload_leaves_nothing(cloud: Cloud, content: bytes, deferred: bool) -> None:
    upload = upload_to(cloud, deferred=deferred)
    upload.write(content)

    upload.abort()

    assert (cloud.objects(), cloud.unfinished_uploads(), upload.closed) == ({}, [], True)


@settings(max_examples=5)
@given(sizes=st.lists(st.sampled_from([0, 1, PART_BYTES - 1, PART_BYTES]), max_size=3), of_arrow=st.booleans())
@example(sizes=[PART_BYTES, 1], of_arrow=True)
def test_the_object_is_the_concatenation_of_all_writes(sizes: list[int], of_arrow: bool) -> None:
    written = [bytes([65 + index]) * size for index, size in enumerate(sizes)]
    with an_account() as cloud:
        upload = upload_to(cloud, deferred=False)
        for piece in written:
            # The bytes of Arrow's buffers are signed.
            assert upload.write(memoryview(pa.py_buffer(piece)) if of_arrow else piece) == len(piece)
        upload.close()

        assert cloud.objects() == {"folder/file": b"".join(written)}


@pytest.mark.parametrize("content", CONTENTS)
def test_s3_is_not_asked_whether_it_takes_an_object_before_it_is_sent(cloud: Cloud, content: bytes) -> None:
    sent: list[str | None] = []

    def note(request: AWSPreparedRequest, **_: object) -> None:
        sent.append(request.headers.get("Expect"))

    upload = upload_to(cloud, deferred=False)
    cloud.access.client("s3").meta.events.register("before-send.s3", note)
    upload.write(content)
    upload.close()
    put(cloud.access.client("s3"), f"s3://{BUCKET}/file", content)

    assert sent
    assert {*sent} == {None}
    assert cloud.objects() == {"folder/file": content, "file": content}


def test_arrow_sees_a_file_that_is_write_only(cloud: Cloud) -> None:
    upload = upload_to(cloud, deferred=False)

    assert (upload.writable(), upload.readable(), upload.seekable()) == (True, False, False)


def test_a_failed_part_is_raised_by_the_next_write_or_by_close(cloud: Cloud) -> None:
    s3 = cloud.access.client("s3")
    for raising in (Upload.close, lambda upload: upload.write(bytes(PART_BYTES))):
        upload = Upload(s3, "s3://nobody-s-bucket/folder/file", deferred=False)
        upload.write(bytes(PART_BYTES))

        with pytest.raises(s3.exceptions.NoSuchBucket):
            raising(upload)

        upload.abort()
        assert upload.closed


def test_a_gzip_upload_is_one_stream_of_all_writes(cloud: Cloud) -> None:
    upload = GzipUpload(upload_to(cloud, deferred=False))
    for piece in (b"a" * 100_000, bytearray(b"b"), memoryview(b"c")):
        upload.write(piece)
    upload.close()

    assert gzip.decompress(cloud.objects()["folder/file"]) == b"a" * 100_000 + b"bc"


def pending(cloud: Cloud, key: str) -> PendingUpload:
    upload = Upload(cloud.access.client("s3"), f"s3://{BUCKET}/{key}", deferred=True)
    upload.write(b"content")
    upload.close()
    assert isinstance(upload.pending_upload, PendingUpload)
    return upload.pending_upload


def test_all_uploads_are_aborted(cloud: Cloud) -> None:
    abort_all([pending(cloud, "a"), pending(cloud, "b")], cloud.access.client("s3"))

    assert cloud.unfinished_uploads() == []


@pytest.mark.parametrize("position", [0, 1, 2])
def test_one_failure_is_raised_and_the_others_are_aborted(cloud: Cloud, position: int) -> None:
    written = [pending(cloud, key) for key in ("a", "b", "c")]
    s3 = cloud.access.client("s3")
    unreachable = replace(written[position], bucket="nobody-s-bucket")

    with pytest.raises(s3.exceptions.ClientError):
        abort_all([*written[:position], unreachable, *written[position + 1 :]], s3)

    assert cloud.unfinished_uploads() == [unreachable.key]


def test_files_that_no_table_has_are_deleted_published_or_not(cloud: Cloud) -> None:
    s3 = cloud.access.client("s3")
    files = [WrittenFile(f"s3://{BUCKET}/{key}", 7, 1, pending_upload=pending(cloud, key)) for key in ("a", "b")]
    assert files[0].pending_upload is not None
    files[0].pending_upload.publish(s3)
    s3.put_object(Bucket=BUCKET, Key="c", Body=b"visible from the first")

    for _ in range(2):
        delete_uncommitted([*files, WrittenFile(f"s3://{BUCKET}/c", 7, 1)], s3)

    assert (cloud.objects(), cloud.unfinished_uploads()) == ({}, [])


def test_a_failing_body_takes_every_step_and_failing_steps_become_notes() -> None:
    taken: list[str] = []

    def impossible() -> None:
        taken.append("impossible")
        raise PermissionError("no")

    with (
        pytest.raises(ValueError, match="the reason") as raised,
        rollback_on_error(impossible, lambda: taken.append("last")),
    ):
        raise ValueError("the reason")

    assert taken == ["impossible", "last"]
    assert raised.value.__notes__ == ["Cannot delete all written files: PermissionError"]


def test_a_succeeding_body_takes_no_step() -> None:
    taken: list[str] = []

    with rollback_on_error(lambda: taken.append("undone")):
        taken.append("done")

    assert taken == ["done"]


# Conditions, and metadata


CONDITIONS: list[tuple[dict[str, Any], bytes | None, bool]] = [
    ({}, None, True),
    ({}, b"old", True),
    ({"if_none_match": True}, None, True),
    ({"if_none_match": True}, b"old", False),
    ({"if_match": "that of the object"}, b"old", True),
    ({"if_match": '"another one"'}, b"old", False),
]


@pytest.mark.parametrize(("conditions", "present", "is_put"), CONDITIONS)
def test_an_object_is_put_where_its_condition_holds(
    cloud: Cloud, conditions: Mapping[str, Any], present: bytes | None, is_put: bool
) -> None:
    s3, uri = cloud.access.client("s3"), f"s3://{BUCKET}/file"
    etag = None if present is None else put(s3, uri, present)
    asked: Any = {key: etag if value == "that of the object" else value for key, value in conditions.items()}

    if is_put:
        answered = put(s3, uri, b"new", **asked)
        assert answered == s3.head_object(Bucket=BUCKET, Key="file")["ETag"]
    else:
        with pytest.raises(s3.exceptions.ClientError) as raised:
            put(s3, uri, b"new", **asked)
        assert is_changed(raised.value)

    assert cloud.objects() == {"file": b"new" if is_put or present is None else present}


def test_only_a_condition_that_does_not_hold_is_a_change(cloud: Cloud) -> None:
    s3 = cloud.access.client("s3")
    with cloud.refusing("PutObject"), pytest.raises(s3.exceptions.ClientError) as raised:
        put(s3, f"s3://{BUCKET}/file", b"new", if_none_match=True)

    assert not is_changed(raised.value)
    assert not is_changed(ValueError())


def test_an_object_that_does_not_exist_is_none_also_for_an_identity_that_may_not_be_told(cloud: Cloud) -> None:
    s3 = cloud.access.client("s3")
    put(s3, f"s3://{BUCKET}/file.json", b"content")

    with cloud.refusing("GetObject"):
        assert get_or_none(s3, f"s3://{BUCKET}/file") is None
        with pytest.raises(s3.exceptions.ClientError, match="AccessDenied"):
            get_or_none(s3, f"s3://{BUCKET}/file.json")

    assert get_or_none(s3, f"s3://{BUCKET}/file") is None
    assert get_or_none(s3, f"s3://{BUCKET}/file.json") == b"content"


def test_object_whose_folder_may_not_be_listed_is_refused_for_that(cloud: Cloud) -> None:
    s3 = cloud.access.client("s3")

    with cloud.refusing("GetObject", "ListObjectsV2"), pytest.raises(s3.exceptions.ClientError, match="ListObjectsV2"):
        get_or_none(s3, f"s3://{BUCKET}/file")


@pytest.mark.parametrize("size", [1, MAX_DEFERRED_BYTES + 1, PART_BYTES + 1], ids=["small", "one part", "two parts"])
@pytest.mark.parametrize("deferred", [True, False])
def test_an_object_has_its_metadata_however_it_is_uploaded(
    cloud: Cloud, tmp_path: Path, deferred: bool, size: int
) -> None:
    s3, metadata = cloud.access.client("s3"), {"stream": '"a \\u00e9"', "lines": "2"}
    uri, folder = f"s3://{BUCKET}/folder/file", str(tmp_path)
    upload = Upload(s3, uri, deferred=deferred, spool_folder=folder, metadata=metadata)
    upload.write(bytes(size))
    upload.close()

    if upload.pending_upload is not None:
        upload.pending_upload.publish(s3)

    assert s3.head_object(Bucket=BUCKET, Key="folder/file")["Metadata"] == metadata


# Members of gzip


MEMBERS = [b"a" * 1000, b"", b"line\n", random.Random(1).randbytes(600)]


def members_of(cloud: Cloud, members: Sequence[bytes]) -> bytes:
    upload = GzipUpload(upload_to(cloud, deferred=False))
    for member in members:
        upload.write(member)
        upload.finish()
    upload.close()
    return cloud.objects()["folder/file"]


def test_what_is_written_after_the_end_of_a_member_begins_another_one(cloud: Cloud) -> None:
    content = members_of(cloud, MEMBERS)

    assert gzip.decompress(content) == b"".join(MEMBERS)
    assert [bytes(member) for member in gunzipped([content])] == MEMBERS


@pytest.fixture(params=["isal", "zlib"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What compresses: executors that lack the one have the other."""
    if request.param == "zlib":
        monkeypatch.setitem(sys.modules, "isal", None)


@pytest.mark.usefixtures("library")
def test_members_are_the_same_however_the_file_is_cut_into_pieces(cloud: Cloud) -> None:
    content = members_of(cloud, MEMBERS)

    for size in (*range(1, 64), len(content)):
        pieces = [content[start : start + size] for start in range(0, len(content), size)]
        assert [bytes(member) for member in gunzipped(pieces)] == MEMBERS
    for cut in range(len(content) + 1):
        assert [bytes(member) for member in gunzipped([content[:cut], b"", content[cut:]])] == MEMBERS


def test_what_one_library_writes_the_other_one_reads(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    by_isal = members_of(cloud, MEMBERS)
    monkeypatch.setitem(sys.modules, "isal", None)
    by_zlib = members_of(cloud, MEMBERS)

    assert by_isal != by_zlib
    assert [bytes(member) for member in gunzipped([by_isal])] == MEMBERS
    monkeypatch.undo()
    assert [bytes(member) for member in gunzipped([by_zlib])] == MEMBERS


@pytest.mark.usefixtures("library")
def test_a_member_may_be_larger_than_what_is_inflated_at_once(cloud: Cloud) -> None:
    members = [random.Random(2).randbytes(1_000_000), b"x" * 3_000_000, random.Random(3).randbytes(300_000)]

    assert [bytes(member) for member in gunzipped([members_of(cloud, members)])] == members


@pytest.mark.usefixtures("library")
def test_a_file_that_ends_within_a_member_is_an_error(cloud: Cloud) -> None:
    content = members_of(cloud, MEMBERS[:1])
    two = members_of(cloud, MEMBERS[:1] * 2)

    for cut in range(1, len(content)):
        with pytest.raises(EOFError):
            [*gunzipped([content[:cut]])]
        reader = gunzipped([two[: len(content) + cut]])
        assert bytes(next(reader)) == MEMBERS[0]
        with pytest.raises(EOFError):
            next(reader)
    assert [*gunzipped([])] == []


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(
    "damaged",
    [b"no gzip file", gzip.compress(b"x") + b"no gzip file", gzip.compress(b"x")[:-8] + bytes(8)],
    ids=["of another format", "with more behind it", "of another checksum"],
)
def test_a_file_that_is_no_gzip_file_is_an_error(damaged: bytes) -> None:
    with pytest.raises(gzip.BadGzipFile):
        [*gunzipped([damaged])]
    with pytest.raises((gzip.BadGzipFile, EOFError)):
        [*gunzipped([bytes([byte]) for byte in damaged])]
