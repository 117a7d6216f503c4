"""Segments that executors read: this machine's own files, or objects in S3 from their sealing to their release."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from destination_datalake.aws.access import AwsAccess
from destination_datalake.aws.objects import S3Address
from destination_datalake.buffer.staging import LocalStaging, RemoteStaging, Segment
from destination_datalake.files.segments import LocalFile, StagedObject, StagedSegment
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.sync.thread_pool import ThreadPool
from unit_tests.cloud import BUCKET, Cloud


def test_local_executors_read_the_segment_s_own_file(tmp_path: Path) -> None:
    path = tmp_path / "00000001.jsonl"
    path.write_bytes(b"a\nb\n")
    segment = Segment(StreamId(None, "orders"), path, first_record=0, records=2, bytes=4, since=0.0)
    staging = LocalStaging()

    staging.begin(segment)
    staged = staging.stage(segment)
    staging.release([segment])

    assert staged == StagedSegment(LocalFile(str(path)), 4, records=2)
    assert path.read_bytes() == b"a\nb\n"


# --- In S3

ROOT = f"s3://{BUCKET}/lake/_staging"
SYNC = "0123456789ab"
FOLDER = f"lake/_staging/{SYNC}"

_numbers = itertools.count()


class ManualPool:
    """Runs calls when it is told to, in order."""

    def __init__(self) -> None:
        self.is_eager = False
        self._waiting: list[tuple[Callable[[], StagedSegment | None], Future[StagedSegment | None]]] = []

    def submit(self, call: Callable[[], StagedSegment | None]) -> Future[StagedSegment | None]:
        future: Future[StagedSegment | None] = Future()
        self._waiting.append((call, future))
        if self.is_eager:
            self.run()
        return future

    def run(self) -> None:
        """Run all calls that wait, also those that they submit."""
        while self._waiting:
            call, future = self._waiting.pop(0)
            try:
                future.set_result(call())
            except Exception as error:
                future.set_exception(error)


class Staged:
    """A staging for one sync, whose calls are made when the test says so."""

    def __init__(self, access: AwsAccess, directory: Path, staging: RemoteStaging | None = None) -> None:
        self.pool = ManualPool()
        self.staging = staging or RemoteStaging(ROOT, SYNC, access, self.pool)
        self.free: list[Segment] = []
        self.staging.on_free_file(self.free.append)
        self._directory = directory

    def segment(self, content: bytes = b"a\nb\n") -> Segment:
        """A sealed segment, whose upload has begun."""
        number = next(_numbers)
        path = self._directory / f"{number}.jsonl"
        path.write_bytes(content)
        segment = Segment(StreamId(None, "orders"), path, number, 2, len(content), 0.0)
        self.staging.begin(segment)
        return segment

    def close(self) -> None:
        """End the sync."""
        self.pool.run()
        self.pool.is_eager = True
        self.staging.__exit__(None, None, None)


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
    staged_segment = staged.staging.stage(segment)
    assert isinstance(staged_segment.location, StagedObject)
    assert (staged_segment.location.uri, staged_segment.bytes) == (f"{ROOT}/{SYNC}/00000001.jsonl", 4)
    etag = cloud.access.client("s3").head_object(Bucket="lake", Key=f"{FOLDER}/00000001.jsonl")["ETag"]
    assert staged_segment.location.etag == etag


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
    assert f"Cannot delete all staged objects under {ROOT}/{SYNC}." in caplog.text


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
