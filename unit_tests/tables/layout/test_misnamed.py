"""Options that name what a sync does not have are refused or warned of before anything is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from destination_datalake.config.options import Config
from destination_datalake.errors import ConfigError
from destination_datalake.protocol.catalog import Stream, StreamId
from destination_datalake.tables.layout import misnamed_streams, require_partition_source
from destination_datalake.tables.naming import TableNaming
from unit_tests.cloud import Cloud, ungoverned
from unit_tests.config.examples import options

SYNCED = [StreamId(None, "orders"), StreamId("eu", "Order lines"), StreamId("us", "clicks")]


@pytest.mark.parametrize(
    ("entry", "hint"),
    [
        (
            {"stream": "Orders"},
            "stream Orders, which is not in this sync, so the entry has no effect. Did you mean orders?",
        ),
        ({"stream": "orders", "namespace": "eu"}, "stream eu.orders, "),
        (
            {"stream": "order line", "namespace": "eu"},
            "no effect. Did you mean eu.Order lines? Names must match exactly.",
        ),
        (
            {"stream": "invoices"},
            "stream invoices, which is not in this sync, so the entry has no effect. Names",
        ),
    ],
)
def test_an_entry_for_a_stream_of_another_connection_is_warned_of(entry: Mapping[str, str], hint: str) -> None:
    config = Config.parse(options(streams=[{"stream": "clicks"}, {"stream": "orders"}, entry]))

    [warning] = misnamed_streams(config, SYNCED)

    assert warning.startswith("streams.2 names stream ")
    assert hint in warning


@pytest.mark.parametrize(
    ("entry", "meant"),
    [
        ({"stream": "Orders"}, "orders"),
        ({"stream": "order_lines", "namespace": "EU"}, "eu.Order lines"),
        ({"stream": "Clicks", "namespace": "us"}, "us.clicks"),
    ],
)
def test_an_entry_with_another_spelling_of_a_stream_s_name_is_refused(entry: Mapping[str, str], meant: str) -> None:
    config = Config.parse(options(streams=[entry]))

    with pytest.raises(ConfigError, match=f"Did you mean {meant}") as refused:
        list(misnamed_streams(config, SYNCED))

    assert refused.value.failure.type == "config_error"


DATE_TIME = {"type": "string", "format": "date-time"}


def stream(name: str, **fields: Mapping[str, Any]) -> Stream:
    return Stream(StreamId("shop", name), {"type": "object", "properties": fields}, False, None, None, None)


ORDERS = stream("orders", id={"type": "integer"}, created_at=DATE_TIME, paid_at={"type": "string"})
EVENTS = stream("events", at=DATE_TIME)


def require(cloud: Cloud, *streams: Stream, **given: Any) -> None:
    config = Config.parse(options(**given))
    require_partition_source(
        config, streams, TableNaming.from_config(config).tables_of(streams), ungoverned(cloud.access)
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"partitioning": "DAY", "partition_source": "create_at"}, "Did you mean created_at?"),
        (
            {"partitioning": "DATE", "partition_source": "paid_at", "table_type": "HIVE"},
            "partition_source names the field paid_at",
        ),
        (
            {"partitioning": "DAY", "partition_source": "x"},
            "Date fields: at, created_at. Set partition_source to cursor",
        ),
        (
            {"path_layout": "{database}/{table}/dt={date}", "partition_source": "x", "table_type": "HIVE"},
            "partition_source names the field x, but no stream of this sync has a date",
        ),
    ],
)
def test_a_source_that_no_stream_has_is_refused_before_a_table_is_created(
    cloud: Cloud, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        require(cloud, ORDERS, EVENTS, **given)

    assert message in str(refused.value)
    assert refused.value.failure.type == "config_error"


@pytest.mark.parametrize(
    "given",
    [
        {"partition_source": "x"},
        {"partitioning": "DAY"},
        {"partitioning": "DAY", "partition_source": "extracted_at"},
        {"partitioning": "DAY", "partition_source": "created_at"},
        {"partitioning": "DAY", "partition_source": "at"},
        {
            "partitioning": "DAY",
            "partition_source": "x",
            "streams": [{"stream": name, "partition_by": []} for name in ("orders", "events")],
        },
    ],
)
def test_a_source_that_some_stream_has_or_none_needs_is_accepted(cloud: Cloud, given: dict[str, Any]) -> None:
    require(cloud, ORDERS, EVENTS, **given)


def test_a_sync_goes_on_when_its_source_takes_the_field_away(cloud: Cloud) -> None:
    glue = cloud.access.client("glue")
    glue.create_database(DatabaseInput={"Name": "shop"})
    glue.create_table(DatabaseName="shop", TableInput={"Name": "orders"})

    require(cloud, stream("orders", id={"type": "integer"}), partitioning="DAY", partition_source="created_at")
