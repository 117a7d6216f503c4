"""The table of a stream, and streams that are refused because of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from destination_datalake.config.options import Config
from destination_datalake.errors import ConfigError
from destination_datalake.protocol.catalog import Stream, StreamId
from destination_datalake.schema.names import AWS_DATALAKE, PRESERVE, SNAKE_CASE, SNAKE_CASE_NUMBERS
from destination_datalake.tables.naming import TableNaming
from destination_datalake.tables.table import TableName

DEFAULT = TableNaming("lake", "namespace", "", SNAKE_CASE)
PREFIXED = replace(DEFAULT, table_prefix="raw_")
SINGLE = replace(DEFAULT, strategy="single")
PRESERVING = replace(DEFAULT, naming=PRESERVE)


def names(*streams: tuple[str | None, str], naming: TableNaming = DEFAULT) -> Sequence[TableName]:
    configured = [Stream(StreamId(*stream_id), {}, False, None, None, None) for stream_id in streams]
    return list(naming.tables_of(configured).values())


@pytest.mark.parametrize(
    ("naming", "namespace", "name", "table"),
    [
        (DEFAULT, None, "orders", "lake.orders"),
        (DEFAULT, "shop", "orders", "shop.orders"),
        (DEFAULT, "Web Shop", "OrderLines", "web_shop.order_lines"),
        (DEFAULT, "público", "spécial", "publico.special"),
        (DEFAULT, "2024", "1st", "_2024._1st"),
        (PREFIXED, "shop", "1st", "shop.raw__1st"),
        (SINGLE, "shop", "OrderLines", "lake.order_lines"),
        (PRESERVING, "Público", "OrderLines", "público.orderlines"),
        (replace(PRESERVING, table_prefix="raw_", strategy="single"), "shop", "京 都", "lake.raw_京_都"),
        (replace(DEFAULT, naming=AWS_DATALAKE), "Web-Shop", "orderItems", "web-shop.orderitems"),
        (replace(DEFAULT, naming=AWS_DATALAKE), None, "Größe 9", "lake.gro_e_9"),
        (replace(DEFAULT, naming=SNAKE_CASE_NUMBERS), "k3", "v2", "k_3.v_2"),
    ],
)
def test_the_options_choose_the_table_of_a_stream(
    naming: TableNaming, namespace: str | None, name: str, table: str
) -> None:
    assert [str(table_name) for table_name in names((namespace, name), naming=naming)] == [table]


def test_a_table_prefix_counts_towards_the_255_bytes() -> None:
    [long] = names((None, "x" * 255), naming=PREFIXED)

    assert len(long.table) == 255
    assert long.table.startswith("raw_xxx")


def test_streams_that_aws_datalake_wrote_to_one_table_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"Streams 京都 and 大阪 would both be written to table lake\._: "):
        names((None, "京都"), (None, "大阪"), naming=replace(DEFAULT, naming=AWS_DATALAKE))


def test_streams_of_one_name_in_different_namespaces_have_different_tables() -> None:
    assert names((None, "orders"), ("shop", "orders"), ("store", "orders")) == [
        TableName("lake", "orders"),
        TableName("shop", "orders"),
        TableName("store", "orders"),
    ]


@pytest.mark.parametrize(
    ("naming", "first", "second", "table", "remedy"),
    [
        (
            DEFAULT,
            (None, "orderLines"),
            (None, "order_lines"),
            "lake.order_lines",
            "Rename one of the streams with a stream prefix",
        ),
        (DEFAULT, ("Shop", "a"), ("shop", "a"), "shop.a", "Rename one of the streams with a stream prefix"),
        (DEFAULT, (None, "a"), ("lake", "A"), "lake.a", "Rename one of the streams with a stream prefix"),
        (DEFAULT, (None, "a b"), (None, "a-b"), "lake.a_b", "Rename one of the streams with a stream prefix"),
        (PRESERVING, (None, "aB"), (None, "ab"), "lake.ab", "Rename one of the streams with a stream prefix"),
        (PREFIXED, (None, "a b"), (None, "a-b"), "lake.raw_a_b", "Rename one of the streams with a stream prefix"),
        (SINGLE, ("shop", "a"), ("store", "a"), "lake.a", "Set database_strategy to namespace"),
        (SINGLE, ("shop", "a b"), ("shop", "a-b"), "lake.a_b", "Rename one of the streams with a stream prefix"),
    ],
)
def test_streams_with_the_same_table_are_refused_by_name(
    naming: TableNaming, first: tuple[str | None, str], second: tuple[str | None, str], table: str, remedy: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        names(first, ("elsewhere", "z"), second, naming=naming)

    assert refused.value.failure.type == "config_error"
    assert f"Streams {StreamId(*first)} and {StreamId(*second)} would both be written to table {table}" in str(
        refused.value
    )
    assert remedy in str(refused.value)


@pytest.mark.parametrize(
    ("naming", "stream", "message"),
    [
        (
            DEFAULT,
            (None, "airbyte_rejects"),
            "table lake.airbyte_rejects, but this name is reserved for the table of rejects",
        ),
        (
            SINGLE,
            ("shop", "Airbyte Rejects"),
            "table lake.airbyte_rejects, but this name is reserved for the table of rejects",
        ),
        (replace(DEFAULT, table_prefix="airbyte_"), (None, "rejects"), "reserved for the table of rejects"),
        (PRESERVING, ("shop", "orders__generations"), "the folder of the generations of table shop.orders"),
    ],
)
def test_a_stream_with_a_reserved_table_is_refused(
    naming: TableNaming, stream: tuple[str | None, str], message: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        names((None, "users"), stream, naming=naming)

    assert refused.value.failure.type == "config_error"
    assert f"Stream {StreamId(*stream)} would be written to table" in str(refused.value)
    assert message in str(refused.value)
    assert "Set table_prefix, or rename the stream" in str(refused.value)


def test_the_name_of_the_rejects_table_is_reserved_in_the_default_database_only() -> None:
    assert names(("shop", "airbyte_rejects")) == [TableName("shop", "airbyte_rejects")]


@pytest.mark.parametrize(
    ("options", "naming"),
    [
        ({}, DEFAULT),
        ({"database_strategy": "single", "table_prefix": "Raw_"}, replace(SINGLE, table_prefix="raw_")),
        ({"naming": {"split_numbers": True}}, replace(DEFAULT, naming=SNAKE_CASE_NUMBERS)),
        ({"naming": {"style": "preserve"}}, PRESERVING),
    ],
)
def test_the_naming_is_that_of_the_options(options: dict[str, object], naming: TableNaming) -> None:
    smallest = {
        "credentials": {"credentials_title": "Default chain"},
        "region": "eu-west-1",
        "bucket_name": "bucket",
        "lakeformation_database_name": "lake",
    }

    assert TableNaming.from_config(Config.parse({**smallest, **options})) == naming
