"""The columns of a stream's table, and the collisions among their names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_datalake.schema.columns import (
    METADATA_COLUMNS,
    NO_RECORD,
    WHOLE_RECORD,
    NameRecord,
    RecordFields,
    assign_names,
    find_collisions,
    stream_columns,
)
from destination_datalake.schema.evolution import apply_changes, evolve
from destination_datalake.schema.names import (
    AWS_DATALAKE,
    METADATA_NAMES,
    PRESERVE,
    SNAKE_CASE,
    Naming,
    origin_of,
    path_of,
)
from destination_datalake.schema.types import ColumnType, Field, Int32, Json, List, Nested, NumericTypes, String, Struct


def test_columns_have_the_order_of_the_schema_and_their_sources() -> None:
    schema = {"type": "object", "properties": {"zip": {"type": "string"}, "orderId": {"type": "integer"}}}
    assert stream_columns(schema, NumericTypes.INT_FLOAT) == (
        Field("zip", "zip", String()),
        Field("order_id", "orderId", Int32()),
    )


def test_references_are_resolved_in_the_schema_of_the_stream() -> None:
    schema = {
        "properties": {"parent": {"$ref": "#/definitions/Node"}},
        "definitions": {"Node": {"type": "object", "properties": {"id": {"type": "integer"}}}},
    }
    (parent,) = stream_columns(schema, NumericTypes.INT_FLOAT)
    assert parent.type == Struct((Field("id", "id", Int32()),))


def test_properties_with_metadata_names_are_left_out() -> None:
    schema = {"properties": {**{name: {"type": "string"} for name in METADATA_NAMES}, "id": {"type": "integer"}}}
    assert [column.name for column in stream_columns(schema, NumericTypes.INT_FLOAT)] == ["id"]


def test_a_property_whose_identifier_is_a_metadata_name_gets_a_suffix() -> None:
    (column,) = stream_columns({"properties": {"_airbyte_rawId": {"type": "string"}}}, NumericTypes.INT_FLOAT)
    assert column.source == "_airbyte_rawId"
    assert column.name.startswith("_airbyte_raw_id_")


def test_colliding_columns_are_all_kept() -> None:
    columns = stream_columns({"properties": {"aB": {}, "a_b": {}, "a b": {}}}, NumericTypes.INT_FLOAT)
    assert [column.source for column in columns] == ["aB", "a_b", "a b"]
    assert len({column.name for column in columns}) == 3


@pytest.mark.parametrize("nested", Nested)
@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object", "properties": None},
        {"additionalProperties": {"type": "string"}},
        {"$ref": "#/$defs/gone"},
        {"properties": {"_airbyte_meta": {"type": "object"}}},
    ],
)
def test_records_of_a_stream_without_properties_are_kept_whole(schema: Mapping[str, object], nested: Nested) -> None:
    [column] = stream_columns(schema, NumericTypes.INT_FLOAT, nested=nested)

    assert (column, column.origin) == (WHOLE_RECORD, "_airbyte_data")


def test_a_field_named_like_the_column_of_whole_records_is_a_field() -> None:
    [column] = stream_columns({"properties": {"_airbyte_data": {}}}, NumericTypes.INT_FLOAT)
    assert column == Field("_airbyte_data", "_airbyte_data", Json())


def test_the_metadata_columns_have_the_metadata_names_in_order() -> None:
    assert tuple(column.name for column in METADATA_COLUMNS) == METADATA_NAMES
    meta = METADATA_COLUMNS[2].type
    assert isinstance(meta, Struct)
    assert isinstance(meta.fields[1].type, List)


NUMBER = {"type": "number"}


def object_of(*fields: str) -> Mapping[str, object]:
    return {"type": "object", "properties": dict.fromkeys(fields, NUMBER)}


@pytest.mark.parametrize(
    ("naming", "properties", "expected"),
    [
        (SNAKE_CASE, {"id": NUMBER, "createdAt": NUMBER}, []),
        (
            SNAKE_CASE,
            {"a_b": NUMBER, "id": NUMBER, "aB": NUMBER, "a b": NUMBER},
            ["'a_b' is a_b, 'aB' is a_b_#, 'a b' is a_b_#"],
        ),
        (PRESERVE, {"a_b": NUMBER, "aB": NUMBER, "a b": NUMBER}, ["'a_b' is a_b, 'a b' is a_b_#"]),
        (SNAKE_CASE, {"aB": NUMBER, "a-b": NUMBER}, ["'aB' is a_b_#, 'a-b' is a_b_#"]),
        (SNAKE_CASE, {"_airbyteMeta": NUMBER}, ["'_airbyteMeta' is _airbyte_meta_#"]),
        (SNAKE_CASE, {"_airbyte_meta": NUMBER}, []),
        (SNAKE_CASE, {"_file": NUMBER}, ["'_file' is _file_#"]),
        (
            SNAKE_CASE,
            {"The Customer": object_of("aB", "a_b"), "lines": {"type": "array", "items": object_of("x y", "xY")}},
            [
                "in 'The Customer' 'aB' is a_b_#, 'a_b' is a_b",
                "in 'lines' 'x y' is x_y_#, 'xY' is x_y_#",
            ],
        ),
        (PRESERVE, {"1a": NUMBER, "_1a": NUMBER, "o": object_of("1a", "_1a")}, ["in 'o' '1a' is _1a_#, '_1a' is _1a"]),
    ],
)
def test_a_collision_names_the_colliding_fields_and_their_columns(
    naming: Naming, properties: Mapping[str, object], expected: list[str]
) -> None:
    columns = stream_columns({"properties": properties}, NumericTypes.INT_FLOAT, naming)
    messages = [str(collision) for collision in find_collisions(columns, naming)]

    assert [re.sub("_[0-9a-f]{8}", "_#", text) for text in messages] == expected


# --- The option nested

TEXT = {"type": "string"}
GEO = {"type": "object", "properties": {"latLon": TEXT, "zones": {"type": "array", "items": object_of("id")}}}
CUSTOMER = {"type": "object", "properties": {"firstName": TEXT, "geo": GEO, "open": {"type": "object"}}}
STREAM = {"properties": {"id": NUMBER, "theCustomer": CUSTOMER, "lines": {"type": "array", "items": CUSTOMER}}}


def flat_names(
    *paths: Sequence[str], existing: Mapping[str, str | None] = {}, naming: Naming = SNAKE_CASE
) -> list[str]:
    columns = [Field("", source, String(), tuple(parents)) for *parents, source in paths]
    named = assign_names(columns, naming, existing)
    return [re.sub("_[0-9a-f]{8}$", "_#", column.name) for column in named]


def test_objects_and_arrays_with_a_declared_schema_become_json_text() -> None:
    columns = stream_columns(STREAM, NumericTypes.DECIMAL, nested=Nested.JSON)

    assert [(column.name, type(column.type).__name__) for column in columns] == [
        ("id", "Decimal"),
        ("the_customer", "Json"),
        ("lines", "Json"),
    ]


@pytest.mark.parametrize(
    ("depth", "expected"),
    [
        (1, ["the_customer_first_name", "the_customer_geo", "the_customer_open"]),
        (
            2,
            [
                "the_customer_first_name",
                "the_customer_geo_lat_lon",
                "the_customer_geo_zones",
                "the_customer_open",
            ],
        ),
    ],
)
def test_fields_of_objects_become_columns_down_to_the_depth(depth: int, expected: Sequence[str]) -> None:
    structs = stream_columns(STREAM, NumericTypes.INT_FLOAT)
    flat = stream_columns(STREAM, NumericTypes.INT_FLOAT, nested=Nested.FLATTEN, flatten_max_depth=depth)

    assert [column.name for column in flat] == ["id", *expected, "lines"]
    assert (flat[0], flat[-1]) == (structs[0], structs[-1])
    assert {type(column.type) for column in flat[1:-1]} <= {String, Json, List, Struct}


def test_a_flattened_column_records_its_path_as_json_path() -> None:
    columns = stream_columns({"properties": {"a": object_of("b", "c.d", "it's")}}, NumericTypes.INT_FLOAT)
    assert [column.origin for column in columns] == ["a"]

    flat = stream_columns(
        {"properties": {"a": object_of("b", "c.d", "it's")}}, NumericTypes.INT_FLOAT, nested=Nested.FLATTEN
    )

    assert [column.origin for column in flat] == ["$.a.b", "$.a['c.d']", "$.a['it\\'s']"]


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        ([("a", "b"), ("a_b",)], ["a_b_#", "a_b"]),
        ([("a", "b"), ("a b",)], ["a_b_#", "a_b_#"]),
        ([("a", "b"), ("a.b",)], ["a_b_#", "a_b_#"]),
        ([("a", "b_c"), ("a_b", "c")], ["a_b_c_#", "a_b_c_#"]),
        ([("a.b", "c"), ("a", "b.c"), ("a", "b", "c")], ["a_b_c_#", "a_b_c_#", "a_b_c_#"]),
        ([("_airbyte", "meta"), ("_spec", "id")], ["_airbyte_meta_#", "_spec_id_#"]),
        ([("a", "b"), ("$.a.b",), ("$['$.a.b']",)], ["a_b_#", "a_b_#", "a_b_#"]),
        ([("", "1st")], ["unnamed_e3b0c442__1st"]),
    ],
)
def test_names_of_flattened_columns_collide_as_other_names_do(
    paths: Sequence[Sequence[str]], expected: Sequence[str]
) -> None:
    assert flat_names(*paths) == expected
    assert flat_names(*paths[::-1]) == expected[::-1]


def test_a_flattened_column_keeps_its_name_when_a_key_of_that_spelling_appears() -> None:
    assert flat_names(("a", "b"), ("a_b",), existing={"a_b": "$.a.b"}) == ["a_b", "a_b_#"]
    assert flat_names(("a", "b"), ("a_b",), ("a.b",), existing={"a_b": "a.b"}) == ["a_b_#", "a_b_#", "a_b"]


def test_a_name_without_a_source_is_given_to_no_column() -> None:
    assert flat_names(("at_year",), ("at", "year"), existing={"at_year": None}) == ["at_year_#", "at_year_#"]


def test_the_name_of_a_flattened_column_is_cut_to_what_catalogs_take() -> None:
    [name] = flat_names(("a" * 200, "b" * 200))
    assert len(name) == len("_#") + 246


paths = st.lists(
    st.lists(st.sampled_from(["a", "b", "a_b", "a.b", "A", "$.a.b", ""]), min_size=1, max_size=3).map(tuple),
    unique=True,
    min_size=1,
    max_size=6,
)


@given(paths, st.sampled_from([SNAKE_CASE, PRESERVE]), st.randoms())
def test_names_of_columns_depend_on_neither_order_nor_newer_columns(
    every: list[tuple[str, ...]], naming: Naming, random: Random
) -> None:
    columns = [Field("", path[-1], String(), path[:-1]) for path in every]
    named = {column.path: column.name for column in assign_names(columns, naming, {})}
    older = assign_names(columns[: len(columns) // 2], naming, {})
    existing = {column.name: column.origin for column in older}

    random.shuffle(columns)

    assert {column.path: column.name for column in assign_names(columns, naming, {})} == named
    assert len(set(named.values())) == len(columns)
    continued = {column.path: column.name for column in assign_names(columns, naming, existing)}
    assert {column.path: continued[column.path] for column in older} == {column.path: column.name for column in older}


def test_columns_are_read_from_the_objects_that_hold_them() -> None:
    columns = stream_columns(STREAM, NumericTypes.INT_FLOAT, nested=Nested.FLATTEN)
    id_, first_name, lat_lon, zones, open_, lines = columns

    record = RecordFields.for_columns([first_name, lines, lat_lon, id_])

    assert [(field.source, type(field.type).__name__) for field in record.fields] == [
        ("theCustomer", "Struct"),
        ("lines", "List"),
        ("id", "Float32"),
    ]
    assert record.positions == ((0, 0), (1,), (0, 1, 0), (2,))
    assert RecordFields.for_columns([id_, zones, open_, lines]).positions == ((0,), (1, 0, 0), (1, 1), (2,))


@given(st.lists(st.sampled_from(["a", "B1", "", ".", "'", "\\", "$", "[x]", "é", "\n"]) | st.text(), min_size=1))
def test_a_path_is_found_again_in_what_catalogs_record_of_it(keys: list[str]) -> None:
    assert path_of(origin_of(tuple(keys))) == tuple(keys)


@given(st.text() | st.sampled_from(["$", "$.", "$a", "$.a.", "$['a", "$['a\\b']", "$.a…"]))
def test_any_other_comment_is_a_key(comment: str) -> None:
    assert path_of(comment) == (comment,) or origin_of(path_of(comment)) == comment


# --- Names over many syncs

keys = st.sampled_from(
    ["+1", "-1", "1", "_1", "plus_1", "minus_1", "_1_c59dc4e4", "a b", "a_b", "aB", "%", "@", "", "_file"]
)
column_types = st.recursive(
    st.just(String()) | st.just(Int32()),
    lambda inner: (
        st.lists(keys, unique=True, min_size=1, max_size=4).flatmap(
            lambda sources: st.tuples(*(inner for _ in sources)).map(
                lambda types: Struct(
                    tuple(Field("", source, type_) for source, type_ in zip(sources, types, strict=True))
                )
            )
        )
        | inner.map(List)
    ),
    max_leaves=6,
)
schemas = st.lists(st.tuples(keys, column_types), unique_by=lambda column: column[0], max_size=4)


def owners(fields: Sequence[Field], parents: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Yield the sources around each field, its name and its own source; arrays are not counted."""
    for field in fields:
        yield parents, field.name, field.source
        inside = field.type
        while isinstance(inside, List):
            inside = inside.element
        if isinstance(inside, Struct):
            yield from owners(inside.fields, (*parents, field.source))


@given(st.lists(schemas, max_size=5), st.sampled_from([SNAKE_CASE, PRESERVE, AWS_DATALAKE]))
def test_name_that_a_field_has_been_given_is_given_to_no_other_field(
    syncs: Sequence[Sequence[tuple[str, ColumnType]]], naming: Naming
) -> None:
    """Whatever fields come and go, at the top and inside objects, in arrays too; and a field keeps its name."""
    record, table, existing = NO_RECORD, dict[str, ColumnType | None](), dict[str, str | None]()
    given_to: dict[object, str] = {}
    names: dict[object, str] = {}
    for schema in syncs:
        columns = assign_names([Field("", *column) for column in schema], naming, existing, record, table)
        record = record.with_columns(columns, naming)
        for parents, name, source in owners(columns):
            assert given_to.setdefault((parents, name), source) == source
            assert names.setdefault((parents, source), name) == name
        evolution = evolve(table, columns)
        table = apply_changes(table, evolution.changes)
        for column in evolution.columns:
            existing.setdefault(column.name, column.origin)


def named_members(*sources: str, stored: Sequence[tuple[str, str]] = (), record: NameRecord = NO_RECORD) -> list[str]:
    """The names of an object's fields, of which a table has stored some, given by their names and sources."""
    column = Field("", "x", Struct(tuple(Field("", source, String()) for source in sources)))
    table = {"x": Struct(tuple(Field(name, source, String()) for name, source in stored))} if stored else {}
    [named] = assign_names([column], SNAKE_CASE, dict.fromkeys(table, "x"), record, table)
    assert isinstance(named.type, Struct)
    return [field.name for field in named.type.fields]


PLUS, MINUS = "_1_c59dc4e4", "_1_1bad6b8c"


@pytest.mark.parametrize(
    ("stored", "sent", "expected"),
    [
        ([], ["+1", "-1"], ["plus_1", "minus_1"]),
        ([], ["-1"], ["_1"]),
        ([], ["plus_1", "+1", "-1"], ["plus_1", PLUS, "minus_1"]),
        # Hive: tables of earlier versions have no sources of members.
        ([("_1", "_1"), (PLUS, PLUS), (MINUS, MINUS)], ["+1", "-1"], [PLUS, MINUS]),
        ([("_1", "_1"), (PLUS, PLUS), (MINUS, MINUS)], ["-1"], [MINUS]),
        ([("_1", "_1")], ["-1"], ["_1"]),
        # Iceberg: their docs are the sources.
        ([("_1", "+1")], ["-1"], ["minus_1"]),
        ([("_1", "+1")], ["-1", "+1"], ["minus_1", "_1"]),
        ([("_1", "+1"), (PLUS, "+1"), (MINUS, "-1")], ["-1", "+1"], [MINUS, PLUS]),
        ([("_1", "a text of somebody")], ["-1"], ["_1"]),
        ([("_1", "+1"), ("minus_1", "-1")], ["-1"], ["minus_1"]),
    ],
)
def test_members_without_a_record_keep_their_names(
    stored: Sequence[tuple[str, str]], sent: Sequence[str], expected: Sequence[str]
) -> None:
    assert named_members(*sent, stored=stored) == expected
