"""Blocks: how large they are, and that memory and work are bounded for each, whatever changes and is refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_datalake.records import decoder
from destination_datalake.records.decoded import Decoded
from destination_datalake.records.decoder import BLOCK_BYTES, BLOCK_CELLS, BLOCK_CHANGES, BlockDecoder, blocks
from destination_datalake.records.record import record_coercer
from destination_datalake.records.values.rules import MAX_CHANGES
from destination_datalake.schema.types import Field, Int32, Int64, Json, List, Struct

pytestmark = pytest.mark.share(5)

OPEN = Struct((Field("o", "o", Json()), Field("n", "n", List(Int64()))))
WRONG = "DESTINATION_SERIALIZATION_ERROR"


def line(data: object, number: int = 0) -> bytes:
    body = {"stream": "s", "data": data, "emitted_at": 1_700_000_000_000 + number}
    return json.dumps({"type": "RECORD", "record": body}).encode() + b"\n"


def changes_in(part: Decoded) -> int:
    return sum(map(len, part.changed.values()))


def in_rows(part: Decoded) -> list[list[tuple[str | None, ...]]]:
    """The changes of each row of a part, those of the source first."""
    changes: Any = part.changes
    return [[]] * part.rows if changes is None else [[tuple(c.values()) for c in row] for row in changes.to_pylist()]


def values(parts: Sequence[Decoded], column: int) -> list[Any]:
    items: list[Any] = []
    for part in parts:
        array: Any = part.columns[column]
        items += array.to_pylist()
    return items


# --- Many changes


MANY = ["x"] * 250


@pytest.mark.parametrize(
    ("columns", "data"),
    [
        pytest.param([Field("a", "a", List(Int64()))], {"a": MANY}, id="list"),
        pytest.param([Field("a", "a", OPEN)], {"a": {"n": MANY}}, id="open struct"),
        pytest.param(
            [Field(f"c{i}", f"c{i}", Int64()) for i in range(250)], {f"c{i}": "x" for i in range(250)}, id="columns"
        ),
        pytest.param([Field("a", "a", List(Int64()))], {"a": [*MANY[1:], float("nan")]}, id="irregular lines"),
    ],
)
def test_a_block_with_too_many_changes_is_decoded_in_parts(columns: Sequence[Field], data: object) -> None:
    """What is kept of the changes at a time is bounded, whichever way the block is read."""
    rows = (BLOCK_CHANGES + MAX_CHANGES) // len(MANY) + 1

    parts = list(BlockDecoder(columns).decode(b"".join(line(data, n) for n in range(rows))))

    assert sum(part.rows for part in parts) == rows
    assert sum(map(changes_in, parts)) == rows * len(MANY)
    assert max(map(changes_in, parts)) <= BLOCK_CHANGES + MAX_CHANGES
    assert len(parts) > 1


def test_no_part_ends_inside_a_row_whichever_part_it_is() -> None:
    """The rows of the second part and of later ones count from the block's first row, and from their own."""
    wide = [Field(f"c{i}", f"c{i}", Int32()) for i in range(8)]
    rows = 3 * BLOCK_CHANGES // len(wide)

    parts = list(BlockDecoder(wide).decode(line({column.name: "x" for column in wide}) * rows))

    assert len(parts) == 3
    assert sum(part.rows for part in parts) == rows
    assert all(len(changes) == len(wide) for part in parts for changes in part.changed.values())


@given(
    limit=st.integers(0, 12),
    wrong=st.lists(st.lists(st.booleans(), min_size=4, max_size=4), max_size=12),
    reported=st.lists(st.booleans(), min_size=12, max_size=12),
)
def test_rows_in_parts_of_any_size_are_those_of_their_records_alone(
    limit: int, wrong: list[list[bool]], reported: list[bool]
) -> None:
    """Any number of changes in each row, and any of changes in a part."""
    wide = [Field(f"c{i}", f"c{i}", Int64()) for i in range(4)]
    # Entries that are no objects make the decoder leave the record's `meta` to the careful rule.
    meta = {True: b'"meta":{"changes":[3,{"field":"x","change":"NULLED","reason":"SOURCE"}]},"emitted_at"'}
    lines = [
        line({f"c{i}": "x" if is_wrong else i for i, is_wrong in enumerate(row)}, n).replace(
            b'"emitted_at"', meta.get(reported[n], b'"emitted_at"')
        )
        for n, row in enumerate(wrong)
    ]
    alone = [record_coercer(wide)(raw_line.rstrip()) for raw_line in lines]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoder, "BLOCK_CHANGES", limit)
        parts = list(BlockDecoder(wide).decode(b"".join(lines)))

    assert [values(parts, i) for i in range(4)] == [[row.values[i] for row in alone] for i in range(4)]
    assert [part.lines[row] + b"\n" for part in parts for row in range(part.rows)] == lines
    noted = [changes for part in parts for changes in in_rows(part)]
    assert noted == [[(change.field, change.change, change.reason) for change in row.changes] for row in alone]
    own = [list(part.changed.get(row, ())) for part in parts for row in range(part.rows)]
    assert own == [row.changes[row.reported :] for row in alone]
    assert all(changes_in(part) <= limit + len(wide) for part in parts)


@pytest.mark.parametrize("irregular_line", [False, True])
def test_a_value_with_more_than_most_changes_is_nulled_as_a_whole(irregular_line: bool) -> None:
    columns = [Field("a", "a", List(Int64())), Field("b", "b", List(List(Int64()))), Field("c", "c", Int64())]
    data = {"a": [1, "x"], "b": [[1], ["x"] * MAX_CHANGES], "c": "y"}
    text = line(data).replace(b'"emitted_at"', b'"x":NaN,"emitted_at"') if irregular_line else line(data)

    [part] = BlockDecoder(columns).decode(text)

    assert [values([part], column) for column in range(3)] == [[[1, None]], [None], [None]]
    [changes] = part.changed.values()
    assert [(change.field, change.change, change.reason) for change in changes] == [
        ("a.1", "NULLED", WRONG), ("b", "NULLED", WRONG), ("c", "NULLED", WRONG),
    ]  # fmt: skip
    assert json.loads(changes[1].original or b"") == data["b"]


def test_most_changes_of_one_record_are_noted_one_by_one() -> None:
    row = record_coercer([Field("a", "a", List(Int64()))])(line({"a": ["x"] * MAX_CHANGES}).rstrip())

    assert len(row.changes) == MAX_CHANGES
    assert row.values == [[None] * MAX_CHANGES]


# --- Sizes

SPARSE = b'{"type":"RECORD","record":{"stream":"s","data":{"c1":1},"emitted_at":1}}\n'


def columns(count: int) -> list[Field]:
    return [Field(f"c{i}", f"c{i}", Int64()) for i in range(count)]


def test_sparse_rows_of_many_columns_are_cut_by_cells() -> None:
    cut = list(blocks(SPARSE * 75_000, columns(1000)))

    assert b"".join(cut) == SPARSE * 75_000
    assert max(bytes(block).count(b"\n") for block in cut) == BLOCK_CELLS // 1000
    assert len(cut) <= 75_000 * 1000 // BLOCK_CELLS + 2


def test_a_property_counts_like_a_column() -> None:
    inside = [Field("a", "a", List(Struct(tuple(columns(1000)))))]

    assert [*map(len, blocks(SPARSE * 5000, inside))] == [*map(len, blocks(SPARSE * 5000, columns(1000)))]


@pytest.mark.parametrize("count", [0, 1, 10])
def test_rows_of_few_columns_are_cut_by_bytes(count: int) -> None:
    cut = list(blocks(SPARSE * (3 * BLOCK_BYTES // len(SPARSE)), columns(count)))

    assert all(BLOCK_BYTES - len(SPARSE) < len(block) <= BLOCK_BYTES for block in cut[:-1])


def test_a_row_with_more_cells_than_a_block_is_not_cut() -> None:
    assert [*map(bytes, blocks(SPARSE * 3, columns(10), cells=9))] == [SPARSE] * 3


@given(st.lists(st.integers(0, 300)), st.booleans(), st.integers(1, 50))
def test_blocks_together_are_the_segment(lengths: list[int], ended: bool, cells: int) -> None:
    text = b"\n".join(b"x" * length for length in lengths) + b"\n" * ended

    cut = [bytes(block) for block in blocks(text, columns(10), cells)]

    assert b"".join(cut) == text
    assert all(block.endswith(b"\n") for block in cut[:-1])
    assert all(cut)
