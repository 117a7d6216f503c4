"""Where executors read segments from: the local disk, or S3."""

from __future__ import annotations

from pathlib import Path

import pytest

from destination_datalake.buffer.segments import Segment
from destination_datalake.buffer.staging import LocalStaging, RemoteStaging
from destination_datalake.files.segments import LocalFile, StagedObject, StagedSegment
from destination_datalake.protocol.catalog import StreamId
from unit_tests.cloud import BUCKET, cloud


@pytest.fixture
def segment(tmp_path: Path) -> Segment:
    path = tmp_path / "00000001.jsonl"
    path.write_bytes(b"a\nb\n")
    return Segment(StreamId(None, "orders"), path, first_record=0, records=2, bytes=4, since=0.0)


def test_local_executors_read_the_segment_s_own_file(segment: Segment) -> None:
    staging = LocalStaging()

    staged = staging.stage(segment)
    staging.delete([staged])

    assert staged == StagedSegment(LocalFile(str(segment.path)), 4)
    assert segment.path.exists()


def test_remote_executors_read_a_copy_in_s3_until_it_is_deleted(segment: Segment) -> None:
    with cloud() as account:
        staging = RemoteStaging(f"s3://{BUCKET}/lake/_staging/sync", account.access)

        staged = staging.stage(segment)

        assert isinstance(staged.location, StagedObject)
        assert staged.location.uri == f"s3://{BUCKET}/lake/_staging/sync/00000001.jsonl"
        assert account.objects() == {"lake/_staging/sync/00000001.jsonl": b"a\nb\n"}
        staging.delete([staged])
        assert account.objects() == {}
        assert segment.path.exists()
