"""Executors on this machine read the segments' own files."""

from __future__ import annotations

from pathlib import Path

from destination_datalake.buffer.staging import LocalStaging, Segment
from destination_datalake.files.segments import LocalFile, StagedSegment
from destination_datalake.protocol.catalog import StreamId


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
