"""The memory of a task depends on a row group and a block, not on how many rows of how many columns there are."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

COLUMNS = 1_000
ROW_GROUP_ROWS = 8_000
"""So many rows of so many numbers are a row group of 64 MiB in Arrow's memory, however few of them are not null."""

ENCODE = """
import sys
from pathlib import Path
from destination_datalake.files.encode import encode
from destination_datalake.files.plan import FilePlan
from destination_datalake.files.segments import LocalFile, StagedSegment
from destination_datalake.files.plan import Encoded, EncodeTask, EncodeUnit
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.rejects.ledger import RejectLocation
from destination_datalake.schema.types import Field, Int64
from unit_tests.memory import peak_memory

class Sink:
    def client(self, _service):
        return self

    def __getattr__(self, _operation):
        return lambda **_: {"UploadId": "id", "ETag": "etag"}

path = Path(sys.argv[1])
columns = tuple(Field(f"c{n}", f"c{n}", Int64()) for n in range(int(sys.argv[2])))
plan = FilePlan("parquet", "ZSTD", columns, {}, "s3://lake/t", False, 1 << 30, 1, 1)
rejects = RejectLocation("s3://lake/_errors", "run", "2026-11-21", "db", "t")
segment = StagedSegment(LocalFile(str(path)), path.stat().st_size)
unit = EncodeUnit(StreamId(None, "s"), "unit", (segment,), plan, rejects)
before = peak_memory()
[result] = encode([EncodeTask((unit,), Sink())])
assert isinstance(result, Encoded), result
[file] = result.files
print(file.rows, peak_memory() - before)
"""


def peak(folder: Path, rows: int) -> int:
    """Return the peak of the memory that a task takes for sparse rows, in bytes. Each row has five values."""
    path = folder / str(rows)
    with path.open("w") as lines:
        for row in range(rows):
            data = {f"c{(row * 7 + n * 131) % COLUMNS}": row for n in range(5)}
            body = {"stream": "s", "data": data, "emitted_at": 1}
            lines.write(json.dumps({"type": "RECORD", "record": body}) + "\n")
    command = [sys.executable, "-c", ENCODE, str(path), str(COLUMNS)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert ended.returncode == 0, ended.stderr
    written, most = map(int, ended.stdout.split())
    assert written == rows
    return most


@pytest.mark.slow
def test_memory_is_bounded_for_sparse_rows_of_many_columns(tmp_path: Path) -> None:
    three_row_groups = peak(tmp_path, 3 * ROW_GROUP_ROWS)

    assert peak(tmp_path, 6 * ROW_GROUP_ROWS) < 1.25 * three_row_groups < 160 * 1024 * 1024
