"""Rejects as lines of JSON: the members, what they hold, and how many lines a record has."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest

from destination_datalake.protocol.catalog import StreamId
from destination_datalake.records.decoded import ValueChange
from destination_datalake.rejects.ledger import RejectLocation
from destination_datalake.rejects.writer import RejectFormatter, RowKey, column_at
from destination_datalake.schema.types import ColumnType, Date, Field, Float32, Int32, List, String, Struct, Timestamp

LOCATION = RejectLocation("s3://lake/raw/_errors", "0a1b2c", "2026-11-21", "shop", "order_lines")
STREAM = StreamId("shop", "orderLines")
COLUMNS = (
    Field("id", "id", Int32()),
    Field("ratio", "Ratio", Float32()),
    Field("at", "at", Timestamp(zoned=True)),
    Field("born", "born", Date()),
    Field("customer", "customer", Struct((Field("zip", "zip", Int32()), Field("tags", "tags", List(String()))))),
    Field("a", "a", String()),
    Field("a_b", "a.b", List(List(Int32()))),
)
NOW = 1_763_683_200_123
ROW = RowKey("018f-id", 1_700_000_000_000_250)
LINE = b'{"type":"RECORD","record":{"data":{"id":"two"}}}'


def lines_of(*changes: ValueChange, line: bytes = LINE, row: RowKey = ROW) -> list[dict[str, Any]]:
    """The lines as a reader decodes them."""
    formatter = RejectFormatter(LOCATION, STREAM, COLUMNS, "run-000001-0000", NOW)
    return [msgspec.json.decode(msgspec.json.encode(reject)) for reject in formatter.value_lines(line, changes, row)]


def nulled(field: str, original: bytes, reason: str = "DESTINATION_SERIALIZATION_ERROR") -> ValueChange:
    return ValueChange(field, "NULLED", reason, original)


def test_a_rejected_value_has_the_members_of_firehose_and_of_rudderstack() -> None:
    [line] = lines_of(nulled("id", b'"two"'))

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
        "values_not_listed": 0,
        "change": "NULLED",
        "reason": "DESTINATION_SERIALIZATION_ERROR",
        "received_at": "2023-11-14 22:13:20.000",
        "loaded_at": "2025-11-21 00:00:00.123",
        "run_id": "0a1b2c",
        "stream_namespace": "shop",
        "stream_name": "orderLines",
    }


def test_a_rejected_record_has_no_row_and_no_column() -> None:
    formatter = RejectFormatter(LOCATION, STREAM, COLUMNS, "unit", NOW)

    line = msgspec.json.decode(msgspec.json.encode(formatter.record_line(LINE, "DESTINATION_RECORD_UNREADABLE", "why")))

    absent = ["row_id", "column_name", "column_value", "change", "received_at", "arrivalTimestamp"]
    assert {name: line[name] for name in absent} == dict.fromkeys(absent)
    assert (line["errorCode"], line["reason"], line["errorMessage"]) == (*["DESTINATION_RECORD_UNREADABLE"] * 2, "why")


def test_records_and_the_values_of_each_are_numbered() -> None:
    formatter = RejectFormatter(LOCATION, STREAM, COLUMNS, "unit", NOW)

    first = [*formatter.value_lines(LINE, [nulled("id", b"[]"), nulled("a", b"{}")], ROW)]
    second = formatter.record_line(LINE, "R", "why")

    assert [(line.sequence_number, line.sub_sequence_number) for line in [*first, second]] == [
        ("unit-1", 0),
        ("unit-1", 1),
        ("unit-2", 0),
    ]


def test_only_the_first_line_of_a_record_has_its_raw_data() -> None:
    lines = lines_of(*(nulled(f"a.b.{i}", b"0.5") for i in range(3)))

    assert [line["rawData"] for line in lines] == [base64.b64encode(LINE).decode(), None, None]
    assert [line["column_name"] for line in lines] == ["a.b.0", "a.b.1", "a.b.2"]


@pytest.mark.parametrize(
    ("changed", "listed", "not_listed"), [(1, 1, 0), (100, 100, 0), (101, 100, 1), (1536, 100, 1436)]
)
def test_a_hundred_values_of_a_record_have_a_line_and_the_rest_is_counted(
    changed: int, listed: int, not_listed: int
) -> None:
    lines = lines_of(*(nulled(f"a.b.{i}", b"0.5") for i in range(changed)))

    assert [line["values_not_listed"] for line in lines] == [not_listed, *[0] * (listed - 1)]


def test_the_lines_of_1536_rejected_values_are_not_much_larger_than_the_record() -> None:
    line = b"0.123456," * 20_000

    written = msgspec.json.encode(lines_of(*(nulled(f"a.b.{i}", b"0.5") for i in range(1536)), line=line))

    assert len(written) < 2 * len(line)


@pytest.mark.parametrize(("length", "kept"), [(65_536, True), (65_537, False)])
def test_a_long_value_is_in_the_raw_data_only(length: int, kept: bool) -> None:
    value = b'"' + b"x" * (length - 2) + b'"'

    [line] = lines_of(nulled("id", value))

    assert line["column_value"] == (value.decode() if kept else None)


@pytest.mark.parametrize(
    ("change", "column", "message"),
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
            ValueChange("born", "TRUNCATED", "DESTINATION_FIELD_SIZE_LIMITATION", b'"2024-01-01T10:00"'),
            "born",
            "string truncated to fit date",
        ),
    ],
)
def test_the_message_names_the_kind_sent_and_the_type_wanted_but_not_the_value(
    change: ValueChange, column: str, message: str
) -> None:
    [line] = lines_of(change)

    assert line["errorMessage"] == message
    assert RejectFormatter(LOCATION, STREAM, COLUMNS, "unit", NOW).column_of(change) == column


@pytest.mark.parametrize(
    ("path", "column", "type_"),
    [
        ("a", "a", String()),
        ("a.b", "a.b", List(List(Int32()))),
        ("a.b.3", "a.b", List(Int32())),
        ("customer.tags", "customer", List(String())),
    ],
)
def test_the_column_of_a_path_is_found_also_where_keys_contain_dots(path: str, column: str, type_: ColumnType) -> None:
    assert column_at(path, COLUMNS) == (column, type_)


@pytest.mark.parametrize("path", ["b", "id.x", "customer.nothing", "a.b.0.0.0", ""])
def test_a_path_outside_all_columns_has_no_column(path: str) -> None:
    assert column_at(path, COLUMNS) is None


def test_bytes_that_are_not_utf_8_are_intact_in_the_raw_data_only() -> None:
    [line] = lines_of(nulled("a", b'"\xff"'), line=b'{"a":"\xff"}')

    assert line["column_value"] == '"\ufffd"'
    assert base64.b64decode(line["rawData"]) == b'{"a":"\xff"}'


def test_a_timestamp_that_hive_cannot_read_is_null() -> None:
    [line] = lines_of(nulled("id", b"[]"), row=RowKey("id", -(10**17)))

    assert (line["received_at"], line["arrivalTimestamp"]) == (None, -(10**14))


@pytest.mark.parametrize(
    ("path", "original", "message"),
    [
        ("customer", b'"Ada"', "incompatible schema conversion from string to struct"),
        ("customer.zip", b'"x"', "incompatible schema conversion from string to bigint"),
        ("customer.geo", b"[]", "incompatible schema conversion from array to struct"),
        ("customer.tags.1", b"{}", "incompatible schema conversion from object to string"),
    ],
)
def test_a_value_of_a_flattened_object_is_described_by_its_place_in_the_record(
    path: str, original: bytes, message: str
) -> None:
    columns = (
        Field("id", "id", Int32()),
        Field("customer_zip", "zip", Int32(), ("customer",)),
        Field("customer_geo_lat", "lat", Int32(), ("customer", "geo")),
        Field("customer_tags", "tags", List(String()), ("customer",)),
    )
    formatter = RejectFormatter(LOCATION, STREAM, columns, "unit", NOW)
    change = nulled(path, original)

    [line] = formatter.value_lines(LINE, [change], ROW)

    assert (line.column_name, line.error_message, formatter.column_of(change)) == (path, message, "customer")
