"""Segments of executors on other machines: in S3 from their sealing to their release, and never longer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from destination_datalake.aws.address import S3Address
from destination_datalake.buffer.staging import RemoteStaging
from destination_datalake.files.segments import StagedObject
from destination_datalake.sync.thread_pool import ThreadPool
from unit_tests.buffer.staging.account import FOLDER, ROOT, SYNC, Staged
from unit_tests.cloud import Cloud


@pytest.fixture
def staged(cloud: Cloud, tmp_path: Path) -> Iterator[Staged]:
    staged = Staged(cloud.access, tmp_path)
    yield staged
    staged.close()


def test_a_segment_is_uploaded_once_it_is_sealed_and_its_file_is_free_then(cloud: Cloud, staged: Staged) -> None:
    segment = staged.segment(b"a\nb\n")
    assert (cloud.objects(), staged.free) == ({}, [])

    staged.pool.run()

    assert (cloud.objects(), staged.free) == ({f"{FOLDER}/00000001.jsonl": b"a\nb\n"}, [segment])
    segment.path.unlink()
    found = staged.staging.stage(segment)
    assert isinstance(found.location, StagedObject)
    assert (found.location.uri, found.bytes) == (f"{ROOT}/{SYNC}/00000001.jsonl", 4)
    etag = cloud.access.client("s3").head_object(Bucket="lake", Key=f"{FOLDER}/00000001.jsonl")["ETag"]
    assert found.location.etag == etag


def test_every_segment_has_a_name_of_its_own_though_their_files_are_reused(cloud: Cloud, staged: Staged) -> None:
    first = staged.segment(b"1\n")
    staged.pool.run()
    second = staged.segment(b"2\n")
    staged.pool.run()

    assert staged.staging.stage(first) != staged.staging.stage(second)
    assert sorted(cloud.objects().values()) == [b"1\n", b"2\n"]


def test_a_released_segment_is_deleted(cloud: Cloud, staged: Staged) -> None:
    released, kept = staged.segment(b"1\n"), staged.segment(b"2\n")
    staged.pool.run()

    staged.staging.release([released])
    staged.pool.run()

    assert [*cloud.objects().values()] == [b"2\n"]
    assert staged.staging.stage(kept)


def test_a_segment_that_is_released_before_its_upload_is_never_uploaded(cloud: Cloud, staged: Staged) -> None:
    segment = staged.segment()

    staged.staging.release([segment])
    staged.pool.run()

    assert (cloud.objects(), staged.free) == ({}, [segment])


def test_a_failed_upload_is_the_answer_when_the_batch_s_turn_comes(cloud: Cloud, staged: Staged) -> None:
    uploaded = staged.segment(b"1\n")
    staged.pool.run()
    failed = staged.segment(b"2\n")
    with cloud.refusing("PutObject"):
        staged.pool.run()

    assert staged.staging.stage(uploaded)
    with pytest.raises(ClientError, match="AccessDenied"):
        staged.staging.stage(failed)
    assert staged.free == [uploaded, failed], "the buffer must not wait for what cannot land"


def test_a_segment_that_s3_stored_although_the_answer_was_lost_is_deleted_too(cloud: Cloud, staged: Staged) -> None:
    staged.pool.run()
    staged.segment()
    events: Any = cloud.access.client("s3").meta.events

    def lose(model: Any, **_: object) -> None:
        raise ClientError({"Error": {"Code": "500", "Message": "lost"}}, model.name)

    events.register("after-call.s3.PutObject", lose)
    try:
        staged.segment()
        staged.pool.run()
    finally:
        events.unregister("after-call.s3.PutObject", lose)
    assert len(cloud.objects()) >= 1

    staged.close()

    assert cloud.objects() == {}


def test_the_end_of_a_sync_leaves_nothing_behind(cloud: Cloud, tmp_path: Path) -> None:
    pool = ThreadPool(4, "staging")
    try:
        with RemoteStaging(ROOT, SYNC, cloud.access, pool, 60) as staging:
            staged = Staged(cloud.access, tmp_path, staging)
            held = [staged.segment() for _ in range(20)]
            staging.release(held[:7])
            assert staging.stage(held[-1])

        assert cloud.objects() == {}
    finally:
        pool.close(lambda: False)


def test_an_index_that_a_merge_has_left_goes_with_the_sync(cloud: Cloud) -> None:
    """Also in a sync without records, which merges what another one has landed."""
    pool = ThreadPool(2, "staging")
    try:
        with RemoteStaging(ROOT, SYNC, cloud.access, pool, 60) as staging:
            address = S3Address.parse(f"{staging.scratch()}/{'0' * 32}/index-00000-01234567.arrow")
            cloud.access.client("s3").put_object(Bucket=address.bucket, Key=address.key, Body=b"keys")

        assert cloud.objects() == {}
    finally:
        pool.close(lambda: False)


def test_a_segment_that_could_not_be_deleted_is_warned_of(
    cloud: Cloud, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pool = ThreadPool(2, "staging")
    try:
        with cloud.refusing("DeleteObject"), RemoteStaging(ROOT, SYNC, cloud.access, pool, 60) as staging:
            staged = Staged(cloud.access, tmp_path, staging)
            segment = staged.segment()
            assert staging.stage(segment)
            staging.release([segment])

    finally:
        pool.close(lambda: False)
    assert f"{ROOT}/{SYNC} are left" in caplog.text


def test_a_job_that_outlives_the_sync_may_release_its_segments(cloud: Cloud, staged: Staged) -> None:
    segment = staged.segment()
    staged.close()

    staged.staging.release([segment])

    assert cloud.objects() == {}


def test_what_a_job_seals_after_the_sync_has_ended_is_not_left_in_s3(cloud: Cloud, staged: Staged) -> None:
    staged.segment()
    staged.close()

    late = staged.segment()

    assert cloud.objects() == {}
    assert late in staged.free
