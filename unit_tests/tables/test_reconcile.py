"""Reconciliation of a stream with an existing table: conflicts, refusals, and the table's comment."""

from __future__ import annotations

import pytest

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
from destination_datalake.tables.limits import ColumnLimits
from destination_datalake.tables.reconcile import COMMENT_BYTES, Conflict, Reconciliation, reconcile
from destination_datalake.tables.table import TableConflict, TableName

LIMITS = ColumnLimits(100, flattened=False)
METADATA = {column.name: column.type for column in METADATA_COLUMNS}


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
            "Table shop.orders: column rate is int, which cannot hold the string that stream Orders sends. Its values "
            "are written to column rate__string, and rate is null in new rows.",
        ),
        (
            "WARNING",
            "Table shop.orders: column 'two words' is string, which cannot hold the int that stream Orders sends. Its "
            "values are written to column 'two words__int', and 'two words' is null in new rows.",
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
        "Cannot write stream Orders to table shop.orders: column code is int and string is sent; column total is "
        "string and int is sent; and schema_conflicts is fail. Set schema_conflicts to new_column, which writes such "
        "values to code__string, total__int, or rename or convert the column in the table, or choose another "
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
