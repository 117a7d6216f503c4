"""What is refused and what is written down where a table and a stream cannot meet."""

from __future__ import annotations

import pytest

from destination_datalake.config.options import SchemaConflicts
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
from destination_datalake.tables.reconcile import COMMENT_BYTES, Conflict, Reconciler, Reconciliation
from destination_datalake.tables.table import TableConflict, TableName

OURS = {column.name: column.type for column in METADATA_COLUMNS}


def fit(
    there: dict[str, ColumnType | None], sent: dict[str, ColumnType], conflicts: SchemaConflicts = "new_column"
) -> Reconciliation:
    columns = [Field(name, name, type_) for name, type_ in sent.items()]
    table = {**OURS, **there}
    return Reconciler(TableName("shop", "orders"), StreamId(None, "Orders"), conflicts).to(
        columns, table, {name: "map<string,int>" if type_ is None else "" for name, type_ in table.items()}
    )


@pytest.mark.parametrize(
    ("there", "sent", "conflict"),
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
def test_a_conflict_names_the_column_both_types_and_where_the_values_go(
    there: ColumnType | None, sent: ColumnType, conflict: Conflict
) -> None:
    assert fit({"code": there}, {"code": sent}).conflicts == (conflict,)


@pytest.mark.parametrize("sent", [{"code": Int32()}, {"code": Int64()}, {"more": String()}, {}])
@pytest.mark.parametrize("policy", ["new_column", "fail"])
def test_what_can_be_added_or_widened_is_no_conflict(sent: dict[str, ColumnType], policy: SchemaConflicts) -> None:
    assert fit({"code": Int32()}, sent, policy).conflicts == ()


def test_a_conflict_that_is_to_fail_is_refused_in_a_sentence_that_says_what_to_do() -> None:
    with pytest.raises(TableConflict) as refused:
        fit({"code": Int32(), "total": String()}, {"code": String(), "total": Int32()}, "fail")

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
def test_a_conflict_is_told_in_the_comment_once_after_what_others_wrote(before: str, after: str) -> None:
    conflicting = fit({"code": Int32()}, {"code": String()})

    assert conflicting.comment(before) == after
    assert conflicting.comment(after) == after
