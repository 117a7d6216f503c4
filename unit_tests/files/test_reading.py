"""Large Parquet files, of which memory holds a row group, and the next one."""

from __future__ import annotations

from threading import Event
from typing import Any

import pyarrow as pa
import pytest

from destination_datalake.files.reading import OpenedFile, StoredFile
from unit_tests.cloud import Cloud, during
from unit_tests.files.stored import field, put

SCHEMA = pa.schema([field(1, "id", pa.int64()), field(2, "a.b", pa.string()), field(3, "a", pa.string())])
ROWS = 3000


@pytest.fixture
def lake(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Cloud:
    import destination_datalake.files.reading as reading

    monkeypatch.setattr(reading, "_MAX_WHOLE_BYTES", 0)
    monkeypatch.setattr(reading, "_FOOTER_BYTES", 70_000)
    monkeypatch.setattr(reading, "_MAX_GAP_BYTES", 0)
    return cloud


def opened(lake: Cloud) -> OpenedFile:
    texts = [f"{number:0100}" for number in range(ROWS)]
    rows = pa.table([range(ROWS), texts, texts], schema=SCHEMA)
    file = put(lake, "large", rows, row_group_size=ROWS // 3, compression="none", use_dictionary=False)
    return OpenedFile(StoredFile(file, lake.access.client("s3")))


def test_the_next_row_group_is_requested_while_one_is_in_use(lake: Cloud) -> None:
    file = opened(lake)
    requested = [Event() for _ in range(2)]
    ids: list[int | None] = []
    waiting = iter(requested)

    def notice(**_: Any) -> None:
        next(waiting).set()

    project = file.projection(SCHEMA)
    with during(lake.access, "before-call.s3.GetObject", notice):
        for _, table in file.read(file.groups[:2], project):
            ids += table.column("id").to_pylist()
            assert requested[1].wait(60)

    assert ids == [*range(2 * ROWS // 3)]


def test_only_columns_that_are_needed_are_requested(lake: Cloud) -> None:
    file = opened(lake)
    ranges: list[str] = []

    def notice(params: Any, **_: Any) -> None:
        ranges.append(params["headers"]["Range"])

    project = file.projection(pa.schema([SCHEMA.field("id")]))
    with during(lake.access, "before-call.s3.GetObject", notice):
        numbers = [number for _, table in file.read(file.groups, project) for number in table.column("id").to_pylist()]

    assert numbers == [*range(ROWS)]
    sizes = [
        int(end) - int(start) + 1 for start, end in (header.removeprefix("bytes=").split("-") for header in ranges)
    ]
    assert len(sizes) == 3
    assert max(sizes) < 2 * 8 * ROWS // 3


def test_values_are_read_in_batches_that_fit_into_memory(lake: Cloud) -> None:
    texts = [f"{number:01000000}" for number in range(20)]
    rows = pa.table([range(20), texts, texts], schema=SCHEMA)
    stored = put(lake, "long", rows, compression="none", use_dictionary=False)
    file = OpenedFile(StoredFile(stored, lake.access.client("s3")))

    batches = [(first, len(values)) for first, values in file.values(["a"], file.groups)]

    assert max(count for _, count in batches) <= 8
    assert [first for first, _ in batches] == [sum(count for _, count in batches[:n]) for n in range(len(batches))]
    assert sum(count for _, count in batches) == 20
