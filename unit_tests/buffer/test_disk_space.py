"""The local disk while segments are uploaded: every byte is uploaded once, and files are reused only after that."""

from __future__ import annotations

import itertools
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from destination_datalake.buffer.backlog import MAX_STAGED_BUFFERS, Backlog
from destination_datalake.buffer.batching import BatchPolicy
from destination_datalake.buffer.buffer import Buffer
from destination_datalake.buffer.disk import MiB
from destination_datalake.protocol.catalog import StreamId
from unit_tests.buffer.uploads import SlowUploads
from unit_tests.examples import examples

ORDERS, ITEMS = StreamId(None, "orders"), StreamId(None, "items")


def files(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.iterdir())


steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.sampled_from([ORDERS, ITEMS]), st.integers(1, 25)),
        st.tuples(st.just("upload"), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("land"), st.sampled_from([ORDERS, ITEMS]), st.integers(1, 60)),
        st.tuples(st.just("fail"), st.sampled_from([ORDERS, ITEMS]), st.just(0)),
    ),
    max_size=60,
)


@pytest.mark.law
@settings(max_examples=examples(500), deadline=None)
@given(steps=steps)
def test_whatever_the_order_every_byte_is_uploaded_once_and_the_disk_is_accounted_for(
    steps: list[tuple[str, object, int]],
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        staging = SlowUploads()
        buffer = Buffer(Path(directory), 10, 50, itertools.count().__next__, staging)
        staging.on_free_file(buffer.free_file)
        lines = (b"%05d\n" % number for number in itertools.count())
        numbers = {ORDERS: itertools.count(), ITEMS: itertools.count()}
        written: dict[StreamId, bytes] = {ORDERS: b"", ITEMS: b""}
        for step, target, size in steps:
            match step, target:
                case "append", StreamId() as stream:
                    content = b"".join(itertools.islice(lines, size))
                    buffer.append(stream, content, size, next(numbers[stream]))
                    written[stream] += content
                case "upload", int() as position if staging.waiting:
                    staging.end_one(position % len(staging.waiting))
                case "land", StreamId() as stream:
                    taken = buffer.take(stream, size)
                    buffer.release(taken)
                case "fail", StreamId() as stream:
                    buffer.release_stream(stream)
            assert buffer.disk_bytes == files(Path(directory))
            assert buffer.uploading_bytes == sum(segment.bytes for segment in staging.waiting)
            assert buffer.occupied_bytes >= buffer.uploading_bytes
        while staging.waiting:
            staging.end_one()
        for stream in (ORDERS, ITEMS):
            of_stream = [content for segment, content in staging.uploaded.items() if segment.stream == stream]
            assert all(content in written[stream] for content in of_stream)
            assert all(len(content) == segment.bytes for segment, content in staging.uploaded.items())
            buffer.release_stream(stream)
        buffer.delete_spare_files()
        assert (buffer.buffered_bytes, buffer.disk_bytes, files(Path(directory))) == (0, 0, 0)


@pytest.fixture
def staging() -> SlowUploads:
    return SlowUploads()


@pytest.fixture
def backlog(tmp_path: Path, staging: SlowUploads) -> Backlog:
    """Segments of 1 MiB, a disk budget of 10 MiB."""
    backlog = Backlog(Buffer(tmp_path, MiB, 10 * MiB, time.monotonic, staging), BatchPolicy(MiB), 3600)
    staging.on_free_file(backlog.buffer.free_file)
    return backlog


def fill(backlog: Backlog, megabytes: int, first: int = 0) -> None:
    for number in range(megabytes):
        backlog.buffer.append(ORDERS, bytes(MiB), 1, first + number)


def test_a_disk_full_of_uploads_stops_reading_and_cuts_no_batch_short(backlog: Backlog, staging: SlowUploads) -> None:
    fill(backlog, 10)
    assert (backlog.is_full(0, 0), backlog.must_flush(0, 0)) == (True, False)

    staging.end_one()

    assert not backlog.is_full(0, 0)
    assert backlog.buffer.buffered_bytes == 10 * MiB


def test_full_disk_must_flush_if_uploads_would_not_free_it(backlog: Backlog) -> None:
    for number in range(11):
        backlog.buffer.append(StreamId(None, str(number)), bytes(MiB - 1), 1, 0)

    assert (backlog.is_full(0, 0), backlog.must_flush(0, 0)) == (True, True)


def test_what_is_staged_is_limited_although_it_is_not_on_the_disk(backlog: Backlog, staging: SlowUploads) -> None:
    for number in range(10 * MAX_STAGED_BUFFERS):
        assert not backlog.is_full(0, 0)
        fill(backlog, 1, first=number)
        staging.end_one()

    assert (backlog.is_full(0, 0), backlog.must_flush(0, 0), backlog.buffer.occupied_bytes) == (True, True, 0)


def test_a_file_is_reused_once_it_is_uploaded(backlog: Backlog, staging: SlowUploads, tmp_path: Path) -> None:
    for number in range(5):
        fill(backlog, 1, first=number)
        staging.end_one()

    assert len([*tmp_path.glob("*.jsonl")]) == 1
