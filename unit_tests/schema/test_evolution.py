"""The changes that let a stream be written to a table, and the columns that take its values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_datalake.schema.evolution import (
    AddColumn,
    Evolution,
    SchemaChange,
    Widen,
    apply_changes,
    evolve,
    redirect_suffix,
    redirected_from,
)
from destination_datalake.schema.glue import glue_type, parse_glue_type
from destination_datalake.schema.iceberg import from_iceberg, iceberg_type
from destination_datalake.schema.types import (
    Boolean,
    ColumnType,
    Date,
    Decimal,
    Field,
    Float32,
    Float64,
    Int32,
    Int64,
    Json,
    List,
    String,
    Struct,
    Timestamp,
)
from unit_tests.strategies import EXAMPLE_TYPES, column_types, names


def column(name: str, type_: ColumnType) -> Field:
    return Field(name, name.title(), type_)


def a_struct(**fields: ColumnType) -> Struct:
    return Struct(tuple(column(name, type_) for name, type_ in fields.items()))


@pytest.mark.parametrize("type_", EXAMPLE_TYPES)
def test_a_table_with_the_stream_s_columns_needs_no_change(type_: ColumnType) -> None:
    evolution = evolve({"x": type_, "theirs": None}, [column("x", type_)])
    assert evolution.changes == ()
    assert evolution.columns == (column("x", type_),)


def test_a_new_column_is_added_at_the_end() -> None:
    evolution = evolve({"id": Int64()}, [column("new", String()), column("id", Int64())])
    assert evolution.changes == (AddColumn((), column("new", String())),)
    assert evolution.columns == (column("new", String()), column("id", Int64()))
    assert list(apply_changes({"id": Int64()}, evolution.changes)) == ["id", "new"]


def test_a_column_that_the_stream_lacks_is_kept() -> None:
    evolution = evolve({"gone": String(), "id": Int64()}, [column("id", Int64())])
    assert evolution.changes == ()


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [(Int32(), Int64()), (Float32(), Float64()), (Decimal(10, 2), Decimal(38, 2))],
)
def test_a_narrower_table_is_widened_and_a_wider_one_is_written_in_its_own_type(
    narrow: ColumnType, wide: ColumnType
) -> None:
    grown = evolve({"x": narrow}, [column("x", wide)])
    assert grown.changes == (Widen(("x",), wide),)
    assert grown.columns == (column("x", wide),)
    kept = evolve({"x": wide}, [column("x", narrow)])
    assert kept.changes == ()
    assert kept.columns == (column("x", wide),)


@pytest.mark.parametrize(
    ("table", "stream", "written", "changes"),
    [
        (Int64(), Decimal(38, 0), Int64(), ()),
        (Int32(), Decimal(38, 0), Int64(), (Widen(("x",), Int64()),)),
        (Decimal(38, 0), Int32(), Decimal(38, 0), ()),
        (Decimal(38, 0), Int64(), Decimal(38, 0), ()),
    ],
)
def test_an_integer_column_goes_on_when_numeric_types_changes(
    table: ColumnType, stream: ColumnType, written: ColumnType, changes: tuple[Widen, ...]
) -> None:
    assert evolve({"x": table}, [column("x", stream)]) == Evolution(changes, (column("x", written),))


@pytest.mark.parametrize(
    ("table", "stream", "redirected"),
    [
        (String(), Int32(), "x__int"),
        (String(), Int64(), "x__bigint"),
        (Int32(), String(), "x__string"),
        (Int32(), Json(), "x__json"),
        (Int32(), Float32(), "x__float"),
        (Float64(), Int64(), "x__bigint"),
        (Int64(), Float64(), "x__double"),
        (Float64(), Decimal(38, 18), "x__decimal"),
        (Decimal(38, 9), Decimal(38, 18), "x__decimal"),
        (Decimal(38, 18), Decimal(38, 0), "x__decimal"),
        (Decimal(18, 0), Int64(), "x__bigint"),
        (String(), Boolean(), "x__boolean"),
        (String(), Date(), "x__date"),
        (Date(), Timestamp(zoned=True), "x__timestamp"),
        (Timestamp(zoned=False), Timestamp(zoned=True), "x__timestamp"),
        (String(), a_struct(a=Int32()), "x__struct"),
        (a_struct(a=Int32()), a_struct(a=String()), "x__struct"),
        (String(), List(String()), "x__list"),
        (List(String()), List(Int32()), "x__list"),
        (None, String(), "x__string"),
    ],
)
def test_values_that_a_column_cannot_hold_are_redirected_to_a_new_one(
    table: ColumnType | None, stream: ColumnType, redirected: str
) -> None:
    evolution = evolve({"x": table}, [column("x", stream)])
    expected = Field(redirected, "X", stream)
    assert evolution.changes == (AddColumn((), expected),)
    assert evolution.columns == (expected,)


def test_the_suffix_of_a_redirected_column_is_the_type_s_name_without_parameters() -> None:
    assert [redirect_suffix(type_) for type_ in EXAMPLE_TYPES] == [
        *("boolean", "int", "bigint", "float", "double", "decimal", "string", "json", "date"),
        *("timestamp", "timestamp", "struct", "list"),
    ]


@pytest.mark.parametrize(
    ("existing", "stream", "target", "changes"),
    [
        ({"x__int": Int32()}, Int32(), Field("x__int", "X", Int32()), ()),
        ({"x__int": Int64()}, Int32(), Field("x__int", "X", Int64()), ()),
        ({"x__int": Int32()}, Int64(), Field("x__int", "X", Int64()), (Widen(("x__int",), Int64()),)),
        ({"x__bigint": Int64()}, Int32(), Field("x__bigint", "X", Int64()), ()),
        ({"x__bigint": Int64()}, Decimal(38, 0), Field("x__bigint", "X", Int64()), ()),
        ({"x__decimal": Decimal(38, 0)}, Int32(), Field("x__decimal", "X", Decimal(38, 0)), ()),
        (
            {"x__int": Boolean()},
            Int32(),
            Field("x__int__int", "X", Int32()),
            (AddColumn((), Field("x__int__int", "X", Int32())),),
        ),
    ],
)
def test_values_are_redirected_to_the_column_of_earlier_syncs(
    existing: dict[str, ColumnType | None], stream: ColumnType, target: Field, changes: tuple[SchemaChange, ...]
) -> None:
    evolution = evolve({"x": String(), **existing}, [column("x", stream)])
    assert evolution.columns == (target,)
    assert evolution.changes == changes


def test_values_are_not_redirected_to_another_column_of_the_stream() -> None:
    stream = [column("x", Int32()), column("x__int", Int32())]
    evolution = evolve({"x": String()}, stream)
    assert [field.name for field in evolution.columns] == ["x__int__int", "x__int"]
    evolution = evolve({"x": String(), "x__int": Int32()}, stream)
    assert [field.name for field in evolution.columns] == ["x__int__int", "x__int"]


def test_names_are_compared_without_regard_to_case_and_keep_the_table_s_spelling() -> None:
    """At any depth, and where a column cannot hold what the stream sends."""
    table: dict[str, ColumnType | None] = {"Id": Int32(), "Email": Int64(), "Line": a_struct(unitPrice=Int32())}
    line = a_struct(unitprice=Int64(), sku=String())

    evolution = evolve(table, [column("id", Int64()), column("email", String()), column("line", line)])

    assert evolution.changes == (
        Widen(("Id",), Int64()),
        AddColumn((), Field("email__string", "Email", String())),
        Widen(("Line", "unitPrice"), Int64()),
        AddColumn(("Line",), column("sku", String())),
    )
    assert [field.name for field in evolution.columns] == ["Id", "email__string", "Line"]
    repeated = evolve(apply_changes(table, evolution.changes), evolution.columns)
    assert repeated.changes == ()
    assert repeated.columns == evolution.columns


def test_text_and_json_text_share_a_column() -> None:
    assert evolve({"x": String()}, [column("x", Json())]).columns == (column("x", Json()),)
    assert evolve({"x": Json()}, [column("x", String())]).changes == ()


def test_the_name_of_a_redirected_column_is_bounded() -> None:
    (target,) = evolve({"x" * 255: String()}, [column("x" * 255, Int32())]).columns
    assert len(target.name) == 255
    assert target.name != "x" * 255


def test_fields_of_structs_are_added_and_widened_by_path() -> None:
    table = {"order": a_struct(id=Int32(), gone=String(), buyer=a_struct(age=Int32()))}
    stream = [column("order", a_struct(id=Int64(), note=String(), buyer=a_struct(age=Int32(), name=String())))]
    evolution = evolve(table, stream)
    assert evolution.changes == (
        Widen(("order", "id"), Int64()),
        AddColumn(("order",), column("note", String())),
        AddColumn(("order", "buyer"), column("name", String())),
    )
    assert evolution.columns == tuple(stream)
    assert apply_changes(table, evolution.changes) == {
        "order": a_struct(id=Int64(), gone=String(), buyer=a_struct(age=Int32(), name=String()), note=String())
    }


def test_a_wider_field_of_a_struct_is_written_in_the_tables_type() -> None:
    evolution = evolve({"o": a_struct(id=Int64(), x=Float64())}, [column("o", a_struct(x=Float32(), id=Int32()))])
    assert evolution.changes == ()
    assert evolution.columns == (column("o", a_struct(x=Float64(), id=Int64())),)


def test_the_elements_of_a_list_have_the_path_element() -> None:
    table: dict[str, ColumnType | None] = {"ids": List(Int32()), "items": List(a_struct(n=Float32()))}
    stream = [column("ids", List(Int64())), column("items", List(a_struct(n=Float64(), sku=String())))]
    evolution = evolve(table, stream)
    assert evolution.changes == (
        Widen(("ids", "element"), Int64()),
        Widen(("items", "element", "n"), Float64()),
        AddColumn(("items", "element"), column("sku", String())),
    )
    assert apply_changes(table, evolution.changes) == {field.name: field.type for field in stream}


def test_a_conflict_inside_a_struct_redirects_the_whole_column() -> None:
    evolution = evolve({"o": a_struct(a=Int32(), b=Int32())}, [column("o", a_struct(a=Int64(), b=String(), c=Date()))])
    assert evolution.changes == (AddColumn((), Field("o__struct", "O", a_struct(a=Int64(), b=String(), c=Date()))),)


unique_columns = st.lists(st.builds(column, names, column_types), max_size=6, unique_by=lambda field: field.name)


@given(st.dictionaries(names, st.none() | column_types, max_size=6), unique_columns)
def test_evolution_is_idempotent_and_keeps_every_column(
    table: dict[str, ColumnType | None], stream: list[Field]
) -> None:
    evolution = evolve(table, stream)
    after = apply_changes(table, evolution.changes)
    assert list(after)[: len(table)] == list(table)
    assert [field.source for field in evolution.columns] == [field.source for field in stream]
    assert len({field.name for field in evolution.columns}) == len(stream)
    repeated = evolve(after, stream)
    assert repeated.changes == ()
    assert repeated.columns == evolution.columns
    assert evolve(after, evolution.columns).changes == ()


@pytest.mark.parametrize(
    ("path", "wider", "expected"),
    [
        (("n",), Int64(), Int64()),
        (("f",), Float64(), Float64()),
        (("list", "element"), Int64(), List(Int64())),
        (("o", "deep", "element", "n"), Int64(), a_struct(deep=List(a_struct(n=Int64())))),
    ],
)
def test_a_widening_changes_the_type_at_its_path_only(
    path: tuple[str, ...], wider: ColumnType, expected: ColumnType
) -> None:
    columns: dict[str, ColumnType | None] = {
        "n": Int32(),
        "f": Float32(),
        "list": List(Int32()),
        "o": a_struct(deep=List(a_struct(n=Int32()))),
    }
    assert apply_changes(columns, [Widen(path, wider)]) == {**columns, path[0]: expected}


def test_changes_to_missing_columns_have_no_effect() -> None:
    assert apply_changes({"x": None}, [Widen(("x",), Int64()), Widen(("y",), Int64())]) == {"x": None}


def a_struct_of(type_: ColumnType) -> Struct:
    return Struct((Field("inner", "Inner", type_),))


SCALARS = [type_ for type_ in EXAMPLE_TYPES if not isinstance(type_, List | Struct)]
TYPES: list[ColumnType] = [
    *SCALARS,
    *map(List, SCALARS),
    *map(a_struct_of, SCALARS),
    *(List(a_struct_of(type_)) for type_ in SCALARS),
    *(a_struct_of(List(type_)) for type_ in SCALARS),
]

CATALOGS: Mapping[str, Callable[[ColumnType], ColumnType | None]] = {
    "Glue": lambda type_: parse_glue_type(glue_type(type_)),
    "Iceberg": lambda type_: from_iceberg(iceberg_type(type_, count(1).__next__)),
}


@pytest.mark.parametrize("catalog", CATALOGS)
@pytest.mark.parametrize("existing", TYPES, ids=glue_type)
def test_evolution_is_idempotent_with_the_types_that_a_catalog_returns(catalog: str, existing: ColumnType) -> None:
    """For every type of a table's column, and every type that a stream has for it; three syncs long."""
    returned = CATALOGS[catalog]
    for sent in TYPES:
        stream = [Field("x", "X", sent), Field("y", "Y", sent)]
        table: dict[str, ColumnType | None] = {"x": returned(existing)}
        first = evolve(table, stream)
        for _ in range(2):
            table = {name: type_ and returned(type_) for name, type_ in apply_changes(table, first.changes).items()}
            repeated = evolve(table, stream)
            assert repeated.changes == (), f"{glue_type(sent)} into {glue_type(existing)}"
            assert repeated.columns == first.columns
            first = repeated


def test_a_column_of_redirected_values_is_recognised_by_its_name() -> None:
    assert {redirected_from(f"a__b__{redirect_suffix(type_)}") for type_ in EXAMPLE_TYPES} == {"a__b"}
    assert [redirected_from(name) for name in ("a", "a_int", "a__zip", "__int")] == [None] * 4
