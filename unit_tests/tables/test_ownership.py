"""What a table says of the stream it was made for, and what is said when another stream comes to it."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_datalake.protocol.catalog import StreamId
from destination_datalake.schema.columns import stream_columns
from destination_datalake.schema.names import PRESERVE, SNAKE_CASE, STYLES
from destination_datalake.schema.types import NumericTypes
from destination_datalake.tables.ownership import TableOwner
from destination_datalake.tables.table import TableName

ORDERS = TableOwner(StreamId("shop", "orders"), SNAKE_CASE)


@given(st.none() | st.text(min_size=1), st.text(), st.sampled_from(list(STYLES.values())))
def test_what_a_table_says_is_read_again(namespace: str | None, name: str, naming: object) -> None:
    owner = TableOwner(StreamId(namespace, name), naming)  # type: ignore[arg-type]

    assert TableOwner.of({"classification": "parquet", **owner.parameters()}) == owner


@pytest.mark.parametrize(
    ("theirs", "warnings"),
    [
        ({}, 0),
        (ORDERS.parameters(), 0),
        (TableOwner(ORDERS.stream, PRESERVE).parameters(), 0),
        (TableOwner(StreamId(None, "orders"), SNAKE_CASE).parameters(), 1),
        (TableOwner(StreamId("shop", "Orders"), SNAKE_CASE).parameters(), 1),
    ],
)
def test_a_table_that_was_made_for_another_stream_is_a_warning(
    caplog: pytest.LogCaptureFixture, theirs: dict[str, str], warnings: int
) -> None:
    with caplog.at_level(logging.WARNING):
        ORDERS.name_columns(TableName("lake", "orders"), theirs, {}, ())

    assert len(caplog.messages) == warnings
    for said in caplog.messages:
        assert said.startswith("Table lake.orders was made for stream ")
        assert "and now takes stream shop.orders as well" in said


def settled(there: dict[str, str], *sources: str) -> list[str]:
    columns = stream_columns({"properties": {source: {"type": "string"} for source in sources}}, NumericTypes.INT_FLOAT)
    return [column.name for column in ORDERS.name_columns(TableName("lake", "orders"), {}, there, columns)]


def test_fields_that_meet_are_said_once_with_the_columns_they_have(caplog: pytest.LogCaptureFixture) -> None:
    names = settled({"id": "id", "x_y": "xY"}, "id", "a_b", "aB", "x y", "xY")

    assert names[:3] == ["id", "a_b", "a_b_042ac5b8"]
    assert names[4] == "x_y"
    [said] = caplog.messages
    assert said.startswith("Stream shop.orders has fields whose names meet; a suffix tells their columns apart: ")
    assert f"'a_b' is a_b, 'aB' is a_b_042ac5b8; 'x y' is {names[3]}, 'xY' is x_y." in said


def test_of_very_many_only_the_first_are_said(caplog: pytest.LogCaptureFixture) -> None:
    settled({}, *(f"{word}{number}" for number in range(25) for word in ("a b", "a-b")))

    [said] = caplog.messages
    assert said.count("'a b") == 20
    assert "; and 5 more like these." in said


def test_fields_that_do_not_meet_are_no_news(caplog: pytest.LogCaptureFixture) -> None:
    assert settled({"id": "ID of the order", "a_b": "What b says"}, "id", "aB", "a_c") == ["id", "a_b", "a_c"]

    assert caplog.messages == []
