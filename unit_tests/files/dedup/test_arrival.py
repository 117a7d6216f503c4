"""`_airbyte_raw_id`: its order is that in which the records were sent."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from destination_datalake.aws.access import AwsAccess
from destination_datalake.buffer.batching import Batch
from destination_datalake.buffer.staging import LocalStaging, Segment
from destination_datalake.files.block_tables import new_first_id, parse_ingest_order, row_ids
from destination_datalake.files.encode import encode
from destination_datalake.files.plan import (
    MIN_TASK_BYTES,
    Deduplication,
    Encoded,
    EncodeTask,
    EncodeUnit,
    FilePlan,
    IngestOrder,
    UnitResult,
    split_into_tasks,
)
from destination_datalake.files.segments import LocalFile, StagedSegment
from destination_datalake.partitioning.spec import SortField, SortOrder
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.records.decoder import BlockDecoder
from destination_datalake.rejects.ledger import RejectLimit, RejectLocation
from destination_datalake.schema.types import Field, Int64
from destination_datalake.sync.landing import Encoding, Landing, StreamTables
from destination_datalake.sync.progress import ActiveStages
from destination_datalake.tables.table import TableName
from unit_tests.cloud import BUCKET, Cloud, on_disk
from unit_tests.sync.fakes.executors import FakeExecutors
from unit_tests.sync.fakes.sync import ACCESS, new_rejects
from unit_tests.sync.fakes.table import FakeTable

pytestmark = pytest.mark.share(3)

STARTED = 1_700_000_000_000
COLUMNS = (Field("number", "number", Int64()), Field("value", "value", Int64()))
PLAN = FilePlan(
    format="parquet",
    codec="ZSTD",
    columns=COLUMNS,
    field_ids={},
    folder=f"s3://{BUCKET}/shop/orders",
    deferred=False,
    target_bytes=128 * 1024 * 1024,
    generation=None,
    sync_id=None,
    dedup=Deduplication(("number",)),
)
REJECTS = RejectLocation(f"s3://{BUCKET}/_errors", "run", "2026-11-21", "shop", "orders")

REFUSED = ("out of time", "nested")
VALUES = {
    "regular": b"1",
    "nulled": b'"many"',
    "nested": b"[" * 20_000 + b"]" * 20_000,
    "beyond a double": b"1e999",
    "a lone surrogate": b'"\\ud800"',
    "not UTF-8": b'"\xff"',
    "out of time": b"1",
}

kinds = st.sampled_from([*VALUES])
runs = st.lists(st.tuples(kinds, st.sampled_from([1, 1, 2, 65])), min_size=1, max_size=6)
"""Kinds of neighbouring lines, and how many."""
blocks = runs.map(lambda drawn: [kind for kind, count in drawn for _ in range(count)])


def line(number: int, kind: str) -> bytes:
    time = b"1e300" if kind == "out of time" else b"1700000000000"
    return b'{"type":"RECORD","record":{"stream":"orders","data":{"number":%d,"value":%b},"emitted_at":%b}}\n' % (
        number,
        VALUES[kind],
        time,
    )


@settings(max_examples=30)
@given(units=st.lists(st.lists(blocks, min_size=1, max_size=3), min_size=1, max_size=3), data=st.data())
def test_raw_ids_ascend_in_the_order_of_lines_blocks_parts_and_batches(
    units: Sequence[Sequence[Sequence[str]]], data: st.DataObject
) -> None:
    """Whatever lines are irregular: those are read before others of their block, and refused ones are left out."""
    arrivals = sorted(
        data.draw(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 4095)), min_size=len(units), unique=True))
    )
    sent: list[int] = []
    rows: list[tuple[str, int]] = []
    number = 0
    for (batch, part), unit in zip(arrivals, units, strict=False):
        decoder, first_id = BlockDecoder(COLUMNS), new_first_id(IngestOrder(STARTED + batch, part))
        for kinds_of_lines in unit:
            numbered = [*enumerate(kinds_of_lines, number)]
            number += len(numbered)
            sent += [line_number for line_number, kind in numbered if kind not in REFUSED]
            for decoded in decoder.decode(b"".join(line(*numbered_line) for numbered_line in numbered)):
                of_rows: Any = row_ids(first_id, decoded.lines.numbers)
                numbers: Any = decoded.columns[0]
                rows += zip(of_rows.to_pylist(), numbers.to_pylist(), strict=True)
                lines = [decoded.lines[row] for row in range(decoded.rows)]
                assert lines == [line(n, kinds_of_lines[n - numbered[0][0]])[:-1] for n in numbers.to_pylist()]

    assert [line_number for _, line_number in sorted(rows)] == sent
    assert len({id_ for id_, _ in rows}) == len(rows)


@given(milliseconds=st.integers(0, 2**48 - 1), part=st.integers(0, 4095), place=st.integers(0, 2**32 - 1))
def test_raw_ids_are_uuids_of_version_7_with_batch_part_and_line(milliseconds: int, part: int, place: int) -> None:
    [text] = row_ids(new_first_id(IngestOrder(milliseconds, part)), np.array([place])).to_pylist()

    id_ = uuid.UUID(text)
    assert str(id_) == text
    assert (id_.version, id_.variant) == (7, uuid.RFC_4122)
    assert (id_.int >> 80, id_.int >> 64 & 0xFFF, id_.int & 0xFFFFFFFF) == (milliseconds, part, place)
    assert parse_ingest_order(text) == IngestOrder(milliseconds, part)


def test_attempts_at_a_unit_have_raw_ids_of_their_own() -> None:
    order = IngestOrder(STARTED, 0)

    assert len({row_ids(new_first_id(order), np.zeros(1, np.int64)).to_pylist()[0] for _ in range(100)}) == 100


def test_each_part_of_a_batch_has_its_place() -> None:
    segments = tuple(StagedSegment(LocalFile(str(number)), MIN_TASK_BYTES) for number in range(3))
    batch = EncodeUnit(StreamId(None, "orders"), "batch", segments, PLAN, REJECTS, ingest_order=IngestOrder(STARTED, 0))

    tasks = split_into_tasks([batch], 3, AwsAccess("eu-west-1"))

    assert [unit.ingest_order for task in tasks for unit in task.units] == [
        IngestOrder(STARTED, part) for part in range(3)
    ]


@pytest.mark.parametrize("dedup", [None, Deduplication(("number",))])
def test_the_batches_of_a_sync_have_their_places(tmp_path: Path, dedup: Deduplication | None) -> None:
    """Rows that are appended may be deduplicated by a later sync."""
    stream, table, seen = StreamId(None, "orders"), FakeTable(TableName("shop", "orders")), list[EncodeUnit]()
    executors = FakeExecutors()
    executors.encode = lambda tasks: _noted(tasks, seen, executors)  # type: ignore[method-assign]
    table.plan = lambda: replace(PLAN, dedup=dedup)  # type: ignore[method-assign]
    path = tmp_path / "segment.jsonl"
    path.write_bytes(line(1, "regular"))
    segment = Segment(stream, path, 0, 1, path.stat().st_size, 0.0)
    landing = Landing(
        StreamTables({stream: lambda: table}, ACCESS),
        Encoding(executors, LocalStaging(), ACCESS, "sync", clock=lambda: STARTED / 1000),
        new_rejects(RejectLimit()),
        lambda _: None,
        lambda _: True,
        ActiveStages(),
    )

    for number in (1, 7):
        landing.land([Batch(stream, number, (segment,))])
    landing.close(lambda: False)

    assert [unit.ingest_order for unit in seen] == [IngestOrder(STARTED + 1, 0), IngestOrder(STARTED + 7, 0)]


def _noted(tasks: Sequence[EncodeTask], seen: list[EncodeUnit], executors: FakeExecutors) -> list[UnitResult]:
    units = [unit for task in tasks for unit in task.units]
    seen += units
    return [executors.encode_unit(unit) for unit in units]


@pytest.mark.parametrize("sorted_by", [None, SortOrder((SortField(("value",)),), 1)])
def test_rows_of_files_have_raw_ids_in_the_order_of_arrival(
    cloud: Cloud, tmp_path: Path, sorted_by: SortOrder | None
) -> None:
    """In whatever order they are written."""
    order = ["regular", "not UTF-8", "regular", "nulled", "a lone surrogate", "regular"]
    path = tmp_path / "segment.jsonl"
    path.write_bytes(b"".join(line(number, kind) for number, kind in enumerate(order)))
    plan = replace(PLAN, sort_order=sorted_by)
    batch = EncodeUnit(
        StreamId(None, "orders"), "batch", (on_disk(path),), plan, REJECTS, ingest_order=IngestOrder(STARTED, 0)
    )

    [result] = encode(split_into_tasks([batch], 1, cloud.access))

    assert isinstance(result, Encoded), result
    tables = [pq.read_table(cloud.arrow(file.uri.removeprefix(f"s3://{BUCKET}/"))) for file in result.files]
    rows = pa.concat_tables(tables).sort_by("_airbyte_raw_id").to_pylist()
    assert [row["number"] for row in rows] == [*range(len(order))]
