"""What a table says of the stream it was made for, and what is said when another stream comes to it."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_datalake.protocol.catalog import StreamId
from destination_datalake.schema.names import PRESERVE, SNAKE_CASE, STYLES
from destination_datalake.tables.base import TableName
from destination_datalake.tables.holding import Holding

ORDERS = Holding(StreamId("shop", "orders"), SNAKE_CASE)


@given(st.none() | st.text(min_size=1), st.text(), st.sampled_from(list(STYLES.values())))
def test_what_a_table_says_is_read_again(namespace: str | None, name: str, naming: object) -> None:
    holding = Holding(StreamId(namespace, name), naming)  # type: ignore[arg-type]

    assert Holding.of({"classification": "parquet", **holding.parameters()}) == holding


@pytest.mark.parametrize(
    ("theirs", "warnings"),
    [
        ({}, 0),
        (ORDERS.parameters(), 0),
        (Holding(ORDERS.stream, PRESERVE).parameters(), 0),
        (Holding(StreamId(None, "orders"), SNAKE_CASE).parameters(), 1),
        (Holding(StreamId("shop", "Orders"), SNAKE_CASE).parameters(), 1),
    ],
)
def test_a_table_that_was_made_for_another_stream_is_a_warning(
    caplog: pytest.LogCaptureFixture, theirs: dict[str, str], warnings: int
) -> None:
    with caplog.at_level(logging.WARNING):
        ORDERS.compare(TableName("lake", "orders"), theirs)

    assert len(caplog.messages) == warnings
    for said in caplog.messages:
        assert said.startswith("Table lake.orders was made for stream ")
        assert "and now takes stream shop.orders as well" in said
