"""Airbyte's scenarios about types: each is a stream of one sync into each kind of table.

Each test bears its scenario's name, in snake case; its stream is named like it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

import pytest
from emulated_aws.server import AwsServer

from integration_tests.harness.lake import Lake
from integration_tests.harness.messages import Json, configured_stream, record, state, status
from integration_tests.harness.runs.output import Run, record_count, same_text
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.runs.warm import WarmLaunch
from integration_tests.harness.table_kinds import TableKind
from integration_tests.harness.warehouse import BOOLEAN, INTEGER, NUMBER, STRING, Row, Warehouse, object_schema

pytestmark = [pytest.mark.every_kind, pytest.mark.share(8)]

BASIC = {
    "id": 1, "string": "fo\u0000o", "number": 42.125, "integer": 42, "boolean": True, "day": "2023-01-23",
    "moment": "2023-01-23T12:34:56+05:00", "clock": "2023-01-23T12:34:56", "time": "12:34:56",
}  # fmt: skip
WITHOUT_VALUES = dict.fromkeys(BASIC) | {"id": 2}
OF_OTHER_TYPES = dict.fromkeys(BASIC, "foo") | {"id": 3, "string": {"an": "object"}}
TOO_LARGE = {"id": 4, "integer": 12345678901234567890123456789012, "number": 1e39}
INTEGERS = [0, -1, 2**31 - 1, 2**31, -(2**63), 2**63 - 1]
NUMBERS = [0.5, -1.25, 1.0e38, 0.1, 1.7976931348623157e308, 5e-324]
CONTAINERS = {
    "id": 1, "closed": {"a": 1, "inner": {"b": "x"}}, "open": {"k": [1, {"l": None}]}, "empty": {"k": 1},
    "strings": ["a", None, "b"], "objects": [{"c": 1}, {"c": 2}], "anything": [1, "two", {"three": 3}],
}  # fmt: skip
MYSTERIES: Sequence[object] = ["text", 1, {"a": [1]}, True]
EITHER: Sequence[object] = ["1", 1, {"a": 1}]
TIMES = {
    "id": 1, "day": "2021-01-01", "zoned": "2021-01-01T01:02:03.000001-08:00", "local": "2021-01-01T01:02:03",
    "unsaid": "2021-01-01T01:02:03Z", "clock": "01:02:03.5-08:00",
}  # fmt: skip
PROBLEMS: Mapping[str, object] = {
    "id": 1, "schemaless_object": {"any": [1]}, "schemaless_array": [1, "x", {}], "mixed": [1, "x", True],
    "objects": {"a": "text", "b": "more"}, "only_null": {"not": "null"},
}  # fmt: skip


def numbered(name: str, values: Sequence[object]) -> list[Json]:
    """Return a record for each value, with its position as the id."""
    return [{"id": number, name: value} for number, value in enumerate(values)]


STREAMS: Mapping[str, tuple[Json, Sequence[Json]]] = {
    "basic_types": (
        object_schema(
            id=INTEGER, string=STRING, number=NUMBER, integer=INTEGER, boolean=BOOLEAN,
            day={"type": "string", "format": "date"},
            moment={"type": "string", "format": "date-time"},
            clock={"type": "string", "format": "date-time", "airbyte_type": "timestamp_without_timezone"},
            time={"type": "string", "format": "time", "airbyte_type": "time_without_timezone"},
        ),
        [BASIC, WITHOUT_VALUES, OF_OTHER_TYPES, TOO_LARGE],
    ),
    "numeric_types_integer": (object_schema(id=INTEGER, value=INTEGER), numbered("value", INTEGERS)),
    "numeric_types_number": (object_schema(id=INTEGER, value=NUMBER), numbered("value", NUMBERS)),
    "container_types": (
        object_schema(
            id=INTEGER,
            closed=object_schema(a=INTEGER, inner=object_schema(b=STRING)),
            open={"type": "object"},
            empty={"type": "object", "properties": {}},
            strings={"type": "array", "items": STRING},
            objects={"type": "array", "items": object_schema(c=INTEGER)},
            anything={"type": "array"},
        ),
        [CONTAINERS],
    ),
    "unknown_types": (
        object_schema(id=INTEGER, mystery={"type": "potato"}, nothing={}),
        [{**row, "nothing": row["mystery"]} for row in numbered("mystery", MYSTERIES)],
    ),
    "unions": (
        object_schema(
            id=INTEGER,
            either={"oneOf": [STRING, INTEGER, object_schema(a=INTEGER)]},
            single={"oneOf": [INTEGER, {"type": "null"}]},
        ),
        [{**row, "single": row["id"]} for row in numbered("either", EITHER)],
    ),
    "coerce_legacy_unions": (
        object_schema(
            id={"type": ["null", "integer"]},
            either={"type": ["string", "integer", "null"]},
            list_of_either={"type": ["array", "null"], "items": {"type": ["string", "integer"]}},
        ),
        [{"id": 1, "either": "1", "list_of_either": ["1", 1]}],
    ),
    "no_columns_empty": ({"type": "object", "properties": {}}, [{}, {"undeclared": 1}]),
    "no_columns_open": ({"type": "object"}, [{}, {"undeclared": 1}]),
    "no_columns_none": ({}, [{}, {"undeclared": 1}]),
    "airbyte_time_types": (
        object_schema(
            id=INTEGER,
            day={"type": "string", "format": "date"},
            zoned={"type": "string", "format": "date-time", "airbyte_type": "timestamp_with_timezone"},
            local={"type": "string", "format": "date-time", "airbyte_type": "timestamp_without_timezone"},
            unsaid={"type": "string", "format": "date-time"},
            clock={"type": "string", "format": "time", "airbyte_type": "time_with_timezone"},
        ),
        [TIMES],
    ),
    "problematic_types": (
        object_schema(
            id=INTEGER,
            schemaless_object={"type": ["null", "object"]},
            schemaless_array={"type": "array", "items": {}},
            mixed={"type": "array", "items": {"type": ["integer", "string", "boolean"]}},
            objects={"oneOf": [object_schema(a=INTEGER), object_schema(a=STRING), object_schema(b=STRING)]},
            only_null={"oneOf": [{"type": "null"}, {"type": "null"}]},
        ),
        [PROBLEMS, {"id": 2}],
    ),
}  # fmt: skip
"""Of each stream, its schema and its records."""


@dataclass(frozen=True)
class Synced:
    """What the sync of all streams has left."""

    warehouse: Warehouse
    run: Run

    def rows(self, stream: str) -> list[dict[str, Any]]:
        """Return a stream's rows without the connector's own columns, in the order of their ids."""
        return self.warehouse.rows(stream)


@pytest.fixture(scope="module")
def table_kind(request: pytest.FixtureRequest) -> TableKind:
    """As in other modules; one sync of each kind serves all tests of this one."""
    kind: TableKind = request.param
    return kind


@pytest.fixture(scope="module")
def synced(
    aws: AwsServer, launch: WarmLaunch, tmp_path_factory: pytest.TempPathFactory, table_kind: TableKind
) -> Synced:
    """One sync of all streams."""
    warehouse = Warehouse(Lake(aws.endpoint_url), Platform(tmp_path_factory.mktemp("types"), launch), table_kind)
    lines = [
        line
        for name, (_, sent) in STREAMS.items()
        for line in (*(record(name, data) for data in sent), state(name, 1), status(name, "COMPLETE"))
    ]
    streams = [configured_stream(name, schema) for name, (schema, _) in STREAMS.items()]
    return Synced(warehouse, warehouse.sync(streams, lines))


def test_basic_types(synced: Synced) -> None:
    """Values of every basic type arrive; one that does not fit becomes null and says so in `_airbyte_meta.changes`."""
    rows = {row["id"]: row for row in synced.warehouse.whole_rows("basic_types")}

    kept = {key: value for key, value in rows[1].items() if not key.startswith("_")}
    assert kept | {"moment": kept["moment"].replace(tzinfo=UTC)} == BASIC | {
        "day": date(2023, 1, 23),
        "moment": datetime(2023, 1, 23, 7, 34, 56, tzinfo=UTC),
        "clock": datetime(2023, 1, 23, 12, 34, 56),
    }
    assert {value for key, value in rows[2].items() if not key.startswith("_")} == {2, None}
    assert json.loads(rows[3]["string"]) == {"an": "object"}
    assert changed(rows[3]) == dict.fromkeys(
        ("number", "integer", "boolean", "day", "moment", "clock"), ("NULLED", "DESTINATION_SERIALIZATION_ERROR")
    )
    assert changed(rows[4]) == {"integer": ("NULLED", "DESTINATION_FIELD_SIZE_LIMITATION")}
    assert rows[4]["number"] == 1e39


def changed(row: Row) -> dict[str, tuple[str, str]]:
    """Return a row's changes: field → (change, reason)."""
    return {change["field"]: (change["change"], change["reason"]) for change in row["_airbyte_meta"]["changes"]}


def test_numeric_types(synced: Synced) -> None:
    """Numbers arrive as they were sent: a narrow column is widened before it would round or wrap."""
    assert [row["value"] for row in synced.rows("numeric_types_integer")] == INTEGERS
    assert [row["value"] for row in synced.rows("numeric_types_number")] == NUMBERS


def test_container_types(synced: Synced) -> None:
    """Objects and arrays with a closed schema are structs and lists; the open ones are JSON text."""
    (row,) = synced.rows("container_types")

    for name in ("closed", "strings", "objects"):
        assert row[name] == CONTAINERS[name]
    for name in ("open", "empty", "anything"):
        assert same_text(row[name].encode(), json.dumps(CONTAINERS[name]).encode())


def test_unknown_types(synced: Synced) -> None:
    """An unknown type is JSON text, whatever the values are."""
    rows = synced.rows("unknown_types")

    assert [json.loads(row["mystery"]) for row in rows] == MYSTERIES
    assert [json.loads(row["nothing"]) for row in rows] == MYSTERIES


def test_unions(synced: Synced) -> None:
    """A union is JSON text, so that "1" and 1 stay apart; a union of one thing is that thing."""
    rows = synced.rows("unions")

    assert [json.loads(row["either"]) for row in rows] == EITHER
    assert [row["single"] for row in rows] == [0, 1, 2]


def test_coerce_legacy_unions(synced: Synced) -> None:
    """A union in the old notation, a list of types, is the same union; null in it only says what may be absent."""
    (row,) = synced.rows("coerce_legacy_unions")

    assert row["id"] == 1
    assert json.loads(row["either"]) == "1"
    assert [json.loads(value) for value in row["list_of_either"]] == ["1", 1]


@pytest.mark.parametrize("schema", ["empty", "open", "none"])
def test_no_columns(synced: Synced, schema: str) -> None:
    """Records of a stream without properties are rows, each with its record as JSON text."""
    stream = f"no_columns_{schema}"
    (answer,) = [
        message for message in synced.run.states if message.body["stream"]["stream_descriptor"]["name"] == stream
    ]

    assert record_count(answer) == 2
    assert [json.loads(row["_airbyte_data"]) for row in synced.rows(stream)] == [{}, {"undeclared": 1}]


def test_airbyte_time_types(synced: Synced) -> None:
    """Dates and times with a zone, without one, and with nothing said about it."""
    (row,) = synced.rows("airbyte_time_types")

    assert str(row["day"]) == "2021-01-01"
    assert row["zoned"].replace(tzinfo=None) == datetime(2021, 1, 1, 9, 2, 3, 1)
    assert row["local"] == datetime(2021, 1, 1, 1, 2, 3)
    assert row["unsaid"].replace(tzinfo=None) == datetime(2021, 1, 1, 1, 2, 3)
    assert row["clock"] == "01:02:03.5-08:00"


def test_problematic_types(synced: Synced) -> None:
    """Schemas without a type, unions of objects, and unions of nothing but null stop no sync and lose no value."""
    first, second = synced.rows("problematic_types")

    assert {name: _read(value) for name, value in first.items()} == PROBLEMS
    assert set(second.values()) == {2, None}


def _read(value: object) -> object:
    """Read JSON text, alone or as the elements of a list."""
    if isinstance(value, list):
        return [_read(element) for element in value]
    return json.loads(value) if isinstance(value, str) else value
