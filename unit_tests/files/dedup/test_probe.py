"""Stored files against an index of pending rows: what is replaced, deleted, and superseded, as a dict would have it."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

import destination_datalake.files.reading as reading
from destination_datalake.aws.objects import delete_uncommitted
from destination_datalake.files.dedup.remove import remove
from destination_datalake.files.dedup.tasks import (
    IndexPart,
    Removal,
    Removed,
    RemoveTask,
    RowSet,
    Versions,
    WinnersTask,
)
from destination_datalake.files.dedup.winners import consume_versions, produce_versions, winners
from destination_datalake.files.jobs import results_or_raise
from destination_datalake.files.plan import SourceFile
from unit_tests.cloud import BUCKET, Cloud, during
from unit_tests.examples import examples
from unit_tests.files.stored import FOLDER, dead, field, put, put_deletes, with_deletes
from unit_tests.tables.jobs import InProcess

pytestmark = pytest.mark.share(8)

VERSIONS = Versions((1,), 2, 3, 4, 5)
NAMES = ("id", "cursor", "at", "raw_id", "deleted")


def schema(key: pa.DataType | None = None) -> pa.Schema:
    types: list[pa.DataType] = [key or pa.int64(), pa.int64(), pa.int64(), pa.int64(), pa.string()]
    return pa.schema([field(id_, name, type_) for id_, (name, type_) in enumerate(zip(NAMES, types, strict=True), 1)])


@dataclass(frozen=True)
class Row:
    key: Any
    cursor: Any = 0
    at: int = 0
    deleted: str | None = None


def table(rows: Sequence[Row], arrow_schema: pa.Schema) -> pa.Table:
    named = [(row.key, row.cursor, row.at, number, row.deleted) for number, row in enumerate(rows)]
    return pa.Table.from_pylist([dict(zip(NAMES, row, strict=True)) for row in named], arrow_schema)


def index(
    lake: Cloud,
    pending: Sequence[Sequence[Row]],
    arrow_schema: pa.Schema,
    versions: Versions = VERSIONS,
    parts: int = 1,
) -> tuple[IndexPart, ...]:
    """Of the latest rows among these pending files."""
    files = [put(lake, f"pending-{number}", table(rows, arrow_schema)) for number, rows in enumerate(pending)]
    task = WinnersTask(tuple(files), 0, arrow_schema, versions, parts, f"s3://{BUCKET}/scratch", lake.access)
    results = (
        [*winners([task])] if parts == 1 else InProcess().exchange(produce_versions, [task], consume_versions, parts)
    )
    return tuple(result.index for result in results_or_raise(results) if result.index is not None)


def probed(
    lake: Cloud,
    file: SourceFile,
    parts: tuple[IndexPart, ...],
    arrow_schema: pa.Schema,
    versions: Versions = VERSIONS,
    gone: RowSet | None = None,
) -> tuple[Removed, list[int]]:
    """The result, and the positions of the rows that are dead then."""
    task = RemoveTask(
        "merge", (Removal(file, gone),), versions, arrow_schema, FOLDER, "ZSTD", "merge_on_read", lake.access, parts
    )
    [result] = results_or_raise(remove([replace(task, deletes="copy_on_write")]))
    if result.rewritten is None:
        return result, [*range(file.rows)] if result.obsolete else []
    written = lake.arrow(result.rewritten.uri.removeprefix(f"s3://{BUCKET}/"))
    remaining = pq.read_table(written).column("raw_id").to_pylist()
    delete_uncommitted([result.rewritten], lake.access.client("s3"))
    return result, [position for position in range(file.rows) if position not in remaining]


def superseded(result: Removed) -> dict[int, list[int]]:
    return {file: [*rows.rows()] for file, rows in result.superseded.items()}


@pytest.mark.parametrize(
    ("stored", "pending", "outcome"),
    [
        (Row(1, cursor=1), Row(1, cursor=2), "replaced"),
        (Row(1, cursor=2), Row(1, cursor=1), "superseded"),
        (Row(1, cursor=1, at=5), Row(1, cursor=2, at=4), "replaced"),
        (Row(1, cursor=1, at=5), Row(1, cursor=1, at=4), "superseded"),
        (Row(1, cursor=1, at=5), Row(1, cursor=1, at=5), "replaced"),
        (Row(1, cursor=None, at=5), Row(1, cursor=0, at=4), "replaced"),
        (Row(1, cursor=0, at=4), Row(1, cursor=None, at=5), "superseded"),
        (Row(1, cursor=None, at=4), Row(1, cursor=None, at=4), "replaced"),
        (Row(1, cursor=None, at=5), Row(1, cursor=None, at=4), "superseded"),
        (Row(1, cursor=1), Row(1, cursor=2, deleted="now"), "deleted"),
        (Row(1, cursor=2), Row(1, cursor=1, deleted="now"), "superseded"),
        (Row(None), Row(None, cursor=1), "replaced"),
        (Row(None), Row(0, cursor=1), "untouched"),
        (Row(0), Row(None, cursor=1), "untouched"),
    ],
)
def test_of_a_stored_and_a_pending_row_of_one_key_the_latest_stays(
    lake: Cloud, stored: Row, pending: Row, outcome: str
) -> None:
    file = put(lake, "stored", table([stored, Row(7)], schema()))

    result, gone = probed(lake, file, index(lake, [[Row(8)], [Row(9), pending]], schema()), schema())

    assert (result.replaced, result.deleted) == (int(outcome == "replaced"), int(outcome == "deleted"))
    assert superseded(result) == ({1: [1]} if outcome == "superseded" else {})
    assert gone == ([0] if outcome in ("replaced", "deleted") else [])


def test_rows_that_are_dead_already_neither_die_again_nor_beat_others(lake: Cloud) -> None:
    file = put(lake, "stored", table([Row(1, cursor=9), Row(2, cursor=9), Row(3)], schema()))
    file = with_deletes(file, put_deletes(lake, "old", dead(file, [0])))
    parts = index(lake, [[Row(1, cursor=1), Row(2, cursor=1), Row(3)]], schema())

    result, gone = probed(lake, file, parts, schema(), gone=RowSet.from_bitmap(BitMap([1])))

    assert (result.replaced, superseded(result), gone) == (1, {}, [0, 1, 2])


KEYS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "int": (pa.int64(), st.integers(-3, 3)),
    "string": (pa.string(), st.sampled_from(["", "a", "a\0", "\0a", "é", "z" * 40, "\U0001f600", "\uffff"])),
    "float": (pa.float64(), st.sampled_from([-math.inf, -1.5, -0.0, 0.0, 1.5, math.inf, math.nan])),
    "decimal": (pa.decimal128(38, 9), st.sampled_from([Decimal("-1.5"), Decimal(0), Decimal("1E+28"), Decimal(7)])),
    "boolean": (pa.bool_(), st.booleans()),
    "timestamp": (
        pa.timestamp("us", tz="UTC"),
        st.sampled_from([datetime(year, 1, 1, tzinfo=UTC) for year in (1, 1969, 1970, 2026, 9999)]),
    ),
}


def identity(key: Any) -> Any:
    """A value that equals another one if they are one key."""
    return "NaN" if isinstance(key, float) and math.isnan(key) else key


def rank(row: Row) -> tuple[bool, Any, int]:
    return row.cursor is not None, row.cursor or 0, row.at


@pytest.mark.law
def test_probe_agrees_with_a_dict(lake: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    @settings(max_examples=examples(200))
    @given(data=st.data(), kind=st.sampled_from(sorted(KEYS)))
    def law(data: st.DataObject, kind: str) -> None:
        monkeypatch.setattr(reading, "_MAX_WHOLE_BYTES", data.draw(st.sampled_from([0, 2**20])))
        monkeypatch.setattr(reading, "_FOOTER_BYTES", 512)
        type_, values = KEYS[kind]
        keys = st.one_of(st.none(), values)
        ranks = {"cursor": st.one_of(st.none(), st.integers(0, 2)), "at": st.integers(0, 2)}
        deleted = st.one_of(st.none(), st.none(), st.just("now"))
        stored = data.draw(st.lists(st.builds(Row, keys, **ranks), min_size=1, unique_by=lambda row: identity(row.key)))
        pending = data.draw(st.lists(st.builds(Row, keys, deleted=deleted, **ranks), max_size=8))
        split, parts = data.draw(st.integers(0, len(pending))), data.draw(st.integers(1, 3))
        arrow_schema = schema(type_)
        file = put(lake, "stored", table(stored, arrow_schema), row_group_size=data.draw(st.integers(1, len(stored))))
        # Ids ascend in the order of arrival.
        arrived = table(pending, arrow_schema)
        files = [put(lake, "pending-0", arrived.slice(0, split)), put(lake, "pending-1", arrived.slice(split))]
        task = WinnersTask(tuple(files), 0, arrow_schema, VERSIONS, parts, f"s3://{BUCKET}/scratch", lake.access)
        results = results_or_raise(InProcess().exchange(produce_versions, [task], consume_versions, parts))

        result, gone = probed(lake, file, tuple(part.index for part in results if part.index is not None), arrow_schema)

        latest: dict[Any, int] = {}
        for number, row in enumerate(pending):
            best = latest.get(identity(row.key))
            if best is None or rank(row) >= rank(pending[best]):
                latest[identity(row.key)] = number
        meets = [(position, row, latest.get(identity(row.key))) for position, row in enumerate(stored)]
        dies = [(position, hit) for position, row, hit in meets if hit is not None and rank(pending[hit]) >= rank(row)]
        loses = [hit for _, row, hit in meets if hit is not None and rank(pending[hit]) < rank(row)]
        assert gone == [position for position, _ in dies]
        assert result.deleted == sum(pending[hit].deleted is not None for _, hit in dies)
        assert result.replaced == len(dies) - result.deleted
        numbers = [[hit for hit in loses if hit < split], [hit - split for hit in loses if hit >= split]]
        assert superseded(result) == {file: sorted(losers) for file, losers in enumerate(numbers) if losers}

    law()


def test_a_key_of_several_columns_is_equal_in_all_of_them(lake: Cloud) -> None:
    arrow_schema = pa.schema([*schema(pa.string()), field(6, "region", pa.string())])
    versions = replace(VERSIONS, key=(6, 1))
    stored = [("a", "b"), ("ab", ""), ("", "ab"), (None, "ab"), ("ab", None), (None, None)]
    rows = table([Row(id_) for id_, _ in stored], schema(pa.string()))
    file = put(
        lake, "stored", pa.Table.from_arrays([*rows.columns, pa.array([r for _, r in stored])], schema=arrow_schema)
    )
    for position, (id_, region) in enumerate(stored):
        row_table = table([Row(id_)], schema(pa.string()))
        pending = put(
            lake,
            "one",
            pa.Table.from_arrays([*row_table.columns, pa.array([region], pa.string())], schema=arrow_schema),
        )
        [result] = results_or_raise(
            winners([WinnersTask((pending,), 0, arrow_schema, versions, 1, f"s3://{BUCKET}/scratch", lake.access)])
        )
        assert result.index is not None

        assert probed(lake, file, (result.index,), arrow_schema, versions)[1] == [position]


def test_columns_are_read_as_the_table_has_them_now(lake: Cloud) -> None:
    """Keys were promoted, the cursor came later, and names have changed."""
    old = pa.schema([field(4, "raw_id", pa.int64()), field(3, "t", pa.int64()), field(1, "key", pa.int32())])
    file = put(lake, "stored", pa.table([[0, 1, 2], [5, 5, 5], [7, 8, None]], schema=old))
    parts = index(lake, [[Row(7, cursor=None, at=4), Row(8, cursor=1, at=4), Row(None, at=9)]], schema())

    result, gone = probed(lake, file, parts, schema())

    assert (gone, superseded(result)) == ([1, 2], {0: [0]})


def test_a_file_without_the_key_s_column_has_null_in_it(lake: Cloud) -> None:
    old = pa.schema([field(4, "raw_id", pa.int64()), field(3, "at", pa.int64())])
    file = put(lake, "stored", pa.table([[0], [0]], schema=old))

    assert probed(lake, file, index(lake, [[Row(0, at=1)]], schema()), schema())[1] == []
    assert probed(lake, file, index(lake, [[Row(None, at=1)]], schema()), schema())[1] == [0]


def test_only_row_groups_that_may_have_keys_of_the_index_are_read(lake: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_MAX_WHOLE_BYTES", 0)
    monkeypatch.setattr(reading, "_FOOTER_BYTES", 70_000)
    monkeypatch.setattr(reading, "_MAX_GAP_BYTES", 0)
    rows = [Row(f"{number:032}", at=number) for number in range(8000)]
    arrow_schema = schema(pa.string())
    file = put(lake, "stored", table(rows, arrow_schema), row_group_size=2000, compression="none", use_dictionary=False)
    newer = index(lake, [[Row(f"{number:032}", at=99_999) for number in (2500, 2600)]], arrow_schema)
    older = index(lake, [[Row("a"), Row(None)]], arrow_schema)
    ranges: list[str] = []

    def notice(params: Any, **_: Any) -> None:
        if params["url_path"].endswith("/stored") and "Range" in params["headers"]:  # Not the test's own.
            ranges.append(params["headers"]["Range"])

    with during(lake.access, "before-call.s3.GetObject", notice):
        assert probed(lake, file, older, arrow_schema) == (Removed("merge"), [])
        footer_only = len(ranges)
        result, gone = probed(lake, file, newer, arrow_schema)

    assert footer_only == 1
    # The footer, a group's versions, and four groups that are written again.
    assert len(ranges) - footer_only == 1 + 1 + 4
    assert (gone, result.replaced) == ([2500, 2600], 2)


@pytest.mark.parametrize("parts", [1, 5])
def test_all_parts_of_an_index_are_looked_at(lake: Cloud, parts: int) -> None:
    numbers = random.Random(1).sample(range(10_000), 3000)
    arrow_schema = schema(pa.string())
    file = put(
        lake, "stored", table([Row(str(number), at=number % 4) for number in numbers], arrow_schema), row_group_size=500
    )
    wanted = range(0, 10_000, 3)
    index_parts = index(lake, [[Row(str(number), at=1) for number in wanted]], arrow_schema, parts=parts)
    assert len(index_parts) == parts

    result, gone = probed(lake, file, index_parts, arrow_schema)

    hits = [(position, number) for position, number in enumerate(numbers) if number % 3 == 0]
    assert gone == [position for position, number in hits if number % 4 <= 1]
    assert len(gone) == result.replaced
    assert superseded(result) == {0: sorted(number // 3 for _, number in hits if number % 4 > 1)}


def test_the_cursor_may_be_the_key(lake: Cloud) -> None:
    versions = replace(VERSIONS, key=(1, 1), cursor=1)
    file = put(lake, "stored", table([Row(1), Row(2)], schema()))

    parts = index(lake, [[Row(2)]], schema(), versions)

    assert probed(lake, file, parts, schema(), versions)[1] == [1]
