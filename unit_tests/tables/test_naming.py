"""Which table a stream lands in, and which streams would meet in one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from destination_datalake.protocol.catalog import Stream, StreamId
from destination_datalake.protocol.errors import SyncRefused
from destination_datalake.tables.base import TableName
from destination_datalake.tables.naming import table_names


def names(*streams: tuple[str | None, str]) -> Sequence[TableName]:
    configured = [Stream(StreamId(*each), {}, False, None, None, None) for each in streams]
    return list(table_names(configured, "lake").values())


@pytest.mark.parametrize(
    ("namespace", "name", "table"),
    [
        (None, "orders", "lake.orders"),
        ("shop", "orders", "shop.orders"),
        ("Web Shop", "OrderLines", "web_shop.order_lines"),
        ("público", "spécial", "publico.special"),
        ("2024", "1st", "_2024._1st"),
    ],
)
def test_a_stream_s_table_is_its_name_in_the_database_of_its_namespace(
    namespace: str | None, name: str, table: str
) -> None:
    assert [str(each) for each in names((namespace, name))] == [table]


def test_streams_of_one_name_in_different_namespaces_are_different_tables() -> None:
    assert names((None, "orders"), ("shop", "orders"), ("store", "orders")) == [
        TableName("lake", "orders"),
        TableName("shop", "orders"),
        TableName("store", "orders"),
    ]


@pytest.mark.parametrize(
    ("one", "other", "table"),
    [
        ((None, "orderLines"), (None, "order_lines"), "lake.order_lines"),
        (("Shop", "a"), ("shop", "a"), "shop.a"),
        ((None, "a"), ("lake", "A"), "lake.a"),
        ((None, "a b"), (None, "a-b"), "lake.a_b"),
    ],
)
def test_streams_that_would_meet_in_one_table_are_refused_by_name(
    one: tuple[str | None, str], other: tuple[str | None, str], table: str
) -> None:
    with pytest.raises(SyncRefused) as refused:
        names(one, ("elsewhere", "a"), other)

    assert refused.value.failure_type == "config_error"
    assert (
        f"Streams {StreamId(*one)} and {StreamId(*other)} would both be written to table {table}"
        in refused.value.message
    )
