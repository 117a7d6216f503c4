"""Arrow: time zones, INT96, statistics, and pandas at the first conversion."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

pytestmark = pytest.mark.slow


def test_there_is_no_daylight_saving_time_after_2037() -> None:
    moments = [datetime(year, 7, 1, tzinfo=UTC) for year in (2037, 2038)]
    summers: Any = pa.array(moments, pa.timestamp("us", "Europe/Berlin"))

    local = pc.local_timestamp(summers)

    assert local.to_pylist() == [datetime(2037, 7, 1, 2), datetime(2038, 7, 1, 1)]


def test_int96_timestamps_after_2262_overflow_unless_their_unit_is_given() -> None:
    moments: Any = pa.array([datetime(9999, 1, 1)], pa.timestamp("us"))
    file = io.BytesIO()
    pq.write_table(pa.table({"at": moments}), file, use_deprecated_int96_timestamps=True, store_schema=False)

    default = pq.ParquetFile(pa.BufferReader(file.getvalue())).read().column("at")
    given = pq.ParquetFile(pa.BufferReader(file.getvalue()), coerce_int96_timestamp_unit="us").read().column("at")

    assert default.cast(pa.timestamp("us"), safe=False)[0].as_py() != moments[0].as_py()
    assert given.chunk(0).equals(moments)


PEAK = """
import io
import sys
import pyarrow as pa
import pyarrow.parquet as pq
rows = pa.table({"text": ["x" * (32 * 1024 * 1024)]})
before = pa.total_allocated_bytes()
pq.write_table(rows, io.BytesIO(), use_dictionary=False, write_statistics=sys.argv[1] == "statistics")
print((pa.default_memory_pool().max_memory() - before) / (32 * 1024 * 1024))
"""


def test_statistics_of_huge_values_take_several_copies_of_them() -> None:
    without, with_statistics = (
        float(subprocess.run([sys.executable, "-c", PEAK, mode], capture_output=True, text=True, timeout=60).stdout)
        for mode in ("none", "statistics")
    )

    assert with_statistics >= without + 2


IMPORTED = "import sys, pyarrow; pyarrow.array([1]); print('pandas' in sys.modules)"


def test_pandas_is_imported_at_the_first_conversion_of_a_value() -> None:
    ended = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True, timeout=60)

    assert ended.stdout == "True\n", ended.stderr


def test_column_metadata_that_contradicts_the_schema_aborts_the_process() -> None:
    aborts = """
import io, pyarrow as pa, pyarrow.parquet as pq
file = io.BytesIO()
pq.write_table(pa.table({"id": [1]}), file, store_schema=False)
optional = bytes([0x25, 0x02, 0x18, 2]) + b"id"
damaged = file.getvalue().replace(optional, optional.replace(b"\\x02", b"\\x00", 1))
metadata = pq.ParquetFile(pa.BufferReader(damaged)).metadata
print("read", flush=True)
metadata.row_group(0).column(0)
"""
    done = subprocess.run([sys.executable, "-c", aborts], capture_output=True, text=True, check=False)

    assert (done.stdout, done.returncode) == ("read\n", -signal.SIGABRT)
    assert "histogram size mismatch" in done.stderr
