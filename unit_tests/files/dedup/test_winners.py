"""The first job of a merge: the latest row of each key, whichever pending file it lies in, and an index of them."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from botocore.exceptions import ClientError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.manifest import DataFile
from pyiceberg.types import TimestampType

from destination_datalake.aws.access import AccessKeys, AwsAccess
from destination_datalake.files.dedup.index import index_files, key_bounds, may_have_keys
from destination_datalake.files.dedup.tasks import (
    UNKNOWN,
    KeyBounds,
    Removal,
    RemoveTask,
    RowSet,
    Versions,
    Winners,
    WinnersTask,
)
from destination_datalake.files.dedup.winners import consume_versions, produce_versions, winners
from destination_datalake.files.jobs import Failed, results_or_raise
from destination_datalake.tables.iceberg.snapshots.files import KeyColumns
from unit_tests.cloud import BUCKET, Cloud, during
from unit_tests.examples import examples
from unit_tests.files.dedup.pending import SCHEMA, of_columns, order, put, task
from unit_tests.files.dedup.values import NAN, Column, ordered, tables
from unit_tests.files.stored import FOLDER, field
from unit_tests.tables.jobs import InProcess


def select_winners(task: WinnersTask) -> Winners:
    [result] = results_or_raise(winners([task]))
    return result


def positions(sets: Mapping[int, RowSet]) -> dict[int, list[int]]:
    return {file: [*rows.rows()] for file, rows in sets.items()}


def test_losers_and_tombstones_are_named_by_file_and_position(lake: Cloud) -> None:
    # Given a key in two files, one that is deleted, and one that is inserted after it was deleted
    files = [
        put(lake, "a", [order("x", 2), order("y", 1), order("z", 1, deleted="now")]),
        put(lake, "b", [order("x", 1), order("y", 3, deleted="now"), order("z", 2), order("w")]),
    ]

    result = select_winners(task(lake, *files, first=7))

    assert (result.part, result.keys, result.index) == (0, 4, None)
    assert positions(result.losers) == {7: [1, 2], 8: [0]}
    assert positions(result.tombstones) == {8: [1]}


def test_removals_are_done_at_once_with_the_access_of_the_task(lake: Cloud) -> None:
    # Given files that are to become one if they lose rows, and access for the task alone
    files = [put(lake, "a", [order("x", 1), order("y")]), put(lake, "b", [order("z")]), put(lake, "c", [order("x", 2)])]
    asked = task(lake, *files)
    removal = RemoveTask(
        "merged", tuple(map(Removal, files)), asked.versions, SCHEMA, FOLDER, "ZSTD", "copy_on_write",
        AwsAccess("us-east-1"),
    )  # fmt: skip

    [removed] = select_winners(replace(asked, removals=(removal,))).removed

    # Then only the file with a loser is written again
    assert removed.name == "merged"
    assert removed.rewritten is not None
    assert removed.rewritten.rows == 1
    assert lake.arrow(removed.rewritten.uri.removeprefix(f"s3://{BUCKET}/"))


def test_a_removal_that_fails_is_left_to_a_job_of_its_own(lake: Cloud) -> None:
    files = [put(lake, "a", [order("x", 1), order("y")]), put(lake, "c", [order("x", 2)])]
    asked = task(lake, *files)
    removal = RemoveTask(
        "merged", tuple(map(Removal, files)), asked.versions, SCHEMA, FOLDER, "ZSTD", "copy_on_write", asked.access
    )

    with lake.refusing("PutObject"):
        result = select_winners(replace(asked, removals=(removal,)))

    assert result.removed == ()
    assert positions(result.losers) == {0: [0]}


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        (order("x", None, 9), order("x", -1, 0)),
        (order("x", 1, 1, "z"), order("x", 1, 2, "a")),
        (order("x", None, 1), order("x", None, 2)),
        (order("x", 1, 1, "a"), order("x", 1, 1, "b")),
    ],
    ids=["cursor, null lowest", "time of extraction", "no cursor", "order of arrival"],
)
def test_the_latest_version_wins_in_whichever_file_it_is(lake: Cloud, older: Any, newer: Any) -> None:
    for rows, loser in (([older], [newer]), 0), (([newer], [older]), 1):
        result = select_winners(task(lake, put(lake, "a", rows[0]), put(lake, "b", rows[1])))

        assert positions(result.losers) == {loser: [0]}


def test_rows_that_position_deletes_have_removed_neither_win_nor_lose(lake: Cloud) -> None:
    files = [put(lake, "a", [order("x", 9), order("x", 1), order("y")], dead=[0, 2]), put(lake, "b", [order("x", 2)])]

    result = select_winners(task(lake, *files))

    assert (result.keys, positions(result.losers)) == (1, {0: [1]})


def test_a_file_may_be_empty_or_all_dead(lake: Cloud, tmp_path: Path) -> None:
    files = [put(lake, "a", []), put(lake, "b", [order("x")], dead=[0])]

    result = select_winners(task(lake, *files, folder=tmp_path.as_uri()))

    assert (result.keys, result.losers, result.index) == (0, {}, None)


def test_columns_that_a_file_or_the_table_lacks_are_null(lake: Cloud) -> None:
    # Given a file from before the cursor was added, and a deletion column that was dropped
    old = pa.schema([column for column in SCHEMA if column.name not in ("updated", "deleted_at")])
    table = pa.schema([column for column in SCHEMA if column.name != "deleted_at"])
    files = [put(lake, "a", [order("x"), order("y", 0, 0)], schema=old), put(lake, "b", [order("x", -5)])]

    result = select_winners(task(lake, *files, schema=table))

    assert (positions(result.losers), result.tombstones) == ({0: [0]}, {})


def test_keys_and_cursors_are_compared_in_the_types_that_the_table_has_now(lake: Cloud) -> None:
    narrow = SCHEMA.set(1, field(2, "updated", pa.int32())).set(0, field(1, "id", pa.int32()))
    wide = SCHEMA.set(0, field(1, "id", pa.int64()))
    rows = [{**order(None, 5), "id": 1}, {**order(None, 5), "id": 2}]
    files = [put(lake, "a", rows, schema=narrow), put(lake, "b", [{**rows[0], "updated": 2**40}], schema=wide)]

    assert positions(select_winners(task(lake, *files, schema=wide)).losers) == {0: [0]}


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Column], int, list[int], list[set[int]]]:
    """Rows of any types, of how many columns the key is, where files end, and which rows of each are dead."""
    columns = draw(tables(max_columns=3, max_rows=16))
    rows = len(columns[0][1])
    parts = draw(st.integers(1, len(columns)))
    cuts = sorted(draw(st.lists(st.integers(0, rows), max_size=3)))
    ends = [*cuts, rows]
    sizes = np.diff([0, *ends]).tolist()
    dead = [draw(st.sets(st.integers(0, size - 1), max_size=2)) if size else set() for size in sizes]
    return columns, parts, ends, dead


@given(histories(), st.integers(2, 5))
@settings(max_examples=examples(120), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_winners_agree_with_a_dict_with_and_without_a_shuffle(
    lake: Cloud, tmp_path: Path, history: tuple[list[Column], int, list[int], list[set[int]]], parts: int
) -> None:
    # Given rows of any key and cursor in several files, some of them dead
    columns, key, ends, dead = history
    table = of_columns(columns)
    starts = [0, *ends[:-1]]
    raw_ids = pa.array([f"{row:04}" for row in range(table.num_rows)], pa.string())
    extracted = pa.nulls(table.num_rows, pa.timestamp("us", "UTC"))
    whole = table.append_column(field(100, "raw_id", pa.string()), raw_ids)
    whole = whole.append_column(field(101, "extracted_at", pa.timestamp("us", "UTC")), extracted)
    files = [
        put(lake, f"{number}", whole.slice(start, end - start), sorted(dead[number]), row_group_size=3)
        for number, (start, end) in enumerate(zip(starts, ends, strict=True))
    ]
    cursor = key + 1 if key < len(columns) else None
    versions = Versions(tuple(range(1, key + 1)), cursor, 101, 100, None)
    asked = task(lake, *files, folder=tmp_path.as_uri(), versions=versions, schema=whole.schema)

    # When winners are found by one task, and by tasks that exchange the keys
    alone = select_winners(asked)
    tasks = [replace(asked, files=(file,), first_file=number, parts=parts) for number, file in enumerate(files)]
    divided = InProcess().exchange(produce_versions, tasks, consume_versions, parts)

    # Then they are the same, and those of a dict
    places = [
        (file, row) for file, (start, end) in enumerate(zip(starts, ends, strict=True)) for row in range(end - start)
    ]
    latest: dict[Any, tuple[Any, int]] = {}
    losers: list[tuple[int, int]] = []
    for row, (file, position) in enumerate(places):
        if position in dead[file]:
            continue
        values = [ordered(cells[row]) for _, cells in columns]
        version = (values[key] if cursor else (), row)
        of_key = tuple(values[:key])
        loser = min(latest[of_key], version) if of_key in latest else None
        latest[of_key] = max(latest.get(of_key, version), version)
        losers += [places[loser[1]]] if loser else []
    for results in (results_or_raise([alone]), results_or_raise(divided)):
        assert sum(result.keys for result in results) == len(latest)
        lost = [(file, row) for result in results for file, rows in positions(result.losers).items() for row in rows]
        assert sorted(lost) == sorted(losers)
        indexed = [
            places.index((row["file"], row["position"]))
            for path in index_files(
                [result.index for result in results if result.index is not None], tmp_path, lake.access
            )
            for row in pq.read_table(path).to_pylist()
        ]
        assert sorted(indexed) == sorted(row for _, row in latest.values())


def test_bounds_leave_null_and_nan_out(lake: Cloud, tmp_path: Path) -> None:
    schema = SCHEMA.set(1, field(2, "updated", pa.float64()))
    rows = [order("b", 2), order("a", NAN), order(None, 1), order("c", None)]  # type: ignore[arg-type]
    asked = task(lake, put(lake, "a", rows, schema=schema), folder=tmp_path.as_uri(), schema=schema)

    result = select_winners(replace(asked, versions=Versions((1, 2), None, 6, 5)))

    assert result.index is not None
    assert result.index.bounds == (KeyBounds("a", "c", True, False), KeyBounds(1.0, 2.0, True, True))
    assert result.index.rows == 4


@pytest.mark.parametrize(
    "far",
    [
        pa.array([2**60], pa.timestamp("us", "UTC")),
        pa.array([2**60], pa.timestamp("us")),
        pa.array([2**31 - 1], pa.date32()),
        pa.array([b"\xff"], pa.binary()).view(pa.string()),
    ],
)
def test_bounds_that_python_has_no_values_for_are_unknown(far: pa.Array[Any]) -> None:
    """Other engines write years after 9999. Files may have nothing but those: the last date is no bound for them."""
    assert key_bounds(far[0], far[0], far.type) == KeyBounds(UNKNOWN, UNKNOWN, False, False)


@pytest.mark.parametrize("lowest", ["a", "x" * 257])
def test_long_texts_are_unknown_bounds(lowest: str) -> None:
    texts = pa.array([lowest, "x" * 257])
    assert key_bounds(texts[0], texts[1], texts.type) == KeyBounds(UNKNOWN, UNKNOWN, False, False)


def test_an_unsuitable_file_is_the_users_to_repair(lake: Cloud) -> None:
    source = put(lake, "a", [order("x") | {"updated": "1"}], schema=SCHEMA.set(1, field(2, "updated", pa.string())))
    broken = replace(source, rows=5)

    for file, clause in (
        (source, "stores column updated as string"),
        (broken, "contains 1 rows, but the table's metadata records 5"),
    ):
        [result] = winners([task(lake, file)])

        assert isinstance(result, Failed)
        assert result.failure.type == "config_error"
        assert file.uri in result.failure.message
        assert clause in result.failure.message


def test_a_permission_that_the_index_needs_is_named(lake: Cloud) -> None:
    rows = [order(f"{number}") for number in range(9000)]
    file = put(lake, "a", rows)

    with lake.refusing("PutObject"):
        [result] = winners([task(lake, file, folder=f"{FOLDER}/scratch")])

    assert isinstance(result, Failed)
    assert "Allow s3:PutObject" in result.failure.message


def test_a_failure_of_a_producer_is_the_result_of_part_0(lake: Cloud) -> None:
    good, gone = put(lake, "a", [order("x"), order("y")]), put(lake, "b", [order("z")])
    lake.access.client("s3").delete_object(Bucket="lake", Key="orders/data/b")

    tasks = [task(lake, good, parts=3), task(lake, gone, parts=3, first=1)]
    results = InProcess().exchange(produce_versions, tasks, consume_versions, 3)

    assert [isinstance(result, Failed) for result in results].count(True) == 1


def test_what_outlives_its_session_can_be_tried_by_the_next_sync(lake: Cloud) -> None:
    lent = replace(lake.access, identity=AccessKeys("ASIAEXAMPLE", "secret", "token"))
    source = put(lake, "a", [order("x")])

    def refuse(**_: object) -> None:
        raise ClientError({"Error": {"Code": "ExpiredToken", "Message": "The token has expired."}}, "GetObject")

    asked = replace(task(lake, source), access=lent)
    with during(lent, "before-call.s3.GetObject", refuse):
        results = [*winners([asked]), *InProcess().exchange(produce_versions, [asked], consume_versions, 1)]

    assert [isinstance(result, Failed) and result.failure.type for result in results] == ["transient_error"] * 2


def test_keys_of_aws_are_in_payloads_only_if_consumers_write_to_s3(lake: Cloud, tmp_path: Path) -> None:
    file = put(lake, "a", [order("x")])

    for folder, is_needed in ((tmp_path.as_uri(), False), (f"{FOLDER}/scratch", True)):
        [(_, payload)] = produce_versions([task(lake, file, folder=folder, parts=1)])

        assert (b"not-a-secret" in payload) == is_needed
        assert b"x" in pickle.dumps(pickle.loads(payload))


def test_unknown_bounds_exclude_nothing(lake: Cloud, tmp_path: Path) -> None:
    # Given a key that is a time after the year 9999, which other writers may have
    schema = SCHEMA.set(1, field(2, "updated", pa.timestamp("us")))
    late = pa.array([2**62], pa.int64()).view(pa.timestamp("us"))
    rows = pa.Table.from_pylist([order("x", None)], schema).set_column(1, schema.field(1), late)
    asked = task(
        lake, put(lake, "a", rows), folder=tmp_path.as_uri(), schema=schema, versions=Versions((2,), None, 6, 5)
    )

    index = select_winners(asked).index

    # Then no row group, and no file, is left out because of it
    assert index is not None
    group = pq.read_metadata(lake.arrow("orders/data/a")).row_group(0)
    stored = DataFile.from_args(lower_bounds={2: bytes(8)}, upper_bounds={2: bytes(8)}, null_value_counts={2: 0})
    assert may_have_keys(group, ["updated"], [index.bounds])
    assert KeyColumns(((2, TimestampType()),)).may_have(stored, index)


def test_what_is_no_parquet_file_is_named(lake: Cloud) -> None:
    source = put(lake, "a", [order("x")])
    lake.access.client("s3").put_object(Bucket="lake", Key="orders/data/a", Body=b"x" * source.size)

    [result] = winners([task(lake, source)])

    assert isinstance(result, Failed)
    assert f"Cannot deduplicate rows of {source.uri}: the file cannot be read as Parquet" in result.failure.message
