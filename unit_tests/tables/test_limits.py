"""Limits of columns: what exceeds them is refused, with the count, the limit and the remedy."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from destination_datalake.config.options import Config
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.schema.columns import METADATA_COLUMNS
from destination_datalake.schema.types import ColumnType, Field, Int32, Int64, List, String, Struct
from destination_datalake.tables.limits import HIGHEST_MAX_COLUMNS, MAX_TYPE_BYTES, ColumnLimits
from destination_datalake.tables.table import TableConflict, TableName
from unit_tests.config.examples import options

STREAM, TABLE = StreamId("shop", "orders"), TableName("shop", "orders")
METADATA: Mapping[str, ColumnType | None] = {column.name: column.type for column in METADATA_COLUMNS}
Columns = Mapping[str, ColumnType | None]


def columns(count: int) -> Columns:
    return {f"c{number}": Int32() for number in range(count)}


def refusal(limits: ColumnLimits, before: Columns, after: Columns) -> str:
    try:
        limits.require(STREAM, TABLE, before, after)
    except TableConflict as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("before", "after", "refused"),
    [
        ({}, columns(3), False),
        ({}, {**METADATA, **columns(3)}, False),
        ({}, columns(4), True),
        ({**METADATA, **columns(2)}, {**METADATA, **columns(3)}, False),
        ({**METADATA, **columns(3)}, {**METADATA, **columns(4)}, True),
        (columns(4), {**METADATA, **columns(4)}, False),
        (columns(4), {**columns(4), "c0": Int64()}, False),
        (columns(4), columns(5), True),
        ({**columns(3), "theirs": None}, {**columns(3), "theirs": None}, False),
    ],
)
def test_new_columns_beyond_max_columns_are_refused_and_existing_ones_are_not(
    before: Columns, after: Columns, refused: bool
) -> None:
    assert bool(refusal(ColumnLimits(3, flattened=False), before, after)) == refused


@pytest.mark.parametrize(
    ("limits", "before", "says"),
    [
        (
            ColumnLimits(3, flattened=False),
            {},
            "it would have 4 columns, and max_columns is 3. Deselect fields in the connection's settings, or raise "
            "max_columns.",
        ),
        (
            ColumnLimits(3, flattened=True),
            columns(3),
            "it would have 4 columns, 1 of them new, and max_columns is 3. Set nested to json or struct, or a lower "
            "flatten_max_depth, for the stream, or deselect fields in the connection's settings, or raise max_columns.",
        ),
    ],
)
def test_a_refusal_has_the_count_the_limit_and_the_remedy(limits: ColumnLimits, before: Columns, says: str) -> None:
    assert refusal(limits, before, columns(4)) == f"Cannot write stream shop.orders to table shop.orders: {says}"


def test_max_columns_is_not_to_be_raised_beyond_its_highest_value() -> None:
    message = refusal(ColumnLimits(HIGHEST_MAX_COLUMNS, flattened=False), {}, columns(HIGHEST_MAX_COLUMNS + 1))

    assert "it would have 10,001 columns, and max_columns is 10,000." in message
    assert "raise" not in message


def struct_of(bytes_: int) -> Struct:
    """A struct whose type is so long in Glue."""
    rest = bytes_ - len("struct<:int>")
    return Struct((Field("x" * rest, "x", Int32()),))


@pytest.mark.parametrize(
    ("before", "after", "refused"),
    [
        ({}, {"a": struct_of(MAX_TYPE_BYTES)}, ""),
        ({}, {"a": struct_of(MAX_TYPE_BYTES + 1)}, "column a "),
        ({}, {"a": List(struct_of(MAX_TYPE_BYTES))}, "column a "),
        ({"a": Struct((Field("y", "y", String()),))}, {"a": struct_of(MAX_TYPE_BYTES + 1)}, "column a "),
        ({"a": struct_of(MAX_TYPE_BYTES + 1)}, {"a": struct_of(MAX_TYPE_BYTES + 1), "b": Int32()}, ""),
        ({}, {f"c{i}": struct_of(MAX_TYPE_BYTES + 1) for i in range(9)}, "column c0, c1, c2 and 6 more "),
    ],
)
def test_a_type_that_is_longer_than_glue_takes_is_refused(before: Columns, after: Columns, refused: str) -> None:
    message = refusal(ColumnLimits(100, flattened=False), before, after)

    assert (f"the type of {refused}would be longer than the 131,072 bytes" in message) == bool(refused)
    assert bool(message) == bool(refused)
    assert ("Set nested to json" in message) == bool(refused)


def test_the_limits_are_those_of_the_options() -> None:
    config = Config.parse(options(max_columns=7, streams=[{"stream": "orders", "nested": "flatten"}]))

    assert ColumnLimits.of(config, STREAM) == ColumnLimits(7, flattened=True)
    assert ColumnLimits.of(config, StreamId("shop", "clicks")) == ColumnLimits(7, flattened=False)
