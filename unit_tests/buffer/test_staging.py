"""Where executors find segments: on the disk they share with us, or in S3."""

from __future__ import annotations

from pathlib import Path

import pytest

from destination_datalake.buffer.segments import Segment
from destination_datalake.buffer.staging import LocalStaging, RemoteStaging
from destination_datalake.protocol.catalog import StreamId
from unit_tests.cloud import BUCKET, cloud


@pytest.fixture
def segment(tmp_path: Path) -> Segment:
    path = tmp_path / "00000001.jsonl"
    path.write_bytes(b"a\nb\n")
    return Segment(StreamId(None, "orders"), path, first=0, records=2, bytes=4, since=0.0)


def test_executors_on_this_machine_read_the_segment_itself(segment: Segment) -> None:
    staging = LocalStaging()

    place = staging.stage(segment)
    staging.delete([place])

    assert (place, segment.path.exists()) == (str(segment.path), True)


def test_executors_elsewhere_read_a_copy_that_goes_when_nobody_needs_it(segment: Segment) -> None:
    with cloud() as account:
        staging = RemoteStaging(f"s3://{BUCKET}/lake/_staging/sync", account.access)

        place = staging.stage(segment)

        assert place == f"s3://{BUCKET}/lake/_staging/sync/00000001.jsonl"
        assert account.objects() == {"lake/_staging/sync/00000001.jsonl": b"a\nb\n"}
        staging.delete([place])
        assert account.objects() == {}
        assert segment.path.exists()
