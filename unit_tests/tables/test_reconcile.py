"""Reconciliation of a stream's columns with an existing table: conflicts of types, and limits of columns."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from destination_datalake.config.options import Config
from destination_datalake.config.tables import SchemaConflicts
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.schema.columns import METADATA_COLUMNS
from destination_datalake.schema.types import (
    ColumnType,
    Field,
    Int32,
    Int64,
    Json,
    List,
    String,
    Struct,
    Timestamp,
)
from destination_datalake.tables.reconcile import (
    COMMENT_BYTES,
    HIGHEST_MAX_COLUMNS,
    MAX_TYPE_BYTES,
    ColumnLimits,
    Conflict,
    Reconciliation,
    foreign_metadata_column,
    reconcile,
)
from destination_datalake.tables.table import TableConflict, TableName
from unit_tests.config.examples import options

LIMITS = ColumnLimits(100, flattened=False)
METADATA: Mapping[str, ColumnType | None] = {column.name: column.type for column in METADATA_COLUMNS}


def reconciled(
    table: dict[str, ColumnType | None], stream: dict[str, ColumnType], policy: SchemaConflicts = "new_column"
) -> Reconciliation:
    columns = [Field(name, name, type_) for name, type_ in stream.items()]
    existing = {**METADATA, **table}
    type_names = {name: "map<string,int>" if type_ is None else "" for name, type_ in existing.items()}
    return reconcile(
        StreamId(None, "Orders"), TableName("shop", "orders"), columns, existing, type_names, policy, LIMITS
    )


@pytest.mark.parametrize(
    ("column", "type_"),
    [
        ("_airbyte_meta", String()),
        ("_airbyte_raw_id", None),
        ("_AIRBYTE_RAW_ID", Int64()),
        ("_airbyte_generation_id", Int32()),
    ],
)
def test_metadata_column_of_another_type_is_refused(column: str, type_: ColumnType | None) -> None:
    table = {name: present for name, present in METADATA.items() if name != column.lower()} | {column: type_}

    assert foreign_metadata_column(METADATA, METADATA_COLUMNS) is None
    assert foreign_metadata_column({}, METADATA_COLUMNS) is None
    problem = foreign_metadata_column(table, METADATA_COLUMNS)
    assert problem is not None
    assert f"its column {column.lower()} differs" in problem
    with pytest.raises(TableConflict, match="Rename the column"):
        reconciled({column: type_}, {})


@pytest.mark.parametrize(
    ("table_type", "stream_type", "conflict"),
    [
        (Int32(), String(), Conflict("code", "int", "string", "code__string")),
        (String(), Int32(), Conflict("code", "string", "int", "code__int")),
        (None, Int32(), Conflict("code", "map<string,int>", "int", "code__int")),
        (
            Timestamp(zoned=True),
            Timestamp(zoned=False),
            Conflict("code", "timestamp, UTC", "timestamp", "code__timestamp"),
        ),
        (Int32(), Json(), Conflict("code", "int", "JSON text", "code__json")),
        (
            Struct((Field("a", "a", Int32()),)),
            Struct((Field("a", "a", String()),)),
            Conflict("code", "struct<a:int>", "struct<a:string>", "code__struct"),
        ),
        (List(Int32()), List(String()), Conflict("code", "array<int>", "array<string>", "code__list")),
    ],
)
def test_a_conflict_names_the_column_both_types_and_the_redirected_column(
    table_type: ColumnType | None, stream_type: ColumnType, conflict: Conflict
) -> None:
    assert reconciled({"code": table_type}, {"code": stream_type}).conflicts == (conflict,)


def test_every_column_that_forks_is_a_warning_with_both_names_once_a_sync(caplog: pytest.LogCaptureFixture) -> None:
    table: dict[str, ColumnType | None] = {"rate": Int32(), "two words": String(), "same": Int32()}
    sent: dict[str, ColumnType] = {"rate": String(), "two words": Int32(), "same": Int64()}

    for _ in range(2):  # As for each commit.
        reconciled(table, sent)

    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        (
            "WARNING",
            "Table shop.orders: column rate has type int, which cannot store the type string that stream Orders sends. "
            "These values are written to column rate__string. In new rows, column rate is null.",
        ),
        (
            "WARNING",
            "Table shop.orders: column 'two words' has type string, which cannot store the type int that stream Orders "
            "sends. These values are written to column 'two words__int'. In new rows, column 'two words' is null.",
        ),
    ]


@pytest.mark.parametrize("stream", [{"code": Int32()}, {"code": Int64()}, {"more": String()}, {}])
@pytest.mark.parametrize("policy", ["new_column", "fail"])
def test_a_column_that_can_be_added_or_widened_is_no_conflict(
    stream: dict[str, ColumnType], policy: SchemaConflicts
) -> None:
    assert reconciled({"code": Int32()}, stream, policy).conflicts == ()


def test_a_conflict_under_policy_fail_is_refused_with_remedies() -> None:
    with pytest.raises(TableConflict) as refused:
        reconciled({"code": Int32(), "total": String()}, {"code": String(), "total": Int32()}, "fail")

    assert str(refused.value) == (
        "Cannot write stream Orders to table shop.orders: column code has type int, but the stream sends string; "
        "column total has type string, but the stream sends int; schema_conflicts is fail. Set schema_conflicts to "
        "new_column to write such values to code__string, total__int, or rename or convert the column in the table, "
        "or choose another "
        "lakeformation_database_name."
    )


LINE = "Column code__string holds what is sent for code as string; code is int."


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", LINE),
        ("Every order.", f"Every order.\n{LINE}"),
        ("Every order.\n", f"Every order.\n\n{LINE}"),
        (f"Every order.\n{LINE}\nAsk the shop.", f"Every order.\n{LINE}\nAsk the shop."),
        ("Column code__string holds letters.", "Column code__string holds letters."),
        ("x" * COMMENT_BYTES, "x" * COMMENT_BYTES),
    ],
)
def test_a_conflict_is_appended_to_the_comment_once(before: str, after: str) -> None:
    conflicting = reconciled({"code": Int32()}, {"code": String()})

    assert conflicting.comment(before) == after
    assert conflicting.comment(after) == after


STREAM, TABLE = StreamId("shop", "orders"), TableName("shop", "orders")
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
            "it would have 4 columns, but max_columns is 3. Deselect fields in the connection's settings, or raise "
            "max_columns.",
        ),
        (
            ColumnLimits(3, flattened=True),
            columns(3),
            "it would have 4 columns, 1 of them new, but max_columns is 3. Set nested to json or struct for the "
            "stream, or lower flatten_max_depth, or deselect fields in the connection's settings, or raise "
            "max_columns.",
        ),
    ],
)
def test_a_refusal_has_the_count_the_limit_and_the_remedy(limits: ColumnLimits, before: Columns, says: str) -> None:
    assert refusal(limits, before, columns(4)) == f"Cannot write stream shop.orders to table shop.orders: {says}"


def test_max_columns_is_not_to_be_raised_beyond_its_highest_value() -> None:
    message = refusal(ColumnLimits(HIGHEST_MAX_COLUMNS, flattened=False), {}, columns(HIGHEST_MAX_COLUMNS + 1))

    assert "it would have 10,001 columns, but max_columns is 10,000." in message
    assert "raise" not in message


def struct_of(bytes_: int) -> Struct:
    """A struct whose type is so long in Glue."""
    name_length = bytes_ - len("struct<:int>")
    return Struct((Field("x" * name_length, "x", Int32()),))


@pytest.mark.parametrize(
    ("before", "after", "refused"),
    [
        ({}, {"a": struct_of(MAX_TYPE_BYTES)}, ""),
        ({}, {"a": struct_of(MAX_TYPE_BYTES + 1)}, "a."),
        ({}, {"a": List(struct_of(MAX_TYPE_BYTES))}, "a."),
        ({"a": Struct((Field("y", "y", String()),))}, {"a": struct_of(MAX_TYPE_BYTES + 1)}, "a."),
        ({"a": struct_of(MAX_TYPE_BYTES + 1)}, {"a": struct_of(MAX_TYPE_BYTES + 1), "b": Int32()}, ""),
        ({}, {f"c{i}": struct_of(MAX_TYPE_BYTES + 1) for i in range(9)}, "c0, c1, c2 and 6 more."),
    ],
)
def test_a_type_that_is_longer_than_glue_takes_is_refused(before: Columns, after: Columns, refused: str) -> None:
    message = refusal(ColumnLimits(100, flattened=False), before, after)

    assert (f"exceed the limit of 131,072 bytes in the Glue Data Catalog: {refused}" in message) == bool(refused)
    assert bool(message) == bool(refused)
    assert ("Set nested to json" in message) == bool(refused)


def test_a_rest_catalog_takes_types_of_any_length() -> None:
    limits = ColumnLimits(100, flattened=False, max_type_bytes=None)
    assert refusal(limits, {}, {"a": struct_of(MAX_TYPE_BYTES + 1)}) == ""


def test_the_limits_are_those_of_the_options() -> None:
    config = Config.parse(options(max_columns=7, streams=[{"stream": "orders", "nested": "flatten"}]))

    assert ColumnLimits.for_stream(config, STREAM) == ColumnLimits(7, flattened=True)
    assert ColumnLimits.for_stream(config, StreamId("shop", "clicks")) == ColumnLimits(7, flattened=False)
