"""The owner that a table records, and the names of a stream's columns in an existing table."""

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
def test_the_recorded_owner_is_read_again(namespace: str | None, name: str, naming: object) -> None:
    owner = TableOwner(StreamId(namespace, name), naming)  # type: ignore[arg-type]

    assert TableOwner.of({"classification": "parquet", **owner.parameters()}) == owner


@pytest.mark.parametrize(
    ("recorded", "warnings"),
    [
        ({}, 0),
        (ORDERS.parameters(), 0),
        (TableOwner(ORDERS.stream, PRESERVE).parameters(), 0),
        (TableOwner(StreamId(None, "orders"), SNAKE_CASE).parameters(), 1),
        (TableOwner(StreamId("shop", "Orders"), SNAKE_CASE).parameters(), 1),
    ],
)
def test_a_table_of_another_stream_causes_a_warning(
    caplog: pytest.LogCaptureFixture, recorded: dict[str, str], warnings: int
) -> None:
    with caplog.at_level(logging.WARNING):
        ORDERS.name_columns(TableName("lake", "orders"), recorded, {}, ())

    assert len(caplog.messages) == warnings
    for said in caplog.messages:
        assert said.startswith("Table lake.orders was created for stream ")
        assert "and now receives stream shop.orders as well" in said


def named(existing: dict[str, str], *sources: str) -> list[str]:
    columns = stream_columns({"properties": {source: {"type": "string"} for source in sources}}, NumericTypes.INT_FLOAT)
    return [column.name for column in ORDERS.name_columns(TableName("lake", "orders"), {}, existing, columns)]


def test_colliding_fields_cause_one_warning_with_their_columns(caplog: pytest.LogCaptureFixture) -> None:
    names = named({"id": "id", "x_y": "xY"}, "id", "a_b", "aB", "x y", "xY")

    assert names[:3] == ["id", "a_b", "a_b_042ac5b8"]
    assert names[4] == "x_y"
    [said] = caplog.messages
    assert said.startswith("Stream shop.orders has fields whose names collide; a suffix distinguishes their columns: ")
    assert f"'a_b' is a_b, 'aB' is a_b_042ac5b8; 'x y' is {names[3]}, 'xY' is x_y." in said


def test_a_warning_names_the_first_twenty_collisions(caplog: pytest.LogCaptureFixture) -> None:
    named({}, *(f"{word}{number}" for number in range(25) for word in ("a b", "a-b")))

    [said] = caplog.messages
    assert said.count("'a b") == 20
    assert "; and 5 more like these." in said


def test_no_collision_warning_for_distinct_names(caplog: pytest.LogCaptureFixture) -> None:
    assert named({"id": "ID of the order", "a_b": "What b says"}, "id", "aB", "a_c") == ["id", "a_b", "a_c"]

    assert caplog.messages == []
