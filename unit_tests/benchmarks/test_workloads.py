"""The benchmark's message files: what a platform would send, the same every time, of the size they claim."""

import json
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from benchmarks.systems import PARTITIONED, Partitioned
from benchmarks.workload import (
    CURSOR,
    DAYS,
    FLAT,
    FLAWED,
    LONG,
    MONTH,
    MONTH_IN_ORDER,
    OPEN,
    QUOTED,
    WIDE,
    Shape,
    Workload,
)
from destination_datalake.protocol.catalog import parse_catalog

pytestmark = pytest.mark.slow

WORKLOADS = [
    pytest.param(Workload(FLAT, 25_000), id="flat"),
    pytest.param(Workload(OPEN, 20_000), id="open"),
    pytest.param(Workload(WIDE, 30), id="wide"),
    pytest.param(Workload(FLAT, 250, streams=100), id="many streams"),
    pytest.param(Workload(FLAWED[10], 200), id="flawed"),
    pytest.param(Workload(QUOTED, 200), id="numbers as strings"),
    *(pytest.param(Workload(shape, 2_000), id=shape.name) for shape in (MONTH, MONTH_IN_ORDER, LONG, DAYS)),
]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def messages(workload: Workload) -> Iterator[dict[str, Any]]:
    with workload.messages().open("rb") as lines:
        yield from map(json.loads, lines)


@pytest.mark.parametrize("workload", WORKLOADS)
def test_every_stream_gets_its_records_and_they_fit_its_schema(workload: Workload) -> None:
    received: Counter[str] = Counter()
    for message in messages(workload):
        if message["type"] == "RECORD":
            received[message["record"]["stream"]] += 1
            assert message["record"]["data"].keys() == workload.shape.properties.keys()

    assert received.total() == workload.records
    assert received == {name: workload.records_of(i) for i, name in enumerate(workload.stream_names)}


@pytest.mark.parametrize("workload", WORKLOADS)
def test_the_states_account_for_every_record_and_come_before_the_complete_statuses(workload: Workload) -> None:
    kinds = [(message["type"], message) for message in messages(workload)]
    states = [message["state"] for kind, message in kinds if kind == "STATE"]

    assert len(states) == workload.states
    assert sum(state["sourceStats"]["recordCount"] for state in states) == workload.records
    assert [kind for kind, _ in kinds][-len(workload.stream_names) - 1 :] == ["STATE"] + ["TRACE"] * workload.streams


@pytest.mark.parametrize("workload", WORKLOADS)
def test_the_catalog_declares_exactly_the_streams_that_are_sent(workload: Workload) -> None:
    catalog: Any = workload.catalog()

    assert tuple(stream["stream"]["name"] for stream in catalog["streams"]) == workload.stream_names


def test_the_same_workload_is_the_same_bytes_wherever_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Workload(FLAT, 1_000).messages()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "elsewhere"))
    (tmp_path / "elsewhere").mkdir()
    second = Workload(FLAT, 1_000).messages()

    assert first != second
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize(("shape", "characters"), [(FLAT, 430), (OPEN, 430), (WIDE, 7_780)])
def test_a_record_weighs_what_the_benchmark_says(shape: Shape, characters: int) -> None:
    records = 400

    weight = Workload(shape, records).messages().stat().st_size / records

    assert weight == pytest.approx(characters, rel=0.02)


def test_the_wide_workload_has_three_hundred_columns() -> None:
    assert len(WIDE.properties) == 300


@pytest.mark.parametrize("every", FLAWED)
def test_a_flawed_workload_has_a_text_for_a_number_as_often_as_it_says(every: int) -> None:
    scores = [m["record"]["data"]["score"] for m in messages(Workload(FLAWED[every], 3000)) if m["type"] == "RECORD"]

    assert sum(isinstance(score, str) for score in scores) == 3000 / every


def test_quoted_numbers_are_all_strings() -> None:
    records = [m["record"]["data"] for m in messages(Workload(QUOTED, 100)) if m["type"] == "RECORD"]

    assert not any(
        isinstance(value, int | float) and value not in (True, False) for r in records for value in r.values()
    )
    assert float(records[7]["score"]) > 0


@pytest.mark.parametrize(("shape", "days"), [(MONTH, 30), (MONTH_IN_ORDER, 30), (LONG, 500), (DAYS, 3)])
def test_the_dates_of_a_dated_workload_spread_evenly_over_its_days(shape: Shape, days: int) -> None:
    records = 20 * days

    per_day = Counter(cursor[:10] for cursor in cursors(Workload(shape, records)))

    assert len(per_day) == days
    assert max(per_day.values()) - min(per_day.values()) <= 5


@pytest.mark.parametrize("shape", [MONTH, MONTH_IN_ORDER])
def test_a_dated_workload_is_in_the_order_of_its_cursor_only_if_it_says_so(shape: Shape) -> None:
    sent = list(cursors(Workload(shape, 600)))
    changes_of_day = sum(earlier[:10] != later[:10] for earlier, later in pairwise(sent))

    assert (sent == sorted(sent)) == (shape is MONTH_IN_ORDER)
    assert changes_of_day == 29 if shape is MONTH_IN_ORDER else changes_of_day > 500


def test_the_records_of_a_dated_workload_are_read_within_two_hours() -> None:
    read_at = [m["record"]["emitted_at"] for m in messages(Workload(MONTH, 1_000)) if m["type"] == "RECORD"]

    assert timedelta(hours=1) < timedelta(milliseconds=max(read_at) - min(read_at)) < timedelta(hours=2)


def test_the_cursor_of_a_dated_workload_is_declared() -> None:
    assert parse_catalog(Workload(MONTH, 1).catalog())[0].cursor_field == (CURSOR,)
    assert parse_catalog(Workload(FLAT, 1).catalog())[0].cursor_field == ()


@pytest.mark.parametrize(
    "comparison", PARTITIONED, ids=lambda comparison: f"{comparison.system.name}, {comparison.shape.name}"
)
def test_what_is_partitioned_is_compared_with_the_same_table_type_and_format_without(comparison: Partitioned) -> None:
    given = comparison.system.options.keys() | comparison.system.of_streams.keys()

    assert comparison.plain.options.items() <= comparison.system.options.items()
    assert given & {"partitioning", "partition_by", "sort_by"}
    assert not comparison.plain.options.keys() & {"partitioning", "partition_by", "sort_by"}


def cursors(workload: Workload) -> Iterator[str]:
    return (message["record"]["data"][CURSOR] for message in messages(workload) if message["type"] == "RECORD")
