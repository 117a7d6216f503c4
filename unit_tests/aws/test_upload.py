"""Objects in S3 that are written in parts, and seen only when somebody says so."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from destination_datalake.aws.upload import PART_BYTES, Upload
from unit_tests.cloud import BUCKET, Cloud
from unit_tests.cloud import cloud as an_account

CONTENTS = [b"", b"x", b"x" * (PART_BYTES + 1)]


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with an_account() as account:
        yield account


def upload_to(cloud: Cloud, *, hidden: bool) -> Upload:
    return Upload(cloud.access.client("s3"), BUCKET, "folder/file", hidden=hidden)


@pytest.mark.parametrize("content", CONTENTS)
def test_an_open_object_is_there_once_it_is_closed(cloud: Cloud, content: bytes) -> None:
    upload = upload_to(cloud, hidden=False)
    upload.write(content)
    assert cloud.objects() == {}

    upload.close()
    upload.close()

    assert cloud.objects() == {"folder/file": content}
    assert (upload.written, upload.tell(), upload.uri) == (len(content), len(content), "s3://lake/folder/file")
    assert (upload.pending_upload, upload.closed, cloud.unfinished_uploads()) == (None, True, [])


@pytest.mark.parametrize("content", CONTENTS)
def test_a_hidden_object_is_there_once_it_is_published_and_publishing_twice_does_no_harm(
    cloud: Cloud, content: bytes
) -> None:
    upload = upload_to(cloud, hidden=True)
    upload.write(content)
    upload.close()
    assert cloud.objects() == {}
    assert upload.pending_upload is not None

    for _ in range(2):
        upload.pending_upload.publish(cloud.access.client("s3"))
        assert cloud.objects() == {"folder/file": content}
    assert cloud.unfinished_uploads() == []


def test_a_hidden_object_that_is_withdrawn_leaves_nothing_and_withdrawing_twice_does_no_harm(cloud: Cloud) -> None:
    upload = upload_to(cloud, hidden=True)
    upload.write(b"content")
    upload.close()
    assert upload.pending_upload is not None

    for _ in range(2):
        upload.pending_upload.withdraw(cloud.access.client("s3"))

    assert (cloud.objects(), cloud.unfinished_uploads()) == ({}, [])


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("content", CONTENTS)
def test_an_aborted_upload_leaves_nothing(cloud: Cloud, content: bytes, hidden: bool) -> None:
    upload = upload_to(cloud, hidden=hidden)
    upload.write(content)

    upload.abort()

    assert (cloud.objects(), cloud.unfinished_uploads(), upload.closed) == ({}, [], True)


@settings(max_examples=5)
@given(sizes=st.lists(st.sampled_from([0, 1, PART_BYTES - 1, PART_BYTES]), max_size=3))
def test_however_it_is_written_the_object_is_all_that_was_written(sizes: list[int]) -> None:
    written = [bytes([65 + index]) * size for index, size in enumerate(sizes)]
    with an_account() as cloud:
        upload = upload_to(cloud, hidden=False)
        for piece in written:
            assert upload.write(piece) == len(piece)
        upload.close()

        assert cloud.objects() == {"folder/file": b"".join(written)}


def test_arrow_may_write_into_it_and_nothing_else(cloud: Cloud) -> None:
    upload = upload_to(cloud, hidden=False)

    assert (upload.writable(), upload.readable(), upload.seekable()) == (True, False, False)


def test_a_part_that_does_not_go_up_is_told_of_by_a_later_write_or_at_the_end(cloud: Cloud) -> None:
    s3 = cloud.access.client("s3")
    for tell in (Upload.close, lambda upload: upload.write(bytes(PART_BYTES))):
        upload = Upload(s3, "nobody-s-bucket", "folder/file", hidden=False)
        upload.write(bytes(PART_BYTES))

        with pytest.raises(s3.exceptions.NoSuchBucket):
            tell(upload)

        upload.abort()
        assert upload.closed
