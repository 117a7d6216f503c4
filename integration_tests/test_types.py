"""Types through the command line: what a source sends, and what other engines read, whatever the kind of table."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from integration_tests.harness.lake import Lake
from integration_tests.harness.messages import configured_catalog, configured_stream, record, state, status
from integration_tests.harness.runs.output import Run
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.table_kinds import TABLE_KINDS, TableKind

PROPERTIES: dict[str, Any] = {
    "id": {"type": "integer"},
    "flag": {"type": ["null", "boolean"]},
    "small": {"type": "integer"},
    "large": {"type": "integer"},
    "ratio": {"type": "number"},
    "exact": {"type": "number"},
    "text": {"type": "string"},
    "day": {"type": "string", "format": "date"},
    "instant": {"type": "string", "format": "date-time"},
    "clock": {"type": "string", "format": "date-time", "airbyte_type": "timestamp_without_timezone"},
    "timeOfDay": {"type": "string", "format": "time"},
    "bigNumber": {"type": "number", "airbyte_type": "big_number"},
    "customer": {
        "type": "object",
        "properties": {"firstName": {"type": "string"}, "born": {"type": "string", "format": "date"}},
    },
    "points": {"type": "array", "items": {"type": "number"}},
    "anything": {},
    "open": {"type": "object"},
    "either": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
}
SCHEMA: dict[str, Any] = {"type": "object", "properties": PROPERTIES}

GLUE_TYPES = {
    "id": "int",
    "flag": "boolean",
    "small": "int",
    "large": "bigint",  # starts as int; a value needed more
    "ratio": "float",
    "exact": "double",  # starts as float; a value needed more
    "text": "string",
    "day": "date",
    "instant": "timestamp",
    "clock": "timestamp",
    "time_of_day": "string",
    "big_number": "string",
    "customer": "struct<first_name:string,born:date>",
    "points": "array<double>",
    "anything": "string",
    "open": "string",
    "either": "string",
}

SENT: dict[str, Any] = {
    "id": 1,
    "flag": True,
    "small": 2**31 - 1,
    "large": 2**63 - 1,
    "ratio": 0.5,
    "exact": 0.1,
    "text": " Zoë\n\x00",
    "day": "1582-10-04",
    "instant": "9999-12-31T23:59:59.999999Z",
    "clock": "0001-01-01T00:00:00",
    "timeOfDay": "23:59:59.123456789+05:00",
    "bigNumber": "12345678901234567890.123",
    "customer": {"firstName": "Ada", "born": "1815-12-10"},
    "points": [0.1, None, 1e300],
    "anything": [1, {"b": None, "a": "x"}],
    "open": {},
    "either": 5,
}
KEPT: dict[str, Any] = {
    "id": 1,
    "flag": True,
    "small": 2**31 - 1,
    "large": 2**63 - 1,
    "ratio": 0.5,
    "exact": 0.1,
    "text": " Zoë\n\x00",
    "day": date(1582, 10, 4),
    "instant": datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC),
    "clock": datetime(1, 1, 1),
    "time_of_day": "23:59:59.123456789+05:00",
    "big_number": "12345678901234567890.123",
    "customer": {"first_name": "Ada", "born": date(1815, 12, 10)},
    "points": [0.1, None, 1e300],
    "anything": '[1,{"b":null,"a":"x"}]',
    "open": "{}",
    "either": "5",
}

IN_OTHER_WORDS: dict[str, Any] = {
    "id": "2",
    "small": "-7.0",
    "large": 1e3,
    "ratio": "1.5",
    "exact": "1e-3",
    "text": 1.5,
    "day": "2024/2/29",
    "instant": "2024-02-29 12:00:00+05:30",
    "clock": "2024-02-29T12:00:00+05:30",
    "customer": {"born": None, "undeclared": 1},
    "points": ["2.5"],
}
IN_OUR_WORDS: dict[str, Any] = {
    "id": 2,
    "small": -7,
    "large": 1000,
    "ratio": 1.5,
    "exact": 0.001,
    "text": "1.5",
    "day": date(2024, 2, 29),
    "instant": datetime(2024, 2, 29, 6, 30, tzinfo=UTC),
    "clock": datetime(2024, 2, 29, 12),
    "customer": {"first_name": None, "born": None},
    "points": [2.5],
}

ODD: dict[str, Any] = {
    "id": 3,
    "flag": "true",
    "small": 1.5,
    "large": 2**63,
    "ratio": "much",
    "day": "2023-02-29",
    "instant": "2024-02-29T12:00:00.123456789Z",
    "clock": "10000-01-01T00:00:00",
    "customer": {"firstName": ["Ada"], "born": 1815},
    "points": [1, "two"],
}
ODD_KEPT: dict[str, Any] = {
    "id": 3,
    "instant": datetime(2024, 2, 29, 12, 0, 0, 123_456, UTC),
    "customer": {"first_name": '["Ada"]', "born": None},
    "points": [1.0, None],
}
WRONG_TYPE, OUT_OF_RANGE = "DESTINATION_SERIALIZATION_ERROR", "DESTINATION_FIELD_SIZE_LIMITATION"
ODD_CHANGES = [
    ("flag", "NULLED", WRONG_TYPE),
    ("small", "NULLED", WRONG_TYPE),
    ("large", "NULLED", OUT_OF_RANGE),
    ("ratio", "NULLED", WRONG_TYPE),
    ("day", "NULLED", WRONG_TYPE),
    ("instant", "TRUNCATED", OUT_OF_RANGE),
    ("clock", "NULLED", OUT_OF_RANGE),
    ("customer.born", "NULLED", WRONG_TYPE),
    ("points.1", "NULLED", WRONG_TYPE),
]


def write(
    platform: Platform, lake: Lake, kind: TableKind, schema: dict[str, Any], lines: list[bytes], **options: object
) -> Run:
    catalog = configured_catalog(configured_stream("things", schema))
    run = platform.write(lake.config(**kind.options, **options), catalog, [*lines, status("things", "COMPLETE")])
    assert run.exit_code == 0, run.report()
    return run


def rows(
    lake: Lake, kind: TableKind, columns: list[str]
) -> dict[int, tuple[dict[str, Any], list[tuple[str, str, str]]]]:
    """By id: the values of these columns, timestamps of zoned columns in UTC, and the changes."""
    by_id = {}
    for row in lake.rows(lake.database, "things"):
        values = {name: row[name] for name in columns}
        if not kind.keeps_zones and values.get("instant"):
            values["instant"] = values["instant"].replace(tzinfo=UTC)
        changes = [(c["field"], c["change"], c["reason"]) for c in row["_airbyte_meta"]["changes"]]
        by_id[row["id"]] = (values, changes)
    return by_id


@pytest.mark.every_kind
def test_every_type_is_read_by_other_engines_as_it_was_sent(
    lake: Lake, platform: Platform, table_kind: TableKind
) -> None:
    # Given a record as it should be, one that says the same in other words, an odd one and one with nothing in it
    records = [SENT, IN_OTHER_WORDS, ODD, {"id": 4}]
    lines = [record("things", data) for data in records]
    # When
    run = write(platform, lake, table_kind, SCHEMA, [*lines, state("things", 1)])
    # Then values are what they were, or the row says what became of them
    assert len(run.states) == 1
    nothing = dict.fromkeys(GLUE_TYPES)
    stored = rows(lake, table_kind, list(GLUE_TYPES))
    assert stored[1] == (KEPT, [])
    assert stored[2] == ({**nothing, **IN_OUR_WORDS}, [])
    assert stored[3] == ({**nothing, **ODD_KEPT}, ODD_CHANGES)
    assert stored[4] == ({**nothing, "id": 4}, [])
    # And columns are as wide as the values needed, no wider
    columns = lake.columns(lake.database, "things")
    assert {name: type_ for name, type_ in columns.items() if name in GLUE_TYPES} == GLUE_TYPES


def test_with_decimals_numbers_keep_every_digit(lake: Lake, platform: Platform, table_kind: TableKind) -> None:
    numbers = {name: PROPERTIES[name] for name in ("id", "small", "exact", "points")}
    lines = [record("things", {"id": 1, "small": 2**70, "exact": 0.1, "points": [0.5]})]

    write(platform, lake, table_kind, {"properties": numbers}, lines, numeric_types="decimal")

    types = ["decimal(38,0)", "decimal(38,0)", "decimal(38,18)", "array<decimal(38,18)>"]
    assert [lake.columns(lake.database, "things")[name] for name in numbers] == types
    kept = {"small": Decimal(2**70), "exact": Decimal("0.1"), "points": [Decimal("0.5")]}
    assert rows(lake, table_kind, list(kept)) == {1: (kept, [])}


def test_numbers_that_json_has_no_word_for_are_kept_where_files_are_typed_and_on_record_elsewhere(
    lake: Lake, platform: Platform, table_kind: TableKind
) -> None:
    # Given NaN and the infinities as protocol v1 sends them, and bare, as Python's sources do
    lines = [record("things", {"id": 1, "ratio": "NaN"}), record("things", {"id": 2, "points": ["Infinity", 1]})]
    lines += [json.dumps(json.loads(lines[0])).replace('"NaN"', "-Infinity").replace('"id": 1', '"id": 3').encode()]
    # When
    write(platform, lake, table_kind, SCHEMA, lines)
    # Then
    stored = rows(lake, table_kind, ["ratio", "points"])
    if table_kind.is_typed:
        assert math.isnan(stored[1][0]["ratio"])
        assert stored[2] == ({"ratio": None, "points": [math.inf, 1.0]}, [])
        assert stored[3] == ({"ratio": -math.inf, "points": None}, [])
    else:
        assert stored[1] == ({"ratio": None, "points": None}, [("ratio", "NULLED", WRONG_TYPE)])
        assert stored[2] == ({"ratio": None, "points": [None, 1.0]}, [("points.0", "NULLED", WRONG_TYPE)])
        assert stored[3] == ({"ratio": None, "points": None}, [("ratio", "NULLED", WRONG_TYPE)])
        for key in lake.data_files(lake.database, "things"):
            body = lake.s3.get_object(Bucket=lake.bucket, Key=key)["Body"].read()
            assert [json.loads(line, parse_constant=pytest.fail) for line in body.splitlines()]


@pytest.mark.parametrize(
    "table_kind", [kind for kind in TABLE_KINDS if kind.name in ("iceberg", "hive-jsonl")], ids=lambda kind: kind.name
)
def test_nested_values_are_stored_as_each_stream_s_options_say(
    lake: Lake, platform: Platform, table_kind: TableKind
) -> None:
    # Given streams of one schema with options of their own, one of which would have too many columns
    geo = {"type": "object", "properties": {"lat": {"type": "number"}, "zone": {"type": "integer"}}}
    address = {"type": "object", "properties": {"theCity": {"type": "string"}, "geo": geo}}
    schema = {"properties": {"id": {"type": "integer"}, "address": address}}
    wide = {"properties": {"id": {"type": "integer"}, "a": schema, "b": schema}}
    sent = [
        {"id": 1, "address": {"theCity": "Rome", "geo": {"lat": 0.1, "zone": 2**40}}},
        {"id": 2, "address": {"geo": {"zone": "x", "alt": 1}}},
        {"id": 3, "address": "Rome"},
    ]
    options = {
        "nested": "flatten",
        "max_columns": 4,
        "streams": [{"stream": "texts", "nested": "json"}, {"stream": "goods", "nested": "struct"}],
    }
    streams = {"things": schema, "texts": schema, "wide": wide}
    catalog = configured_catalog(*(configured_stream(name, options) for name, options in streams.items()))
    lines = [record(name, data) for name in streams for data in sent]
    ends = [message for name in streams for message in (state(name, 1), status(name, "COMPLETE"))]
    # When
    run = platform.write(lake.config(**table_kind.options, **options), catalog, [*lines, *ends])
    # Then fields are columns, null where there is no object
    flat = {"address_the_city": "string", "address_geo_lat": "double", "address_geo_zone": "bigint"}
    columns = lake.columns(lake.database, "things")
    assert {name: type_ for name, type_ in columns.items() if name in flat} == flat
    assert "address" not in columns
    assert rows(lake, table_kind, list(flat)) == {
        1: (dict(zip(flat, ("Rome", 0.1, 2**40), strict=True)), []),
        2: (dict.fromkeys(flat), [("address.geo.zone", "NULLED", WRONG_TYPE)]),
        3: (dict.fromkeys(flat), [("address", "NULLED", WRONG_TYPE)]),
    }
    assert {(reject["column_name"], reject["column_value"]) for reject in lake.rejects()} == {
        ("address.geo.zone", '"x"'),
        ("address", '"Rome"'),
    }
    # And the other stream has what was received
    texts = {row["id"]: json.loads(row["address"]) for row in lake.rows(lake.database, "texts")}
    assert texts == {row["id"]: row["address"] for row in sent}
    # And the stream with too many columns fails alone; options for no stream are reported
    assert (run.exit_code, len(run.states)) == (1, 2)
    [error] = run.errors
    assert error["failure_type"] == "config_error"
    assert "wide: it would have 9 columns, but max_columns is 4. Set nested to json" in error["message"]
    [warning] = [text for text in run.logs if "streams.1" in text]
    assert "names stream goods, which is not in this sync, so the entry has no effect" in warning
    assert any("fields that the schema does not declare" in text and "address.geo.alt" in text for text in run.logs)
