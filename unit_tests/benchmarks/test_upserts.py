"""The benchmark's upserts: half updates, each key once, and the same rows with and without records."""

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.dedup.rows import DAY, FIRST_CURSOR, references
from benchmarks.dedup.workload import Upserts
from destination_datalake.protocol.catalog import parse_catalog

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def records(workload: Upserts) -> Iterator[dict[str, Any]]:
    with workload.messages().open("rb") as lines:
        for message in map(json.loads, lines):
            if message["type"] == "RECORD":
                yield message["record"]["data"]


@pytest.mark.parametrize("key", ["ref", "id"])
def test_half_of_the_records_are_updates_and_each_key_comes_once(key: str) -> None:
    workload = Upserts(records=200, table_rows=1000, key=key)

    numbers = list(workload.numbers())

    assert len(set(numbers)) == 200
    assert sum(number < 1000 for number in numbers) == 100
    assert workload.rows_after == 1100


def test_recent_keys_are_those_of_the_last_rows() -> None:
    assert list(Upserts(records=4, table_rows=1000, key="id").numbers()) == [998, 999, 1000, 1001]


def test_records_have_the_keys_of_the_tables_rows_and_later_cursors() -> None:
    workload = Upserts(records=200, table_rows=1000)

    sent = list(records(workload))

    numbers = np.fromiter(workload.numbers(), np.int64)
    assert [record["id"] for record in sent] == numbers.tolist()
    assert [record["ref"] for record in sent] == references(numbers).to_pylist()
    latest_of_the_table = datetime.fromtimestamp((FIRST_CURSOR + DAY) / 1e6).astimezone()
    assert all(datetime.fromisoformat(record["updated_at"]) >= latest_of_the_table for record in sent)


def test_the_catalog_asks_for_deduplication_by_the_key() -> None:
    workload = Upserts(records=2, table_rows=10, key="id")

    [merged], [appended] = parse_catalog(workload.catalog()), parse_catalog(workload.appended())

    assert merged.dedup
    assert merged.primary_key == ("id",)
    assert not appended.dedup
