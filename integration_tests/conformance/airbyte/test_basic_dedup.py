"""Airbyte's BasicFunctionalityIntegrationTest here: streams that keep one row for each primary key.

Each test bears its scenario's name, in snake case.
"""

from collections.abc import Mapping
from typing import Any

import pytest

from integration_tests.conformance.airbyte.test_basic_functionality import FUNKY_NAMES
from integration_tests.harness.messages import EMITTED_AT, Json, configured_stream, record, status
from integration_tests.harness.table_kinds import PARTITIONED_KINDS, TABLE_KINDS
from integration_tests.harness.warehouse import INSTANT, INTEGER, STRING, Warehouse, object_schema

pytestmark = pytest.mark.share(2)

ICEBERG, ICEBERG_BY_HOUR = TABLE_KINDS[0], PARTITIONED_KINDS[0]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Rows are deduplicated in Iceberg tables."""
    kinds = (ICEBERG, ICEBERG_BY_HOUR) if metafunc.function is test_dedup else (ICEBERG,)
    metafunc.parametrize("table_kind", kinds, ids=lambda kind: kind.name, indirect=True)


COMPLETE = status("people", "COMPLETE")
LATER = EMITTED_AT + 1000
DELETED = "_ab_cdc_deleted_at"


def people(id_type: Json = INTEGER, *, sync_id: int = 1, generation: int = 42, minimum: int = 0) -> dict[str, object]:
    """Return the stream: a row for each (id1, id2), the latest by updated_at."""
    schema = object_schema(id1=id_type, id2=INTEGER, updated_at=INSTANT, name=STRING, **{DELETED: INSTANT})
    return configured_stream(
        "people",
        schema,
        mode="append_dedup",
        primary_key=("id1", "id2"),
        cursor="updated_at",
        sync_id=sync_id,
        generation=generation,
        minimum=minimum,
    )


def person(
    id1: object, id2: int, minute: int, name: str | None = None, *, at: int = EMITTED_AT, **more: object
) -> bytes:
    """Return a record whose cursor is this minute of a day, extracted at this millisecond."""
    updated = f"2000-01-01T{minute // 60:02}:{minute % 60:02}:00Z"
    named = {} if name is None else {"name": name}
    return record("people", {"id1": id1, "id2": id2, "updated_at": updated, **named, **more}, emitted_at=at)


def gone(id1: object, id2: int, minute: int, *, at: int = EMITTED_AT) -> bytes:
    """Return a deletion. When it was does not matter, only that it says so."""
    return person(id1, id2, minute, at=at, _ab_cdc_deleted_at="1970-01-01T00:00:00Z")


def named(warehouse: Warehouse) -> Mapping[Any, str | None]:
    """Return the names in the table, by id2; each is there once."""
    rows = warehouse.whole_rows("people")
    name_by_id = {row["id2"]: row["name"] for row in rows}
    assert len(name_by_id) == len(rows)
    return name_by_id


def play_dedup(warehouse: Warehouse, id_type: Json, key: object, **options: object) -> None:
    """Play Airbyte's scenario of two syncs, for ids of one type."""
    # Given two versions of one person, and another who was never deleted
    warehouse.sync(
        [people(id_type, sync_id=42)],
        [
            *(person(key, 200, 0, "Ada 1", _ab_cdc_deleted_at=None), person(key, 200, 1, "Ada 2")),
            *(person(key, 201, 2, "Bo 1"), COMPLETE),
        ],
        **options,
    )
    assert named(warehouse) == {200: "Ada 2", 201: "Bo 1"}
    # When both are updated, and the other, one who came in the same sync, and one who never was are deleted
    warehouse.sync(
        [people(id_type, sync_id=43)],
        [
            *(person(key, 200, 60, "Ada 3", at=LATER), person(key, 201, 60, "Bo 2", at=LATER)),
            gone(key, 201, 61, at=LATER),
            *(person(key, 202, 60, "Cy 1", at=LATER), gone(key, 202, 61, at=LATER)),
            *(gone(key, 203, 61, at=LATER), COMPLETE),
        ],
        **options,
    )
    # Then the one who remains is the latest version, whole
    (row,) = warehouse.whole_rows("people")
    assert (row["id1"], row["id2"], row["name"], row[DELETED]) == (key, 200, "Ada 3", None)
    assert row["updated_at"].hour == 1
    assert row["_airbyte_extracted_at"].timestamp() * 1000 == LATER
    assert (row["_airbyte_meta"]["sync_id"], row["_airbyte_generation_id"]) == (43, 42)


@pytest.mark.parametrize("deletes", ["copy_on_write", "merge_on_read"])
def test_dedup(warehouse: Warehouse, deletes: str) -> None:
    """The latest version of each key by its cursor; what the source has deleted is gone, what it never sent no row."""
    play_dedup(warehouse, INTEGER, 1, dedup={"deletes": deletes})


def test_dedup_with_string_key(warehouse: Warehouse) -> None:
    """The same with a text in the key."""
    play_dedup(warehouse, STRING, "0b5f6c1e-93a1-4a4f-8a5c-4b2f7c1f6a52")


def test_dedup_no_cursor(warehouse: Warehouse) -> None:
    """Without a cursor the record that was extracted last is the latest."""
    stream = configured_stream(
        "orders", object_schema(id=INTEGER, name=STRING), mode="append_dedup", primary_key=["id"]
    )
    complete = status("orders", "COMPLETE")

    warehouse.sync([stream], [record("orders", {"id": 1234, "name": "a"}, emitted_at=EMITTED_AT), complete])
    warehouse.sync([stream], [record("orders", {"id": 1234, "name": "b"}, emitted_at=LATER), complete])

    assert warehouse.rows("orders") == [{"id": 1234, "name": "b"}]


def test_dedup_change_cursor(warehouse: Warehouse) -> None:
    """Another cursor, which the rows in the table do not have: null is older than every value."""
    complete = status("orders", "COMPLETE")

    for number, cursor in enumerate(("cursor1", "cursor2"), 1):
        schema = object_schema(id=INTEGER, **{cursor: INTEGER}, name=STRING)
        stream = configured_stream("orders", schema, mode="append_dedup", primary_key=["id"], cursor=cursor)
        # Were it by the time of extraction, the first would stay.
        line = record("orders", {"id": 1, cursor: 1, "name": cursor}, emitted_at=EMITTED_AT - number)
        warehouse.sync([stream], [line, complete])

    assert warehouse.rows("orders") == [{"id": 1, "cursor1": None, "cursor2": 1, "name": "cursor2"}]


def test_dedup_change_pk(warehouse: Warehouse) -> None:
    """Another primary key is refused, with the remedy, and goes on with a refresh.

    Airbyte's scenario goes on without one, and asserts an upsert that replaces nothing. Rows that the new key does not
    tell apart would then remain, and each later version would replace all of them: rows are lost and nobody is told.
    """

    def stream(second: str, generation: int, minimum: int = 0) -> dict[str, object]:
        schema = object_schema(id1=INTEGER, id2=INTEGER, id3=INTEGER, updated_at=INTEGER, name=STRING)
        return configured_stream(
            "orders",
            schema,
            mode="append_dedup",
            primary_key=("id1", second),
            cursor="updated_at",
            generation=generation,
            minimum=minimum,
        )

    def line(name: str, **data: object) -> bytes:
        return record("orders", {"id1": 1, **data, "updated_at": 1, "name": name})

    complete = status("orders", "COMPLETE")
    warehouse.sync([stream("id2", 42)], [line("a", id2=200), complete])

    refused = warehouse.attempt([stream("id3", 42)], [line("b", id3=200), complete])

    (error,) = refused.errors
    assert (refused.exit_code, error["failure_type"]) == (1, "config_error")
    for text in ("id2", "id3", "refresh"):
        assert text in error["message"].lower()
    assert [row["name"] for row in warehouse.rows("orders")] == ["a"]

    warehouse.sync([stream("id3", 43, 43)], [line("c", id3=200), line("d", id3=200), complete])
    assert [(row["id3"], row["name"]) for row in warehouse.rows("orders")] == [(200, "d")]


NAMES = FUNKY_NAMES[-2:]


def test_funky_characters_dedup(warehouse: Warehouse) -> None:
    """Names of streams, and of the fields of keys and cursors, with every character there is; values too."""
    key, cursor = 'c\'est, "une" clé./<>?', "Mise à jour"
    schema = object_schema(**{key: STRING, cursor: INTEGER, "Foo.Bar": STRING})
    streams = [configured_stream(name, schema, mode="append_dedup", primary_key=[key], cursor=cursor) for name in NAMES]
    value = "a\nb \" \\ \u2028 é 🚀 ' ` , \u0000"
    rows: list[Mapping[str, object]] = [
        {key: value, cursor: 1, "Foo.Bar": "old"},
        {key: value, cursor: 3, "Foo.Bar": value},
        {key: value, cursor: 2, "Foo.Bar": "old"},
        {key: value.strip("\u0000"), cursor: 1, "Foo.Bar": "other"},
    ]

    for half in (rows[:2], rows[2:]):
        lines = [record(name, row) for name in NAMES for row in half]
        warehouse.sync(streams, [*lines, *(status(name, "COMPLETE") for name in NAMES)])

    tables = warehouse.lake.tables()
    assert len(tables) == len(NAMES)
    for database, table in tables:
        stored = {tuple(row.values()) for row in warehouse.rows(table, database)}
        assert stored == {(value, 3, value), (value.strip("\u0000"), 1, "other")}


def test_incremental_dedupe_sync(warehouse: Warehouse) -> None:
    """Of DestinationAcceptanceTest: a second sync updates what is there and adds what is new."""
    warehouse.sync([people()], [person(1, 1, 1, "USD"), person(1, 2, 1, "EUR"), COMPLETE])

    warehouse.sync([people()], [person(1, 2, 2, "EUR again"), person(1, 3, 2, "CHF"), COMPLETE])

    assert named(warehouse) == {1: "USD", 2: "EUR again", 3: "CHF"}
