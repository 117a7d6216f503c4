"""`write` through the command line: what a shop's syncs leave in the lake, whatever the kind of table."""

import re
from datetime import UTC, date, datetime
from typing import Any

import pytest

from integration_tests.harness.lake import Lake
from integration_tests.harness.messages import (
    EMITTED_AT,
    configured_catalog,
    configured_stream,
    record,
    state,
    status,
)
from integration_tests.harness.runs.output import Run, record_count, same_text, without_stats
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.table_kinds import TableKind

ORDERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "price": {"type": ["null", "number"]},
        "placedAt": {"type": "string", "format": "date-time", "airbyte_type": "timestamp_with_timezone"},
        "day": {"type": "string", "format": "date"},
        "customer": {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "points": {"type": "integer"},
                "address": {"type": "object", "properties": {"zipCode": {"type": "string"}}},
            },
        },
        "lines": {
            "type": "array",
            "items": {"type": "object", "properties": {"sku": {"type": "string"}, "count": {"type": "integer"}}},
        },
        "extra": {"type": "object"},
    },
}
USERS: dict[str, Any] = {"type": "object", "properties": {"name": {"type": "string"}}}
METADATA = {
    "_airbyte_raw_id": "string",
    "_airbyte_extracted_at": "timestamp",
    "_airbyte_meta": "struct<sync_id:bigint,changes:array<struct<field:string,change:string,reason:string>>>",
    "_airbyte_generation_id": "bigint",
}


def order(id_: int, **values: object) -> dict[str, object]:
    """An order with something in every column."""
    return {
        "id": id_,
        "price": 0.5,
        "placedAt": "2024-02-29T12:00:00.123456+02:00",
        "day": "2024-02-29",
        "customer": {"name": "Zoë", "points": 1, "address": {"zipCode": "0815"}},
        "lines": [{"sku": "a", "count": 1}, {"sku": "b", "count": None}],
        "extra": {"any": [1.50, None, {"thing": True}]},
    } | values


def catalog(generation: int, namespace: str) -> dict[str, object]:
    """Orders are appended, users replaced, and of a third stream nothing ever comes."""
    return configured_catalog(
        configured_stream("orders", ORDERS, namespace=namespace, generation=0, sync_id=10 + generation),
        configured_stream("Users", USERS, generation=generation, minimum=generation, sync_id=10 + generation),
        configured_stream("nothing", USERS, sync_id=10 + generation),
    )


def ended(namespace: str) -> list[bytes]:
    """What the platform sends once the source has succeeded."""
    return [
        status("orders", "COMPLETE", namespace=namespace),
        status("Users", "COMPLETE"),
        status("nothing", "COMPLETE"),
    ]


def wide(type_: str) -> str:
    """The Glue type with the integers inside it wide."""
    return type_.replace(":int", ":bigint")


def assert_echoed(run: Run, lines: list[bytes], counts: list[float]) -> None:
    assert len(run.states) == len(lines), run.report()
    for released, sent in zip(run.states, lines, strict=True):
        assert same_text(without_stats(released.raw), sent)
    assert [record_count(released) for released in run.states] == counts


def test_two_syncs_append_replace_nest_and_widen(lake: Lake, platform: Platform, table_kind: TableKind) -> None:
    shop = lake.name("shop")
    config = lake.config(**table_kind.options, flush_interval_seconds=1)
    states = [state("orders", number, namespace=shop, id=number) for number in range(3)]

    with platform.start(config, catalog(1, shop)) as running:
        running.send([states[0], *(record("orders", order(id_), namespace=shop) for id_ in (1, 2, 3)), states[1]])
        # The input is quiet and open: what is there is committed all the same, and its states go out.
        running.wait_for_states(2)
        assert sorted(row["id"] for row in lake.rows(shop, "orders")) == [1, 2, 3]
        narrow = lake.columns(shop, "orders")
        running.wait_for_log(f"Stream {shop}.orders: 3 records received, 3 committed.")
        wider = {"name": "Zoë", "points": 2**33, "address": None}
        running.send([record("orders", order(2**40, price=0.1, customer=wider), namespace=shop), states[2]])
        running.send([record("Users", {"name": name}) for name in ("Ada", "Bob")])
        running.send(ended(shop))
        first = running.close()

    assert first.exit_code == 0, first.report()
    assert_echoed(first, states, [0.0, 3.0, 1.0])
    assert first.errors == []
    summary = rf"INFO: Stream {shop}.orders finished: 4 records received \(0.0 MB\), 4 committed in 2 files \(0.0 MB\)"
    assert any(re.match(summary, log) for log in first.logs)

    own = {
        "id": "int",
        "price": "float",
        "placed_at": "timestamp",
        "day": "date",
        "customer": "struct<name:string,points:int,address:struct<zip_code:string>>",
        "lines": "array<struct<sku:string,count:int>>",
        "extra": "string",
    }
    assert narrow == METADATA | own
    widened = {"id": "bigint", "price": "double", "customer": wide(own["customer"])}
    assert lake.columns(shop, "orders") == METADATA | own | widened
    assert lake.tables() == sorted([(shop, "orders"), (lake.database, "users"), (lake.database, "nothing")])
    assert (lake.rows(lake.database, "nothing"), lake.unfinished_uploads()) == ([], [])
    assert sorted(row["name"] for row in lake.rows(lake.database, "users")) == ["Ada", "Bob"]

    rows = {row["id"]: row for row in lake.rows(shop, "orders")}
    assert rows.keys() == {1, 2, 3, 2**40}
    assert {row.pop("_airbyte_raw_id") for row in rows.values()} != {None}
    extracted_at = datetime.fromtimestamp(EMITTED_AT / 1000, UTC)
    placed_at = datetime(2024, 2, 29, 10, 0, 0, 123456, UTC)
    assert rows[1] == {
        "_airbyte_extracted_at": extracted_at if table_kind.keeps_zones else extracted_at.replace(tzinfo=None),
        "_airbyte_meta": {"sync_id": 11, "changes": []},
        "_airbyte_generation_id": 0,
        "id": 1,
        "price": 0.5,
        "placed_at": placed_at if table_kind.keeps_zones else placed_at.replace(tzinfo=None),
        "day": date(2024, 2, 29),
        "customer": {"name": "Zoë", "points": 1, "address": {"zip_code": "0815"}},
        "lines": [{"sku": "a", "count": 1}, {"sku": "b", "count": None}],
        "extra": '{"any":[1.5,null,{"thing":true}]}',
    }
    assert (rows[2**40]["price"], rows[2**40]["customer"]["points"], rows[1]["price"]) == (0.1, 2**33, 0.5)

    lines = [{"sku": "c", "count": 2**31}]
    repeated = [record("orders", order(id_, lines=lines), namespace=shop) for id_ in (3, 4)]
    second = platform.write(
        config, catalog(2, shop), [*repeated, record("Users", {"name": "Cid"}), states[1], *ended(shop)]
    )

    assert second.exit_code == 0, second.report()
    assert_echoed(second, [states[1]], [2.0])
    rows_after = lake.rows(shop, "orders")
    assert sorted(row["id"] for row in rows_after) == [1, 2, 3, 3, 4, 2**40]
    assert len({row["_airbyte_raw_id"] for row in rows_after}) == 6
    assert {row["_airbyte_meta"]["sync_id"] for row in rows_after if row["id"] == 3} == {11, 12}
    assert lake.columns(shop, "orders") == METADATA | own | widened | {"lines": wide(own["lines"])}
    assert {row["lines"][0]["count"] for row in rows_after} == {1, 2**31}
    assert [row["name"] for row in lake.rows(lake.database, "users")] == ["Cid"]
    assert lake.rows(lake.database, "nothing") == []
    assert lake.unfinished_uploads() == []


@pytest.mark.slow
def test_settings_that_only_shape_files_change_no_row(lake: Lake, platform: Platform) -> None:
    """Many batches, many files, a buffer that is full most of the time."""
    config = lake.config(
        format={"format_type": "JSONL", "compression_codec": "GZIP"},
        numeric_types="bigint/double",
        batch_size_mb=1,
        target_file_size_mb=1,
        buffer_size_mb=16,
    )
    text = "é" * 1000
    lines = [record("orders", {"id": number, "day": text}) for number in range(20_000)]
    schema = {"type": "object", "properties": {"id": {"type": "integer"}, "day": {"type": "string"}}}
    stream = configured_stream("orders", schema)

    run = platform.write(config, configured_catalog(stream), [*lines, state("orders", 1), status("orders", "COMPLETE")])

    assert run.exit_code == 0, run.report()
    assert record_count(run.states[0]) == 20_000.0
    columns = lake.read(lake.database, "orders").to_pydict()
    assert sorted(columns["id"]) == list(range(20_000))
    assert set(columns["day"]) == {text}
    assert lake.columns(lake.database, "orders")["id"] == "bigint"
    files = lake.data_files(lake.database, "orders")
    assert len(files) > 10
    assert all(key.endswith(".jsonl.gz") for key in files)
