"""Columns that appear or become wider, within a sync and between syncs."""

from __future__ import annotations

from typing import Any

import pytest

from destination_datalake.schema.names import METADATA_NAMES
from destination_datalake.tables.table import Committed, Reencode, TableConflict
from integration_tests.harness.table_kinds import TABLE_KINDS
from unit_tests.tables.behaviour import other_engines
from unit_tests.tables.behaviour.shop import WIDE, Shop, ids, side_by_side

pytestmark = pytest.mark.share(9)

NUMBERS = {"id": {"type": "integer"}, "value": {"type": "integer"}}
FLOATS = {"id": {"type": "integer"}, "value": {"type": "number"}}

promotions = pytest.mark.parametrize(
    ("schema", "narrow", "wide", "promoted_to"),
    [(NUMBERS, 1, WIDE, "bigint"), (FLOATS, 0.5, 0.1, "double")],
    ids=["int to bigint", "float to double"],
)
"""A narrow and a wide value of a column, and the type that holds both."""


@promotions
def test_a_column_is_promoted_before_a_value_would_change(
    shop: Shop, schema: dict[str, Any], narrow: float, wide: float, promoted_to: str, *, overwrite: bool
) -> None:
    sync = shop.sync(overwrite=overwrite, schema=schema)
    promises = shop.promises.promotions[promoted_to]

    assert sync.commit({"id": 1, "value": narrow}) == 1
    assert sync.commit({"id": 2, "value": wide}) == (2 if promises.reencodes_batch else 1)
    assert sync.executors.rewritten == (1 if promises.rewrites_files else 0)
    assert sync.commit({"id": 3, "value": narrow}) == 1
    sync.publish()

    assert shop.rows() == [{"id": 1, "value": narrow}, {"id": 2, "value": wide}, {"id": 3, "value": narrow}]
    assert shop.types() == {"id": "int", "value": promoted_to}


def test_records_without_declared_fields_are_kept_whole_until_fields_are_declared(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    shop.sync(schema={}).commit({"id": 1, "more": [1.50]})
    [warning] = [message for message in caplog.messages if "declares no properties" in message]
    assert "as JSON text to the column _airbyte_data" in warning

    shop.sync().commit({"id": 2})
    shop.sync(schema={}).commit({"id": 3})

    rows = [(row["id"], row["_airbyte_data"]) for row in shop.lake.rows(*shop.name)]
    whole = [(None, '{"id": 1, "more": [1.5]}'), (None, '{"id": 3}')]
    assert sorted(rows, key=str) == sorted([*whole, (2, None)], key=str)
    assert sum("declares no properties" in message for message in caplog.messages) == 2


def test_a_new_column_whose_type_glue_does_not_take_is_json_text(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    integer, keys = {"type": "integer"}, [f"{number}{'x' * 240}" for number in range(600)]
    longer = {"properties": dict.fromkeys(keys, integer)}

    for number in (1, 2):
        sync = shop.sync(schema={"id": integer, "wide": longer, "list": array_of(longer)})
        sync.commit({"id": number, "wide": {keys[0]: number}, "list": [{keys[0]: number}]})

    texts = [f'{{"{keys[0]}": {number}}}' for number in (1, 2)]
    assert shop.rows() == [{"id": n, "wide": text, "list": f"[{text}]"} for n, text in enumerate(texts, start=1)]
    assert sum("exceeds the limit of 131,072 bytes" in message for message in caplog.messages) == 4

    shop.sync(schema={"id": integer, "other": {"properties": {"x": integer}}})
    with pytest.raises(TableConflict, match="exceed the limit of 131,072 bytes in the Glue Data Catalog: other"):
        shop.sync(schema={"id": integer, "other": longer})
    shop.sync(schema={"id": integer, "Other": longer}).commit({"id": 3, "Other": {keys[0]: 3}})
    [suffixed] = shop.types().keys() - {"id", "wide", "list", "other"}
    assert shop.rows()[2] == dict.fromkeys(shop.types()) | {"id": 3, suffixed: f'{{"{keys[0]}": 3}}'}

    shop.sync(schema={"id": integer, "text": {"type": "string"}, "Text": {"properties": {"x": integer}}})
    with pytest.raises(
        TableConflict,
        match="exceed the limit of 131,072 bytes in the Glue Data Catalog: text",
    ):
        shop.sync(schema={"id": integer, "Text": longer})


@side_by_side
@promotions
def test_files_encoded_before_another_sync_promoted_a_column_are_committed_or_encoded_again(
    shop: Shop, schema: dict[str, Any], narrow: float, wide: float, promoted_to: str
) -> None:
    late, other_sync = shop.sync(schema=schema), shop.sync(schema=schema)
    files = late.encode({"id": 1, "value": narrow})
    other_sync.commit({"id": 2, "value": wide})

    answer = late.table.commit(files, late.executors.rewrite)
    assert isinstance(answer, Reencode) == shop.promises.promotions[promoted_to].outdates_files
    if isinstance(answer, Reencode):
        assert answer.reason.startswith(("its ", "another writer "))
        assert not any(key in files[0].uri for key in shop.objects())
        late.commit({"id": 1, "value": narrow})

    assert shop.rows() == [{"id": 1, "value": narrow}, {"id": 2, "value": wide}]


@promotions
def test_an_overwrite_promotes_nothing_that_readers_see_before_it_is_published(
    shop: Shop, schema: dict[str, Any], narrow: float, wide: float, promoted_to: str
) -> None:
    shop.sync(schema=schema).commit({"id": 1, "value": narrow})

    sync = shop.sync(2, overwrite=True, schema=schema)
    sync.commit({"id": 2, "value": wide})
    assert shop.rows() == [{"id": 1, "value": narrow}]
    sync.publish()

    assert shop.rows() == [{"id": 2, "value": wide}]
    assert shop.types() == {"id": "int", "value": promoted_to}


def test_a_new_column_is_null_in_earlier_rows(shop: Shop, *, overwrite: bool) -> None:
    sync = shop.sync(2, overwrite=overwrite)
    sync.commit(*ids(1))

    with_name = {"id": {"type": "integer"}, "name": {"type": "string"}}
    resumed = shop.sync(2, overwrite=overwrite, schema=with_name)
    resumed.commit({"id": 2, "name": "two"})
    resumed.publish()

    assert shop.rows() == [{"id": 1, "name": None}, {"id": 2, "name": "two"}]


def test_a_column_that_the_stream_no_longer_has_stays(shop: Shop) -> None:
    shop.sync(schema={"id": {"type": "integer"}, "name": {"type": "string"}}).commit({"id": 1, "name": "one"})

    shop.sync().commit(*ids(2))

    assert shop.rows() == [{"id": 1, "name": "one"}, {"id": 2, "name": None}]


def text_object(*members: str) -> dict[str, Any]:
    return {"type": "object", "properties": {member: {"type": "string"} for member in members}}


def array_of(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


INTEGER, STRING = {"type": "integer"}, {"type": "string"}
A, AB, B, ABC = text_object("a"), text_object("a", "b"), text_object("b"), text_object("a", "b", "c")
RESUMED: dict[str, list[tuple[dict[str, Any], Any]]] = {
    "a member is new": [(A, {"a": "x"}), (AB, {"b": "y"})],
    "members are new twice": [(A, {"a": "x"}), (AB, {"b": "y"}), (ABC, {"c": "z"})],
    "a member is gone": [(AB, {"a": "x"}), (B, {"b": "y"})],
    "a member is replaced": [(A, {"a": "x"}), (B, {"b": "y"}), (A, {"a": "z"})],
    "a member of an array's objects is new": [(array_of(A), [{"a": "x"}]), (array_of(AB), [{"b": "y"}])],
    "a member of an inner object is new": [
        ({"type": "object", "properties": {"o": A}}, {"o": {"a": "x"}}),
        ({"type": "object", "properties": {"o": AB}}, {"o": {"b": "y"}}),
    ],
    "a member is new and another wider": [
        ({"type": "object", "properties": {"n": INTEGER}}, {"n": 1}),
        ({"type": "object", "properties": {"n": INTEGER, "a": STRING}}, {"n": WIDE, "a": "y"}),
    ],
    "a member has another type": [(A, {"a": "x"}), ({"type": "object", "properties": {"a": INTEGER}}, {"a": 1})],
    "it is text": [(A, {"a": "x"}), (STRING, "y"), (AB, {"b": "z"})],
    "it is text and wide again": [(INTEGER, 1), (STRING, "y"), (INTEGER, WIDE)],
}
"""Types and values of a column in syncs of one refresh, of which only the last publishes."""


DROPPED = [f"{case}, in a column that was dropped" for case in ("a member is new and another wider", "it is text")]
ADOPTED = [f"{case}, and the last sync appends" for case in ("members are new twice", "a member is gone", "it is text")]


@pytest.mark.parametrize("changes", [*RESUMED, *DROPPED, *ADOPTED])
def test_resumed_overwrite_ends_after_schema_changes(shop: Shop, changes: str) -> None:
    """The types of an unpublished overwrite follow those of the stream, not those of the published table."""
    syncs = RESUMED[changes.partition(",")[0]]
    shop.sync(schema={"id": INTEGER, "x": syncs[0][0]}).commit({"id": 0})

    for number, (type_, value) in enumerate(syncs, 1):
        if changes in DROPPED and number == len(syncs):
            other_engines.drop_column(shop, "x")
        is_append = changes in ADOPTED and number == len(syncs)
        sync = shop.sync(2 + is_append, overwrite=not is_append, schema={"id": INTEGER, "x": type_})
        sync.commit({"id": number, "x": value})
    sync.publish()

    rows = shop.rows()[1:] if changes in ADOPTED else shop.rows()
    assert [row.pop("id") for row in rows] == [*range(1, len(syncs) + 1)]
    kept = slice(-1, None) if changes in DROPPED else slice(None)
    for (_, sent), row in zip(syncs[kept], rows[kept], strict=True):
        assert sent in [without_nulls(value) for value in row.values()], row


def without_nulls(value: Any) -> Any:
    """Return the value without null members."""
    match value:
        case dict():
            return {name: without_nulls(member) for name, member in value.items() if member is not None}
        case list():
            return [without_nulls(element) for element in value]
    return value


REACTIONS = {"+1": 11, "-1": 22}


@pytest.mark.parametrize("is_recorded", [True, False], ids=["", "of an earlier version"])
def test_name_of_a_member_stays_with_its_field(shop: Shop, *, is_recorded: bool) -> None:
    """A Hive table of an earlier version does not say whose its member is: the member is given to neither of two."""
    for number, members in enumerate([("+1",), ("+1", "-1"), ("-1",)]):
        properties = dict.fromkeys(members, INTEGER)
        integers = {"type": "object", "properties": properties}
        sent = {member: REACTIONS[member] for member in members}
        sync = shop.sync(schema={"id": INTEGER, "x": integers, "y": array_of(integers), **properties})
        sync.commit({"id": number, "x": sent, "y": [sent], **sent})
        if not is_recorded and not number:
            shop.remove_properties("airbyte.field-names")

    kept = [{"_1": 11}, {"_1": 11, "minus_1": 22}, {"minus_1": 22}]
    inside = [*kept]
    if not is_recorded and shop.kind.name != "iceberg":
        inside[1] = {"plus_1": 11, "minus_1": 22}
    assert [without_nulls({name: row[name] for name in ("x", "y", *kept[1])}) for row in shop.rows()] == [
        {"x": object_, "y": [object_], **row} for object_, row in zip(inside, kept, strict=True)
    ]


@side_by_side
def test_syncs_that_append_may_disagree_on_the_columns(shop: Shop) -> None:
    """Two connections write the stream, one with a schema of before a field was added."""
    before = shop.sync()
    after = shop.sync(schema={"id": {"type": "integer"}, "name": {"type": "string"}})

    after.commit({"id": 1, "name": "one"})
    before.commit(*ids(2))

    assert shop.rows() == [{"id": 1, "name": "one"}, {"id": 2, "name": None}]


def test_a_conflicting_type_gets_a_column_of_its_own_and_the_table_s_comment_tells_of_both(shop: Shop) -> None:
    """What stood in the comment stays before it, and two syncs say it once; inside an object the whole object moves."""
    before, after = (
        {"id": {"type": "integer"}, "code": type_, "buyer": {"type": "object", "properties": {"points": type_}}}
        for type_ in ({"type": "integer"}, {"type": "string"})
    )
    shop.sync(schema=before).commit({"id": 1, "code": 7, "buyer": {"points": 1}})
    other_engines.update_entry(shop, lambda table_input: table_input.update(Description="Every order."))

    for number in (2, 3):
        shop.sync(schema=after).commit({"id": number, "code": "x7", "buyer": {"points": "many"}})

    old = {"code": 7, "buyer": {"points": 1}, "code__string": None, "buyer__struct": None}
    new = {"code": None, "buyer": None, "code__string": "x7", "buyer__struct": {"points": "many"}}
    assert shop.rows() == [{"id": 1, **old}, {"id": 2, **new}, {"id": 3, **new}]
    assert shop.lake.glue_table(*shop.name)["Description"].splitlines() == [
        "Every order.",
        "Column code__string holds what is sent for code as string; code is int.",
        "Column buyer__struct holds what is sent for buyer as struct<points:string>; buyer is struct<points:int>.",
    ]


# --- Nested values

ZONED = {"type": "object", "properties": {"zone": {"type": "integer"}}}
ADDRESS = {"type": "object", "properties": {"theCity": {"type": "string"}, "geo": ZONED}}
ADDRESSES: dict[str, Any] = {
    "id": {"type": "integer"},
    "address": ADDRESS,
    "tags": {"type": "array", "items": {"type": "string"}},
}
ROME: dict[str, Any] = {"address": {"theCity": "Rome", "geo": {"zone": 1}}, "tags": ["old"]}
STRUCT = {"address": "struct<the_city:string,geo:struct<zone:int>>", "tags": "array<string>"}
JSON = {"address": "string", "tags": "string"}
FLAT = {"address_the_city": "string", "address_geo_zone": "int", "tags": "array<string>"}
HALF_FLAT = {"address_the_city": "string", "address_geo": "struct<zone:int>", "tags": "array<string>"}
AS_STRUCT = {"address": {"the_city": "Rome", "geo": {"zone": 1}}, "tags": ["old"]}
AS_JSON = {"address": '{"theCity": "Rome", "geo": {"zone": 1}}', "tags": '["old"]'}
AS_FLAT = {"address_the_city": "Rome", "address_geo_zone": 1, "tags": ["old"]}
AS_HALF_FLAT = {"address_the_city": "Rome", "address_geo": {"zone": 1}, "tags": ["old"]}


@pytest.mark.parametrize(
    ("options", "types", "row"),
    [
        ({"nested": "struct"}, STRUCT, AS_STRUCT),
        ({"nested": "json"}, JSON, AS_JSON),
        ({"nested": "flatten"}, FLAT, AS_FLAT),
        ({"nested": "flatten", "flatten_max_depth": 1}, HALF_FLAT, AS_HALF_FLAT),
        ({"nested": "json", "streams": [{"stream": "orders", "nested": "flatten"}]}, FLAT, AS_FLAT),
    ],
)
def test_nested_values_are_stored_as_the_options_say(
    shop: Shop, options: dict[str, Any], types: dict[str, str], row: dict[str, Any]
) -> None:
    for number in (1, 2):
        shop.sync(schema=ADDRESSES, **options).commit({"id": number, **ROME})

    assert shop.types() == {"id": "int", **types}
    assert shop.rows() == [{"id": 1, **row}, {"id": 2, **row}]


@pytest.mark.parametrize(
    ("before", "after", "types", "rows"),
    [
        ("struct", "flatten", {**STRUCT, **FLAT}, [AS_STRUCT, AS_FLAT]),
        ("flatten", "struct", {**FLAT, **STRUCT}, [AS_FLAT, AS_STRUCT]),
        (
            "struct",
            "json",
            {**STRUCT, "address__json": "string", "tags__json": "string"},
            [AS_STRUCT, {f"{name}__json": text for name, text in AS_JSON.items()}],
        ),
        (
            "json",
            "struct",
            {**JSON, "address__struct": STRUCT["address"], "tags__list": "array<string>"},
            [AS_JSON, {"address__struct": AS_STRUCT["address"], "tags__list": ["old"]}],
        ),
    ],
)
def test_with_another_value_of_nested_a_table_keeps_its_columns_and_gets_new_ones(
    shop: Shop, before: str, after: str, types: dict[str, str], rows: list[dict[str, Any]]
) -> None:
    shop.sync(schema=ADDRESSES, nested=before).commit({"id": 1, **ROME})
    shop.sync(schema=ADDRESSES, nested=after).commit({"id": 2, **ROME})

    absent = dict.fromkeys(types)
    assert shop.types() == {"id": "int", **types}
    assert shop.rows() == [{**absent, "id": number, **row} for number, row in enumerate(rows, 1)]


def test_a_stream_whose_nested_values_no_longer_fit_is_refused_if_the_options_say_so(shop: Shop) -> None:
    shop.sync(schema=ADDRESSES).commit({"id": 1, **ROME})

    with pytest.raises(TableConflict, match=r"column address has type struct<.*>, but the stream sends JSON text"):
        shop.sync(schema=ADDRESSES, nested="json", schema_conflicts="fail")

    assert shop.types() == {"id": "int", **STRUCT}


def test_a_flattened_column_is_widened_alone_and_keeps_its_name(shop: Shop) -> None:
    """The key `address_the_city` comes later: the column of that name stays with the field of the object."""
    shop.sync(schema=ADDRESSES, nested="flatten").commit({"id": 1, **ROME})
    later = {**ADDRESSES, "address_the_city": {"type": "integer"}}
    sync = shop.sync(schema=later, nested="flatten")
    sync.commit({"id": 2, "address_the_city": 5, "address": {"theCity": "Bern", "geo": {"zone": WIDE}}})

    (suffixed,) = shop.types().keys() - {"id", *FLAT}
    assert suffixed.startswith("address_the_city_")
    assert shop.types() == {"id": "int", **FLAT, suffixed: "int", "address_geo_zone": "bigint"}
    assert shop.rows() == [
        {"id": 1, **AS_FLAT, suffixed: None},
        {"id": 2, "address_the_city": "Bern", "address_geo_zone": WIDE, "tags": None, suffixed: 5},
    ]


def test_columns_beyond_max_columns_are_refused_before_the_table_is_created_or_changed(shop: Shop) -> None:
    with pytest.raises(TableConflict, match=r"would have 4 columns, but max_columns is 3\. Set nested to json"):
        shop.sync(schema=ADDRESSES, nested="flatten", max_columns=3)
    assert shop.rows_if_any() == []

    shop.sync(schema=ADDRESSES, nested="struct", max_columns=3).commit({"id": 1, **ROME})
    with pytest.raises(TableConflict, match="would have 5 columns, 2 of them new, but max_columns is 4"):
        shop.sync(schema=ADDRESSES, nested="flatten", max_columns=4)
    assert shop.types() == {"id": "int", **STRUCT}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in TABLE_KINDS if kind.name == "hive-parquet"], indirect=True)
def test_a_stream_of_ten_thousand_columns_lands(shop: Shop) -> None:
    """In one kind of table, as it takes seconds: the others take two and three times as long."""
    fields = {f"f{number}": {"type": "integer"} for number in range(9_999)}
    sync = shop.sync(
        schema={"id": {"type": "integer"}, "o": {"type": "object", "properties": fields}}, nested="flatten"
    )

    [file] = sync.encode({"id": 1, "o": {"f0": 1, "f9998": 2}})

    assert sync.table.commit([file], sync.executors.rewrite) == Committed()
    assert len(shop.types()) == len(file.columns) == 10_000
    assert {column.name for column in file.columns} - file.with_nulls == {"id", "o_f0", "o_f9998"}


def test_flattened_columns_partition_and_sort_a_table(shop: Shop) -> None:
    by = [{"source": "address.theCity"}, {"source": "address.geo.zone"}]
    own = [{"stream": "orders", "nested": "flatten", "partition_by": by, "sort_by": by}]
    for number in (1, 2):
        sync = shop.sync(schema=ADDRESSES, streams=own)
        sync.commit({"id": number, **ROME}, {"id": number + 2, "address": {"theCity": "Bern"}}, {"id": number + 4})
        sync.publish()

    folders = {key.partition("address_the_city")[2].rpartition("/")[0] for key in shop.objects() if "=" in key}
    assert len(folders) == len({"Rome 1", "Bern null", "null null"})
    nothing = dict.fromkeys(AS_FLAT)
    assert [row for row in shop.rows() if row["id"] % 2] == [
        {"id": 1, **AS_FLAT},
        {"id": 3, **nothing, "address_the_city": "Bern"},
        {"id": 5, **nothing},
    ]


@pytest.mark.parametrize("kind", [kind for kind in TABLE_KINDS if kind.name.startswith("hive")], indirect=True)
def test_a_field_with_the_name_of_a_partition_key_gets_a_column_with_a_suffix(shop: Shop) -> None:
    """Athena does not read a table with a column and a partition key of one name."""
    day = {"type": "string", "format": "date"}
    by_year: dict[str, Any] = {"partitioning": "YEAR", "partition_source": "at", "nested": "flatten"}
    shop.sync(schema={"id": {"type": "integer"}, "at": day}, **by_year).commit({"id": 1, "at": "2024-02-29"})
    of_the_year = {"at": day, "At": {"type": "object", "properties": {"year": {"type": "integer"}}}}
    for number in (2, 3):
        sync = shop.sync(schema={"id": {"type": "integer"}, **of_the_year}, **by_year)
        sync.commit({"id": number, "at": "2025-02-28", "At": {"year": 7}})

    table = shop.lake.glue_table(*shop.name)
    assert [key["Name"] for key in table["PartitionKeys"]] == ["at_year"]
    (column,) = {entry["Name"] for entry in table["StorageDescriptor"]["Columns"]} - {"id", "at"} - set(METADATA_NAMES)
    assert column.startswith("at_year_")
    assert [(row["id"], row[column]) for row in shop.rows()] == [(1, None), (2, 7), (3, 7)]
