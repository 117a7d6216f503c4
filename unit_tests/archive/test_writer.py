"""The object of a unit's lines: what is in it, when it is visible, and what is left of a unit that fails."""

from __future__ import annotations

import gzip
import random
from dataclasses import replace
from pathlib import Path

import pytest

from destination_datalake.archive import lines as writing
from destination_datalake.archive.lines import ArchiveWriter
from destination_datalake.aws.objects import PART_BYTES, DeferredUpload, ObjectFailed, PendingUpload, gunzipped
from unit_tests.archive.archive import KEY, LINES, Archiving
from unit_tests.cloud import BUCKET, Cloud

NAME = f"{KEY}/dt=2025-11-24/0a-000001-0000-ff.jsonl.gz"


def writer_of(cloud: Cloud, bucket: str = BUCKET) -> ArchiveWriter:
    sync = Archiving(cloud, "0a").begin()
    location, file = sync.location, sync.written("000001-0000-ff")
    file.pending_upload.abort(cloud.access.client("s3"))
    location = location if bucket == BUCKET else replace(location, folder=f"s3://{bucket}/x")
    return ArchiveWriter(location, file.content, cloud.access.client("s3"))


@pytest.mark.parametrize("held", [True, False], ids=["held", "uploaded"])
def test_lines_are_visible_once_published_with_metadata_that_say_whose_they_are(
    cloud: Cloud, tmp_path: Path, held: bool
) -> None:
    sync = Archiving(cloud, "0a").begin()

    file = sync.written("000001-0000-ff", spool_folder=tmp_path if held else None)

    assert isinstance(file.pending_upload, DeferredUpload if held else PendingUpload)
    assert NAME not in cloud.objects()
    sync.ledger.publish([file])
    assert gzip.decompress(cloud.objects()[NAME]) == LINES
    assert file.uri == f"s3://{BUCKET}/{NAME}"
    head = cloud.access.client("s3").head_object(Bucket=BUCKET, Key=NAME)
    assert head["Metadata"] == sync.location.metadata(file.content)
    assert cloud.unfinished_uploads() == [] == [*tmp_path.iterdir()]


def test_a_member_begins_with_a_line_and_ends_after_the_block_that_fills_it(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "MEMBER_BYTES", 10)
    writer = writer_of(cloud)
    for block in (b"1234\n", b"123\n12\n", b"1234567890123\n", memoryview(b"1\n")):
        writer.write(block)

    writer.close().pending_upload.publish(cloud.access.client("s3"))

    content = cloud.objects()[NAME]
    assert [bytes(member) for member in gunzipped([content])] == [b"1234\n123\n12\n", b"1234567890123\n", b"1\n"]
    assert gzip.decompress(content) == b"1234\n123\n12\n1234567890123\n1\n"


@pytest.mark.parametrize("size", [1, 2 * PART_BYTES], ids=["small", "of several parts"])
@pytest.mark.parametrize("closed", [True, False], ids=["closed", "open"])
def test_nothing_is_left_of_what_is_aborted(cloud: Cloud, closed: bool, size: int) -> None:
    writer = writer_of(cloud)
    writer.write(random.Random(1).randbytes(size))
    if closed:
        writer.close()

    writer.abort()
    writer.abort()

    assert NAME not in cloud.objects()
    assert cloud.unfinished_uploads() == []


def test_what_cannot_be_written_names_the_object_and_keeps_the_reason(cloud: Cloud) -> None:
    for act in (ArchiveWriter.close, lambda writer: [writer.write(random_bytes()) for _ in range(3)]):
        writer = writer_of(cloud, "nobody-s-bucket")

        with pytest.raises(ObjectFailed) as raised:
            act(writer)

        assert raised.value.uri == "s3://nobody-s-bucket/x/dt=2025-11-24/0a-000001-0000-ff.jsonl.gz"
        assert isinstance(raised.value.__cause__, cloud.access.client("s3").exceptions.NoSuchBucket)
        writer.abort()


def random_bytes() -> bytes:
    """As many as are a part of an upload: they cannot be compressed."""
    return random.randbytes(PART_BYTES)
