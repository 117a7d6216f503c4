"""The line that a reject becomes: Firehose's fields and RudderStack's columns, and where in a record it was."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest

from destination_datalake.protocol.catalog import StreamId
from destination_datalake.rejects.catalog import COLUMNS
from destination_datalake.rejects.line import RejectLines, Row, place_of
from destination_datalake.rejects.place import Partition, RejectPlace
from destination_datalake.schema.types import ColumnType, Date, Field, Float32, Int32, List, String, Struct, Timestamp
from destination_datalake.spark.coerce import Change

PLACE = RejectPlace("s3://lake/raw/_errors", "0a1b2c", "2026-11-21", "shop", "order_lines")
STREAM = StreamId("shop", "orderLines")
COLUMNS_SENT = (
    Field("id", "id", Int32()),
    Field("ratio", "Ratio", Float32()),
    Field("at", "at", Timestamp(zoned=True)),
    Field("born", "born", Date()),
    Field("customer", "customer", Struct((Field("zip", "zip", Int32()), Field("tags", "tags", List(String()))))),
    Field("a", "a", String()),
    Field("a_b", "a.b", List(List(Int32()))),
)
NOW = 1_763_683_200_123
ROW = Row("018f-id", 1_700_000_000_000_250)
LINE = b'{"type":"RECORD","record":{"data":{"id":"two"}}}'


def lines_of(*changes: Change, line: bytes = LINE, row: Row = ROW) -> list[tuple[str, dict[str, Any]]]:
    """What is written, as a reader decodes it, with the column that each is counted under."""
    lines = RejectLines(PLACE, STREAM, COLUMNS_SENT, "run-000001-0000", NOW)
    return [
        (column, msgspec.json.decode(msgspec.json.encode(each))) for column, each in lines.of_values(line, changes, row)
    ]


def nulled(field: str, original: bytes, reason: str = "DESTINATION_SERIALIZATION_ERROR") -> Change:
    return Change(field, "NULLED", reason, original)


def test_a_rejected_value_has_every_field_of_both_ancestors() -> None:
    [(column, line)] = lines_of(nulled("id", b'"two"'))

    assert column == "id"
    assert base64.b64decode(line.pop("rawData")) == LINE
    assert line == {
        "attemptsMade": 1,
        "arrivalTimestamp": 1_700_000_000_000,
        "errorCode": "DESTINATION_SERIALIZATION_ERROR",
        "errorMessage": "incompatible schema conversion from string to bigint",
        "attemptEndingTimestamp": NOW,
        "sequenceNumber": "run-000001-0000-1",
        "subSequenceNumber": 0,
        "dataCatalogTable": {"databaseName": "shop", "tableName": "order_lines"},
        "table_name": "order_lines",
        "row_id": "018f-id",
        "column_name": "id",
        "column_value": '"two"',
        "change": "NULLED",
        "reason": "DESTINATION_SERIALIZATION_ERROR",
        "received_at": "2023-11-14 22:13:20.000",
        "loaded_at": "2025-11-21 00:00:00.123",
        "run_id": "0a1b2c",
        "stream_namespace": "shop",
        "stream_name": "orderLines",
    }


def test_a_rejected_record_has_no_row_and_no_column() -> None:
    lines = RejectLines(PLACE, STREAM, COLUMNS_SENT, "unit", NOW)

    line = msgspec.json.decode(msgspec.json.encode(lines.of_record(LINE, "DESTINATION_RECORD_UNREADABLE", "why")))

    absent = ["row_id", "column_name", "column_value", "change", "received_at", "arrivalTimestamp"]
    assert {name: line[name] for name in absent} == dict.fromkeys(absent)
    assert (line["errorCode"], line["reason"], line["errorMessage"]) == (*["DESTINATION_RECORD_UNREADABLE"] * 2, "why")


def test_the_glue_table_has_a_column_or_partition_key_for_every_member() -> None:
    [(_, line)] = lines_of(nulled("id", b"1"))

    assert sorted([*COLUMNS, "reason"]) == sorted(name.lower() for name in line)
    assert {"reason", "stream", "dt"} == set(Partition._fields)
    assert not set(Partition._fields) & set(COLUMNS)


def test_records_and_their_values_are_numbered() -> None:
    lines = RejectLines(PLACE, STREAM, COLUMNS_SENT, "unit", NOW)

    first = [line for _, line in lines.of_values(LINE, [nulled("id", b"[]"), nulled("a", b"{}")], ROW)]
    second = lines.of_record(LINE, "R", "why")

    assert [(line.sequence_number, line.sub_sequence_number) for line in [*first, second]] == [
        ("unit-1", 0),
        ("unit-1", 1),
        ("unit-2", 0),
    ]


@pytest.mark.parametrize(
    ("change", "column", "sentence"),
    [
        (nulled("at", b"[1]"), "at", "incompatible schema conversion from array to timestamp"),
        (nulled("customer", b"true"), "customer", "incompatible schema conversion from boolean to struct"),
        (nulled("customer.zip", b'{"a":1}'), "customer", "incompatible schema conversion from object to bigint"),
        (nulled("customer.tags.12", b'"\\ud800"'), "customer", "incompatible schema conversion from string to string"),
        (nulled("a.b.0.7", b"1.5"), "a.b", "incompatible schema conversion from number to bigint"),
        (
            nulled("Ratio", b"1e400", "DESTINATION_FIELD_SIZE_LIMITATION"),
            "Ratio",
            "number out of the range of double",
        ),
        (
            Change("born", "TRUNCATED", "DESTINATION_FIELD_SIZE_LIMITATION", b'"2024-01-01T10:00"'),
            "born",
            "string cut to what date holds",
        ),
    ],
)
def test_the_message_says_what_was_sent_and_what_was_wanted_but_never_the_value(
    change: Change, column: str, sentence: str
) -> None:
    [(counted_under, line)] = lines_of(change)

    assert (counted_under, line["errorMessage"]) == (column, sentence)


@pytest.mark.parametrize(
    ("place", "column", "type_"),
    [
        ("a", "a", String()),
        ("a.b", "a.b", List(List(Int32()))),
        ("a.b.3", "a.b", List(Int32())),
        ("customer.tags", "customer", List(String())),
    ],
)
def test_a_place_is_found_also_where_keys_hold_dots(place: str, column: str, type_: ColumnType) -> None:
    assert place_of(place, COLUMNS_SENT) == (column, type_)


@pytest.mark.parametrize("place", ["b", "id.x", "customer.nothing", "a.b.0.0.0", ""])
def test_a_place_that_no_column_has_is_not_found(place: str) -> None:
    assert place_of(place, COLUMNS_SENT) is None


def test_bytes_that_are_no_text_are_whole_in_the_raw_data_alone() -> None:
    [(_, line)] = lines_of(nulled("a", b'"\xff"'), line=b'{"a":"\xff"}')

    assert line["column_value"] == '"\ufffd"'
    assert base64.b64decode(line["rawData"]) == b'{"a":"\xff"}'


def test_a_moment_that_hive_cannot_read_is_left_out() -> None:
    [(_, line)] = lines_of(nulled("id", b"[]"), row=Row("id", -(10**17)))

    assert (line["received_at"], line["arrivalTimestamp"]) == (None, -(10**14))


def test_an_object_s_place_says_why_what_and_when_and_is_always_the_same() -> None:
    assert PLACE.uri("DESTINATION_SERIALIZATION_ERROR", "run-000001-0000") == (
        "s3://lake/raw/_errors/DESTINATION_SERIALIZATION_ERROR/shop.order_lines/dt=2026-11-21/run-000001-0000.jsonl.gz"
    )
    assert PLACE.partition("R") == Partition("R", "shop.order_lines", "2026-11-21")
