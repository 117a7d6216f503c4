"""Segments: files that grow, are sealed and are used again, few of them open at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from destination_datalake.buffer.segments import OpenFiles, OpenSegment, Segment
from destination_datalake.protocol.catalog import StreamId

ORDERS = StreamId(None, "orders")


def segment_at(path: Path, former: int = 0) -> OpenSegment:
    return OpenSegment(ORDERS, path, former, first_record=7, since=1.5)


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_sealed_segment_has_all_lines_and_their_count(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    segment = segment_at(path)
    segment.append(b"a\n", 1)
    segment.append(memoryview(b"b\nc\n"), 2)

    assert segment.seal() == Segment(ORDERS, path, first_record=7, records=3, bytes=6, since=1.5)
    assert path.read_bytes() == b"a\nb\nc\n"


def test_only_the_owner_may_read_the_file(tmp_path: Path) -> None:
    segment = segment_at(tmp_path / "segment")
    segment.append(b"a\n", 1)

    assert segment.seal().path.stat().st_mode & 0o077 == 0


def test_the_former_content_of_a_reused_file_counts_until_it_is_sealed(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.write_bytes(b"former content\n")
    segment = segment_at(path, former=15)
    segment.append(b"a\n", 1)
    assert (segment.file_bytes, segment.bytes, path.stat().st_size) == (15, 2, 15)

    segment.seal()

    assert path.read_bytes() == b"a\n"


def test_a_closed_segment_goes_on_where_it_was(tmp_path: Path) -> None:
    segment = segment_at(tmp_path / "segment")
    segment.append(b"a\n", 1)
    segment.close()
    segment.append(b"b\n", 1)

    assert segment.seal().path.read_bytes() == b"a\nb\n"


@pytest.mark.parametrize("most", [1, 2])
def test_the_least_recently_written_file_is_closed(tmp_path: Path, most: int) -> None:
    files = OpenFiles(most)
    segments = [segment_at(tmp_path / str(number)) for number in range(3)]
    before = open_descriptors()

    for line in (b"a\n", b"b\n"):
        for segment in segments:
            files.mark_used(segment)
            segment.append(line, 1)
            assert open_descriptors() <= before + most

    assert open_descriptors() == before + most
    for segment in segments:
        files.close(segment)
    assert open_descriptors() == before
    assert [segment.seal().path.read_bytes() for segment in segments] == [b"a\nb\n"] * 3
