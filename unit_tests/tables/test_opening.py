"""What is said of a stream's columns before its table is opened."""

from __future__ import annotations

import pytest

from destination_datalake.aws.access import AwsAccess
from destination_datalake.config import Config
from destination_datalake.protocol.catalog import Stream, StreamId
from destination_datalake.schema.names import SNAKE_CASE
from destination_datalake.tables.base import TableName
from destination_datalake.tables.opening import open_table

CONFIG = Config.parse(
    {
        "credentials": {"credentials_title": "Default chain"},
        "region": "eu-west-1",
        "bucket_name": "lake",
        "lakeformation_database_name": "lake",
        "table_type": "HIVE",
    }
)


def opened(*fields: str) -> None:
    schema = {"properties": {field: {"type": "string"} for field in fields}}
    stream = Stream(StreamId("shop", "orders"), schema, False, None, None, None)
    open_table(CONFIG, SNAKE_CASE, stream, TableName("shop", "orders"), AwsAccess.of(CONFIG))


def test_fields_that_meet_are_said_once_with_their_columns(caplog: pytest.LogCaptureFixture) -> None:
    opened("id", "a_b", "aB", "x y", "xY")

    [said] = caplog.messages
    assert said.startswith("Stream shop.orders has fields whose names meet; a suffix tells their columns apart: ")
    assert "'a_b' is a_b, 'aB' is a_b_042ac5b8; 'x y' is x_y_" in said


def test_of_very_many_only_the_first_are_said(caplog: pytest.LogCaptureFixture) -> None:
    opened(*(f"{word}{number}" for number in range(25) for word in ("a b", "a-b")))

    [said] = caplog.messages
    assert said.count("'a b") == 20
    assert "; and 5 more like these." in said


def test_fields_that_do_not_meet_are_no_news(caplog: pytest.LogCaptureFixture) -> None:
    opened("id", "aB", "a_c")

    assert caplog.messages == []
