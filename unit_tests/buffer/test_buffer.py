"""Records on local disk: every byte once and in order, and the space that they take."""

from __future__ import annotations

import itertools
import os
import resource
import signal
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_datalake.buffer.buffer import MAX_OPEN_FILES, Buffer, OpenFiles, OpenSegment
from destination_datalake.buffer.disk import DiskFailed
from destination_datalake.buffer.staging import Segment
from destination_datalake.protocol.catalog import StreamId

ORDERS, ITEMS = StreamId(None, "orders"), StreamId("shop", "items")


@pytest.fixture
def buffer(tmp_path: Path) -> Buffer:
    """A buffer whose segments hold ten bytes and whose clock counts the segments opened."""
    return Buffer(tmp_path, 10, 1000, itertools.count().__next__)


def test_a_segment_grows_until_it_is_full(buffer: Buffer) -> None:
    buffer.append(ORDERS, b"aaa\n", 1, 0)
    buffer.append(ORDERS, b"b\nc\nd\n", 3, 1)
    buffer.append(ORDERS, b"e\n", 1, 4)

    full, remainder = buffer.take(ORDERS, 1000)

    assert full == Segment(ORDERS, full.path, first_record=0, records=4, bytes=10, since=0)
    assert remainder == Segment(ORDERS, remainder.path, first_record=4, records=1, bytes=2, since=1)
    assert (full.path.read_bytes(), remainder.path.read_bytes()) == (b"aaa\nb\nc\nd\n", b"e\n")


def test_take_returns_at_least_one_segment_and_at_most_the_capacity(buffer: Buffer) -> None:
    for first in range(4):
        buffer.append(ORDERS, b"123456789\n", 1, first)

    assert [segment.first_record for segment in buffer.take(ORDERS, 1)] == [0]
    assert [segment.first_record for segment in buffer.take(ORDERS, 25)] == [1, 2]
    assert [segment.first_record for segment in buffer.take(ORDERS, 25)] == [3]
    assert buffer.take(ORDERS, 25) == []


def test_an_open_segment_keeps_growing_while_sealed_ones_fill_the_batch(buffer: Buffer) -> None:
    for first in range(2):
        buffer.append(ORDERS, b"123456789\n", 1, first)
    buffer.append(ORDERS, b"a\n", 1, 2)

    assert len(buffer.take(ORDERS, 20)) == 2
    buffer.append(ORDERS, b"b\n", 1, 3)
    assert [segment.path.read_bytes() for segment in buffer.take(ORDERS, 20)] == [b"a\nb\n"]


def test_records_count_as_buffered_until_their_segments_are_released(buffer: Buffer) -> None:
    buffer.append(ORDERS, b"123456789\n", 1, 0)
    buffer.append(ITEMS, b"abc\n", 1, 0)
    taken = buffer.take(ORDERS, 100)
    assert buffer.buffered_bytes == 14

    buffer.release(taken)

    assert buffer.buffered_bytes == 4


def test_the_file_of_a_released_segment_is_reused(buffer: Buffer, tmp_path: Path) -> None:
    # Given more segments than were ever kept at once, the later ones shorter
    for first, line in enumerate([b"123456789\n", b"abc\n", b"d\n"]):
        buffer.append(ORDERS, line, 1, first)

        [segment] = buffer.take(ORDERS, 100)

        # Then each holds its own records alone, all in the same file
        assert segment.path.read_bytes() == line
        buffer.release([segment])
        assert list(tmp_path.iterdir()) == [segment.path]


def test_waiting_streams_are_ordered_by_their_oldest_records(buffer: Buffer) -> None:
    buffer.append(ITEMS, b"123456789\n", 1, 0)
    buffer.append(ORDERS, b"a\n", 1, 0)
    buffer.append(ITEMS, b"a\n", 1, 1)
    assert buffer.waiting_streams() == [ITEMS, ORDERS]
    assert (buffer.oldest(ITEMS), buffer.oldest(ORDERS)) == (0, 1)
    assert (buffer.waiting_bytes(ITEMS), buffer.waiting_bytes(ORDERS), dict(buffer.waiting())) == (
        12,
        2,
        {ORDERS: 2, ITEMS: 12},
    )

    buffer.take(ITEMS, 10)

    assert buffer.waiting_streams() == [ORDERS, ITEMS]
    assert (buffer.oldest(ITEMS), buffer.waiting_bytes(ITEMS)) == (2, 2)


def test_nothing_waits_in_an_empty_buffer(buffer: Buffer) -> None:
    assert (buffer.waiting_streams(), buffer.waiting_bytes(ORDERS), buffer.buffered_bytes) == ([], 0, 0)
    assert buffer.take(ORDERS, 100) == []


def test_append_returns_whether_a_batch_may_have_become_due(buffer: Buffer) -> None:
    assert buffer.append(ORDERS, b"a\n", 1, 0), "the first that waits: its age counts"
    assert not buffer.append(ORDERS, b"a\n", 1, 1)
    assert not buffer.append(ITEMS, b"a\n", 1, 0), "younger than what waits already"
    assert buffer.append(ORDERS, b"123456\n", 1, 2), "a segment is full"


# --- Disk space


def files(directory: Path) -> int:
    """Bytes that all files take."""
    return sum(path.stat().st_size for path in directory.iterdir())


def test_spare_files_are_kept_within_the_disk_budget(tmp_path: Path) -> None:
    buffer = Buffer(tmp_path, 10, 35, itertools.count().__next__)
    for first in range(6):
        buffer.append(ORDERS, b"123456789\n", 1, first)
    segments = buffer.take(ORDERS, 1000)
    assert (buffer.occupied_bytes, buffer.disk_bytes, files(tmp_path)) == (60, 60, 60)

    buffer.release(segments)

    assert (buffer.occupied_bytes, buffer.disk_bytes, files(tmp_path)) == (0, 30, 30)
    for first in range(3):
        buffer.append(StreamId(None, str(first)), b"abc\n", 1, 0)
    # What the short segments do not need of their files is taken all the same, until they are sealed.
    assert (buffer.buffered_bytes, buffer.occupied_bytes, files(tmp_path)) == (12, 30, 30)
    for first in range(3):
        buffer.take(StreamId(None, str(first)), 10)
    assert (buffer.buffered_bytes, buffer.occupied_bytes, files(tmp_path)) == (12, 12, 12)


def test_spare_files_are_deleted_when_the_disk_is_full(tmp_path: Path) -> None:
    buffer = Buffer(tmp_path, 10, 35, itertools.count().__next__)
    for first in range(2):
        buffer.append(ORDERS, b"123456789\n", 1, first)
    buffer.release(buffer.take(ORDERS, 1000))
    assert buffer.disk_bytes == 20

    buffer.append(ORDERS, b"x" * 29 + b"\n", 1, 2)

    assert (buffer.disk_bytes, files(tmp_path)) == (30, 30)


def test_all_spare_files_can_be_deleted(buffer: Buffer, tmp_path: Path) -> None:
    buffer.append(ORDERS, b"123456789\n", 1, 0)
    buffer.append(ITEMS, b"a\n", 1, 0)
    buffer.release(buffer.take(ORDERS, 1000))

    buffer.delete_spare_files()

    assert (buffer.disk_bytes, files(tmp_path)) == (2, 2)


def test_a_spare_file_that_cannot_be_deleted_is_a_failure_of_the_disk(tmp_path: Path) -> None:
    # Given a folder in place of a spare file: it cannot be deleted like a file
    buffer = Buffer(tmp_path, 10, 20, itertools.count().__next__)
    buffer.append(ITEMS, b"a\n", 1, 0)
    buffer.append(ORDERS, b"123456789\n", 1, 0)
    [segment] = buffer.take(ORDERS, 10)
    buffer.release([segment])
    segment.path.unlink()
    segment.path.mkdir()

    with pytest.raises(DiskFailed, match="The buffer disk"):
        buffer.append(ITEMS, b"b" * 17 + b"\n", 1, 1)
    buffer.delete_spare_files()


def test_a_released_stream_has_neither_waiting_records_nor_files(buffer: Buffer, tmp_path: Path) -> None:
    buffer.append(ORDERS, b"123456789\n", 1, 0)
    buffer.append(ORDERS, b"a\n", 1, 1)
    buffer.append(ITEMS, b"a\n", 1, 0)

    buffer.release_stream(ORDERS)
    buffer.delete_spare_files()

    assert (buffer.waiting_streams(), buffer.buffered_bytes, buffer.disk_bytes, files(tmp_path)) == ([ITEMS], 2, 2, 2)


def test_a_failed_append_leaves_the_segment_as_it_was(buffer: Buffer) -> None:
    buffer.append(ORDERS, b"a\n", 1, 0)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4, before[1]))
    try:
        for stream in (ORDERS, ITEMS):
            with pytest.raises(DiskFailed, match="The buffer disk"):
                buffer.append(stream, b"123456789\n", 1, 1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)

    assert (buffer.buffered_bytes, buffer.disk_bytes, buffer.waiting_streams()) == (2, 2, [ORDERS])
    assert [segment.path.read_bytes() for segment in buffer.take(ORDERS, 10)] == [b"a\n"]


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_many_streams_need_few_file_descriptors(tmp_path: Path) -> None:
    buffer = Buffer(tmp_path, 1000, 10**6, itertools.count().__next__)
    before = descriptors()
    streams = [StreamId(None, str(number)) for number in range(3 * MAX_OPEN_FILES)]
    for first in range(2):
        for stream in streams:
            buffer.append(stream, b"%d\n" % first, 1, first)

    assert descriptors() <= before + MAX_OPEN_FILES
    assert all(segment.path.read_bytes() == b"0\n1\n" for s in streams for segment in buffer.take(s, 10))
    assert descriptors() == before


@given(
    actions=st.lists(
        st.tuples(st.sampled_from(["append", "append", "take"]), st.sampled_from([ORDERS, ITEMS]), st.integers(1, 30))
    )
)
def test_every_record_is_taken_once_in_order_and_counted(
    actions: list[tuple[str, StreamId, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    buffer = Buffer(tmp_path_factory.mktemp("buffer"), 10, 40, itertools.count().__next__)
    sent: dict[StreamId, list[bytes]] = defaultdict(list)
    taken: dict[StreamId, list[Segment]] = defaultdict(list)
    for action, stream, size in actions:
        if action == "append":
            line = b"x" * size + b"\n"
            buffer.append(stream, line, 1, len(sent[stream]))
            sent[stream].append(line)
        else:
            taken[stream] += buffer.take(stream, size)
    for stream in (ORDERS, ITEMS):
        while segments := buffer.take(stream, 1000):
            taken[stream] += segments

        assert b"".join(segment.path.read_bytes() for segment in taken[stream]) == b"".join(sent[stream])
        counted = [0, *itertools.accumulate(segment.records for segment in taken[stream])]
        assert [segment.first_record for segment in taken[stream]] == counted[:-1]
        assert counted[-1] == len(sent[stream])
        assert all(segment.bytes == segment.path.stat().st_size for segment in taken[stream])
        assert buffer.waiting_bytes(stream) == 0
        buffer.release(taken[stream])
    assert (buffer.buffered_bytes, buffer.occupied_bytes, buffer.waiting_streams()) == (0, 0, [])


# --- Open segments

ORDERS = StreamId(None, "orders")


def segment_at(path: Path, old_bytes: int = 0) -> OpenSegment:
    return OpenSegment(ORDERS, path, old_bytes, first_record=7, since=1.5)


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
    segment = segment_at(path, old_bytes=15)
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


def closed_by_others(path: Path) -> int:
    """Close the descriptor of a file that this process has open, so that closing it again fails. Return its number."""
    [number] = [int(link.name) for link in Path("/proc/self/fd").iterdir() if link.exists() and link.samefile(path)]
    os.close(number)
    return number


def test_a_segment_whose_file_cannot_be_closed_fails_and_writes_to_no_other_file(tmp_path: Path) -> None:
    """Some file systems report failed writes only when the file is closed, so the segment may lack lines."""
    segment = segment_at(tmp_path / "segment")
    segment.append(b"a\n", 1)
    number = closed_by_others(segment.path)
    with pytest.raises(OSError, match="Bad file descriptor"):
        segment.close()

    # When another file gets the number of the closed descriptor
    with (tmp_path / "other").open("wb") as other:
        assert other.fileno() == number
        for use in (lambda: segment.append(b"b\n", 1), segment.seal):
            with pytest.raises(OSError, match="Bad file descriptor"):
                use()

    assert (tmp_path / "other").read_bytes() == b""
    segment.close()


def test_a_file_that_cannot_be_closed_fails_the_append_and_later_its_own_segment(tmp_path: Path) -> None:
    # Given a buffer that closes the file of orders before it writes items
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (4, before[1]))
    try:
        buffer = Buffer(tmp_path, 10, 1000, itertools.count().__next__)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    buffer.append(ORDERS, b"a\n", 1, 0)
    closed_by_others(tmp_path / "00000001.jsonl")

    with pytest.raises(DiskFailed, match="The buffer disk"):
        buffer.append(ITEMS, b"b\n", 1, 0)

    assert (buffer.waiting_streams(), buffer.disk_bytes, buffer.take(ITEMS, 10)) == ([ORDERS], 2, [])
    with pytest.raises(DiskFailed, match="The buffer disk"):
        buffer.take(ORDERS, 10)
    buffer.append(ITEMS, b"b\n", 1, 0)
    assert [segment.path.read_bytes() for segment in buffer.take(ITEMS, 10)] == [b"b\n"]


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
