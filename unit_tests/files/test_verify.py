"""Damaged data files, as `verify` reads them."""

from __future__ import annotations

import gzip
import io
import random
import re
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from destination_datalake.aws.objects import Upload
from destination_datalake.files import verify as verifying
from destination_datalake.files.parquet import write_position_deletes
from destination_datalake.files.plan import UNKNOWN, ExpectedFileStats, SourceFile
from destination_datalake.files.rewrite import writer_like
from destination_datalake.files.verify import VerifyTask, verify
from unit_tests.cloud import BUCKET, Cloud
from unit_tests.files.stored import field
from unit_tests.files.written import written

URI = f"s3://{BUCKET}/file"
Write = Callable[[Cloud], bytes]
ROWS = pa.table(
    [range(500), [f"name {number % 7}" for number in range(500)], [number / 3 for number in range(500)]],
    schema=pa.schema([field(1, "id", pa.int64()), field(2, "name", pa.string()), field(3, "price", pa.float64())]),
)


def encoded(cloud: Cloud) -> bytes:
    return written(cloud, "parquet", "SNAPPY", ROWS)[0]


def rewritten(cloud: Cloud) -> bytes:
    original = io.BytesIO()
    pq.write_table(ROWS, original)
    upload = Upload(cloud.access.client("s3"), URI, deferred=False)
    with writer_like(pq.ParquetFile(original), ROWS.schema, upload) as writer:
        writer.write_table(ROWS)
    upload.close()
    return cloud.objects()["file"]


def deletes(cloud: Cloud) -> bytes:
    upload = Upload(cloud.access.client("s3"), URI, deferred=False)
    write_position_deletes(f"s3://{BUCKET}/other", np.arange(0, 5000, 3), upload)
    upload.close()
    return cloud.objects()["file"]


def problems(cloud: Cloud, content: bytes, schema: pa.Schema | None, rows: int = UNKNOWN) -> tuple[str, ...]:
    cloud.access.client("s3").put_object(Bucket=BUCKET, Key="file", Body=content)
    claim = ExpectedFileStats(SourceFile(URI, len(content), rows), "parquet", schema)
    [result] = verify([VerifyTask((claim,), cloud.access)])
    return getattr(result, "problems", (repr(result),))


def flipped(content: bytes, bit: int) -> bytes:
    damaged = bytearray(content)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


def values(content: bytes) -> pa.Table | None:
    """The rows as a reader finds them that does not look at checksums; None if it finds none."""
    try:
        return pq.ParquetFile(pa.BufferReader(content)).read(use_threads=False)
    except (pa.ArrowException, OSError):
        return None


@pytest.mark.parametrize("write", [encoded, rewritten, deletes])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 40))])
def test_a_flipped_bit_that_changes_values_is_found(cloud: Cloud, write: Write, seed: int) -> None:
    content, draw = write(cloud), random.Random(seed)
    schema = None if write is deletes else ROWS.schema
    right = values(content)
    assert right is not None
    assert problems(cloud, content, schema, right.num_rows) == ()
    changed = 0

    while changed < 2:
        damaged = flipped(content, draw.randrange(8 * len(content)))
        if values(damaged) != right:
            changed += 1
            assert problems(cloud, damaged, schema, right.num_rows)


@pytest.mark.parametrize(("kind", "compress"), [("", bytes), (".gz", gzip.compress)])
def test_a_line_beyond_the_limit_is_a_problem(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, kind: str, compress: Callable[[bytes], bytes]
) -> None:
    monkeypatch.setattr(verifying, "MAX_MEMBER_BYTES", 20)
    content = compress(b'{"id": 1}\n{"id": ' + b"1" * 12 + b"}\n")

    def lines_problems() -> tuple[str, ...]:
        cloud.access.client("s3").put_object(Bucket=BUCKET, Key=f"file.jsonl{kind}", Body=content)
        source = SourceFile(f"{URI}.jsonl{kind}", len(content), UNKNOWN)
        [result] = verify([VerifyTask((ExpectedFileStats(source, "jsonl", None),), cloud.access)])
        return getattr(result, "problems", (repr(result),))

    assert lines_problems() == ("exceeds the limit of 20 bytes per line in line 2",)
    monkeypatch.setattr(verifying, "MAX_MEMBER_BYTES", 21)
    assert lines_problems() == ()


def test_a_footer_at_which_arrow_aborts_is_found(cloud: Cloud) -> None:
    content = encoded(cloud)
    optional = bytes([0x25, 0x02, 0x18, 2]) + b"id"  # OPTIONAL, then the name, in Thrift's compact protocol.
    [place] = [match.start() for match in re.finditer(re.escape(optional), content)]

    assert problems(cloud, flipped(content, 8 * (place + 1) + 1), ROWS.schema) == ("cannot be read as Parquet",)
