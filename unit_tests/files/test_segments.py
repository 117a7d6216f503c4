"""Segments as executors read them from S3: whole and unchanged, whatever happens to the answers."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.compat import HTTPHeaders
from urllib3.exceptions import ProtocolError, ReadTimeoutError

from destination_datalake.files import segments as reading
from destination_datalake.files.segments import (
    SegmentGone,
    SegmentUnreadable,
    StagedObject,
    StagedSegment,
    contents,
)
from unit_tests.cloud import BUCKET, Cloud, another_client, on_disk

CONTENT = random.Random(1).randbytes(3 * 1024 * 1024 + 7)
URI = f"s3://{BUCKET}/_staging/sync/1.jsonl"

Body = Callable[[bytes], io.BytesIO]
"""What an executor gets to read of a range of the segment."""


@pytest.fixture
def staged(cloud: Cloud) -> StagedSegment:
    return stage(cloud, CONTENT)


def stage(cloud: Cloud, content: bytes, name: str = "1.jsonl") -> StagedSegment:
    key = f"_staging/sync/{name}"
    answer = cloud.access.client("s3").put_object(Bucket=BUCKET, Key=key, Body=content)
    return StagedSegment(StagedObject(f"s3://{BUCKET}/{key}", answer["ETag"]), len(content))


def read(cloud: Cloud, *segments: StagedSegment) -> list[bytes]:
    return [bytes(content.lines) for content in contents(segments, cloud.access)]


class Ends(io.BytesIO):
    """A body that ends after so many bytes, with an error or as if it were complete."""

    def __init__(self, content: bytes, after: int, error: Exception | None = None) -> None:
        super().__init__(content[:after])
        self._error = error

    def read(self, size: int | None = -1, /) -> bytes:
        piece = super().read(size)
        if self._error is not None:
            raise self._error
        return piece


@contextmanager
def answering(cloud: Cloud, bodies: Iterable[Body]) -> Iterator[list[str]]:
    """Answer requests for objects with these bodies; lend the list of requests, as it grows."""
    following = iter(bodies)
    asked: list[str] = []

    def answer(request: AWSPreparedRequest, **_: object) -> Any:
        asked.append(str(request.url))
        headers = HTTPHeaders()
        headers["Content-Length"] = str(len(CONTENT))
        return AWSResponse(str(request.url), 200, headers, next(following)(CONTENT))

    events = cloud.access.client("s3").meta.events
    events.register_first("before-send.s3.GetObject", answer)
    try:
        yield asked
    finally:
        events.unregister("before-send.s3.GetObject", answer)


def test_segments_on_disk_and_in_s3_are_read_in_order(cloud: Cloud, tmp_path: Path) -> None:
    (tmp_path / "local").write_bytes(b"first\n")
    segments = [on_disk(tmp_path / "local"), *(stage(cloud, f"{n}\n".encode() * n, f"{n}") for n in range(2, 6))]

    assert read(cloud, *segments) == [b"first\n", *(f"{n}\n".encode() * n for n in range(2, 6))]


CUTS: Sequence[Body] = (
    lambda content: Ends(content, 1_500_000),
    lambda content: Ends(content, 1_200_000, ProtocolError("Connection broken", ConnectionResetError())),
    lambda content: Ends(content, 0, ReadTimeoutError(None, "", "Read timed out.")),  # type: ignore[arg-type]
    lambda content: Ends(content, 100, ConnectionResetError()),
    io.BytesIO,
)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _seconds: None)


def test_what_is_truncated_or_reset_is_requested_again(cloud: Cloud, staged: StagedSegment) -> None:
    with answering(cloud, CUTS) as asked:
        assert read(cloud, staged) == [CONTENT]

    assert len(asked) == len(CUTS)


def test_answers_that_are_never_complete_end_in_a_sentence(cloud: Cloud, staged: StagedSegment) -> None:
    bodies = [lambda content: Ends(content, 10, ConnectionResetError())] * 99

    with answering(cloud, bodies), pytest.raises(SegmentUnreadable) as failed:
        read(cloud, staged)

    assert failed.value.failure.type == "transient_error"
    assert URI in failed.value.failure.message


@pytest.mark.parametrize(
    "change",
    [
        lambda s3, key: s3.delete_object(Bucket=BUCKET, Key=key),
        lambda s3, key: s3.put_object(Bucket=BUCKET, Key=key, Body=CONTENT[::-1]),
        lambda s3, key: s3.put_object(Bucket=BUCKET, Key=key, Body=b""),
    ],
    ids=["deleted", "replaced", "emptied"],
)
def test_deleted_or_replaced_segment_is_not_read(
    cloud: Cloud, staged: StagedSegment, change: Callable[[Any, str], object]
) -> None:
    change(cloud.access.client("s3"), URI.removeprefix(f"s3://{BUCKET}/"))

    with pytest.raises(SegmentGone) as failed:
        read(cloud, staged)

    assert failed.value.failure.type == "transient_error"
    assert URI in failed.value.failure.message


def test_deleted_segment_is_gone_where_s3_answers_403(cloud: Cloud, staged: StagedSegment) -> None:
    cloud.access.client("s3").delete_object(Bucket=BUCKET, Key=URI.removeprefix(f"s3://{BUCKET}/"))

    with cloud.refusing("GetObject"), pytest.raises(SegmentGone):
        read(cloud, staged)


def test_one_segment_is_downloaded_ahead_and_no_large_one(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "READ_AHEAD_BYTES", 5)
    asked: list[str] = []
    access = another_client()
    segments = [stage(cloud, b"x" * size, str(number)) for number, size in enumerate([1, 2, 9, 3, 1])]
    events = access.client("s3").meta.events
    events.register("before-call.s3.GetObject", lambda params, **_: asked.append(params["url_path"][-1]))

    ahead = [max(map(int, asked)) - number for number, _ in enumerate(contents(segments, access))]

    assert max(ahead) <= 1
    assert ahead[1] == 0
    assert asked == ["0", "1", "2", "3", "4"]


def test_a_failure_elsewhere_ends_the_download_ahead(cloud: Cloud) -> None:
    segments = [stage(cloud, b"x", str(number)) for number in range(3)]
    reader = contents(segments, cloud.access)
    next(reader)

    reader.close()  # type: ignore[attr-defined]

    with pytest.raises(StopIteration):
        next(reader)
