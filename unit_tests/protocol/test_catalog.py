"""The configured catalog: the streams of a sync, what is refused, and which stream a message names."""

from __future__ import annotations

import re
from typing import Any

import pytest

from destination_datalake.errors import ConnectorError
from destination_datalake.protocol.catalog import (
    Stream,
    StreamDescriptor,
    StreamFinder,
    StreamId,
    UnknownStream,
    parse_catalog,
)

ORDERS, ITEMS, SHOP_ITEMS = StreamId(None, "orders"), StreamId(None, "items"), StreamId("shop", "items")

SCHEMA = {"type": "object", "properties": {"id": {}, "part": {}, "updated_at": {}, "owner": {"type": "object"}}}


def configured(name: str = "orders", namespace: str | None = None, **options: object) -> dict[str, Any]:
    stream: dict[str, Any] = {"name": name, "json_schema": SCHEMA}
    if namespace is not None:
        stream["namespace"] = namespace
    modes = {"sync_mode": "incremental", "destination_sync_mode": "append"}
    return {"stream": stream, **modes, "primary_key": [["id"]], **options}


def parsed(**options: object) -> Stream:
    [stream] = parse_catalog({"streams": [configured(**options)]})  # type: ignore[arg-type]
    return stream


def refused(catalog: object) -> ConnectorError:
    with pytest.raises(ConnectorError) as raised:
        parse_catalog(catalog)
    return raised.value


def test_a_stream_has_the_values_of_the_catalog() -> None:
    stream = parsed(namespace="shop", generation_id=7, minimum_generation_id=0, sync_id=42)

    assert stream == Stream(StreamId("shop", "orders"), SCHEMA, False, 7, 0, 42)
    assert str(stream.id) == "shop.orders"


def test_streams_keep_the_catalog_s_order() -> None:
    streams = parse_catalog({"streams": [configured("b"), configured("a"), configured("b", "shop")]})

    assert [stream.id for stream in streams] == [StreamId(None, "b"), StreamId(None, "a"), StreamId("shop", "b")]


@pytest.mark.parametrize("namespace", [None, ""])
def test_an_empty_namespace_is_absent(namespace: str | None) -> None:
    assert parsed(namespace=namespace).id == StreamId(None, "orders")
    assert str(parsed(namespace=namespace).id) == "orders"


def test_a_catalog_of_a_platform_without_refreshes_has_no_ids() -> None:
    stream = parsed()

    assert (stream.generation, stream.minimum_generation, stream.sync_id) == (None, None, None)


@pytest.mark.parametrize("name", ["generation_id", "minimum_generation_id", "sync_id"])
def test_an_id_of_more_than_64_bits_is_refused_by_name(name: str) -> None:
    refusal = refused({"streams": [configured(**{name: 10**400})]})  # type: ignore[arg-type]

    assert refusal.failure.type == "config_error"
    assert name in str(refusal)
    assert parsed(sync_id=2**63 - 1).sync_id == 2**63 - 1


def test_unknown_keys_and_cursors_are_ignored() -> None:
    stream = configured(cursor_field=["id"], primary_key=[["id"]], include_files=False, from_the_future={"a": 1})
    stream["stream"] |= {"is_resumable": True, "source_defined_cursor": None}

    assert parse_catalog({"streams": [stream], "more": 1})[0].id.name == "orders"


def test_a_stream_without_a_schema_has_an_empty_one() -> None:
    assert parse_catalog({"streams": [{"stream": {"name": "orders"}}]})[0].json_schema == {}


@pytest.mark.parametrize(
    ("mode", "generation", "minimum", "overwrites"),
    [
        ("append", None, None, False),
        ("append", 0, 0, False),
        ("append", 3, 0, False),
        ("append", 3, 3, True),
        ("overwrite", None, None, True),
        ("overwrite", 3, 3, True),
        ("overwrite", 3, 0, True),
        ("append_dedup", 3, 0, False),
        ("append_dedup", 3, 3, True),
    ],
)
def test_a_stream_overwrites_the_table_for_overwrite_and_for_equal_generations(
    mode: str, generation: int | None, minimum: int | None, overwrites: bool
) -> None:
    stream = parsed(destination_sync_mode=mode, generation_id=generation, minimum_generation_id=minimum)

    assert stream.overwrites_table is overwrites


@pytest.mark.parametrize(
    ("mode", "generation", "minimum", "sync_id", "identity"),
    [
        ("append", 3, 3, 9, 3),
        ("overwrite", 3, 3, 9, 3),
        ("append", 1, 1, 1, 1),
        ("append_dedup", 3, 3, 9, 3),
        ("append_dedup", 1, 1, 1, 1),
        ("append_dedup", 3, 0, 9, None),
        ("overwrite", 1, 1, 1, None),
        ("overwrite", 3, 0, 9, None),
        ("overwrite", None, None, None, None),
        ("append", 3, 0, 9, None),
    ],
)
def test_an_overwrite_is_identified_by_its_generation(
    mode: str, generation: int | None, minimum: int | None, sync_id: int | None, identity: int | None
) -> None:
    ids = {"generation_id": generation, "minimum_generation_id": minimum, "sync_id": sync_id}

    assert parsed(destination_sync_mode=mode, **ids).overwrite_generation == identity


@pytest.mark.parametrize("mode", ["overwrite_dedup", "update", "soft_delete", ""])
def test_an_unsupported_sync_mode_is_a_config_error(mode: str) -> None:
    error = refused({"streams": [configured(namespace="shop", destination_sync_mode=mode)]})

    assert error.failure.type == "config_error"
    assert f"Stream shop.orders: this destination does not support the destination sync mode {mode!r}." in str(error)
    assert "Choose overwrite, append or append_dedup." in str(error)


@pytest.mark.parametrize(
    ("primary_key", "cursor", "key", "cursor_field"),
    [
        ([["id"]], ["updated_at"], ("id",), ("updated_at",)),
        ([["part"], ["id"]], [], ("part", "id"), ()),
        ([["id"], ["id"], ["part"]], None, ("id", "part"), ()),
        ([["id"], []], ["id"], ("id",), ("id",)),
    ],
)
def test_a_stream_that_is_deduplicated_has_a_primary_key_and_perhaps_a_cursor(
    primary_key: list[list[str]], cursor: list[str] | None, key: tuple[str, ...], cursor_field: tuple[str, ...]
) -> None:
    """Each field of the key counts once."""
    stream = parsed(destination_sync_mode="append_dedup", primary_key=primary_key, cursor_field=cursor)

    assert (stream.dedup, stream.primary_key, stream.cursor_field) == (True, key, cursor_field)
    assert not stream.overwrite


def test_a_key_may_be_declared_behind_a_reference() -> None:
    schema = {"allOf": [{"$ref": "#/$defs/order"}], "$defs": {"order": {"properties": {"number": {"type": "integer"}}}}}
    stream = {"name": "orders", "json_schema": schema}

    assert parsed(stream=stream, destination_sync_mode="append_dedup", primary_key=[["number"]]).dedup


@pytest.mark.parametrize("mode", ["append", "overwrite"])
@pytest.mark.parametrize("key", [[["owner", "id"], ["nothing"]], ["id"], "id", [[1], None], {}])
def test_other_streams_keep_all_rows_whatever_keys_they_have(mode: str, key: object) -> None:
    stream = parsed(destination_sync_mode=mode, primary_key=key)

    assert (stream.dedup, stream.primary_key) == (False, ())


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"primary_key": None}, "Stream shop.orders has no primary key"),
        ({"primary_key": []}, "Choose a primary key in the connection"),
        ({"primary_key": [[]]}, "has no primary key"),
        (
            {"primary_key": ["id"]},
            "The primary key of stream shop.orders is not a list of paths: Expected `array`, got `str`",
        ),
        (
            {"primary_key": [["id"], ["owner", "id"]]},
            "The primary key owner.id of stream shop.orders is nested in the field owner.",
        ),
        ({"primary_key": [["Id"]]}, "does not declare the primary key Id."),
        ({"cursor_field": ["owner", "since"]}, "of stream shop.orders is nested in the field owner."),
        ({"cursor_field": ["at"]}, "does not declare the cursor at. Refresh the source"),
        ({"stream": {"name": "orders", "namespace": "shop"}}, "The schema of stream shop.orders does not declare"),
    ],
)
def test_a_stream_cannot_be_deduplicated_by_what_its_records_do_not_have_at_their_top_level(
    options: dict[str, Any], problem: str
) -> None:
    given = {"namespace": "shop", "destination_sync_mode": "append_dedup", **options}
    error = refused({"streams": [configured(**given)]})

    assert error.failure.type == "config_error"
    assert problem in str(error)


def test_all_streams_that_cannot_be_deduplicated_are_named_at_once() -> None:
    """The first ten of them."""
    streams = [configured(f"s{n}", destination_sync_mode="append_dedup", primary_key=[]) for n in range(11)]

    lines = str(refused({"streams": [configured("good"), *streams]})).split("\n")

    assert lines[0] == "Cannot deduplicate 11 streams:"
    assert [line.split(" ", 3)[1] for line in lines[1:-1]] == [f"s{n}" for n in range(10)]
    assert lines[-1] == "…"


def test_a_hybrid_refresh_is_a_system_error() -> None:
    error = refused({"streams": [configured(generation_id=3, minimum_generation_id=2)]})

    assert error.failure.type == "system_error"
    assert "hybrid refresh (minimum_generation_id 2, generation_id 3)" in str(error)


@pytest.mark.parametrize(
    ("streams", "reason"),
    [
        ([], "no streams"),
        ([configured("a", "shop"), configured("a", "shop")], "contains stream shop.a twice"),
        ([configured("a"), configured("a", "")], "contains stream a twice"),
        ([{"stream": {}}], "missing required field `name`"),
        ([{}], "missing required field `stream`"),
        ("orders", "Expected `array`, got `str`"),
        ([configured(generation_id="3")], "Expected `int | null`, got `str`"),
    ],
)
def test_an_invalid_catalog_is_refused_with_the_reason(streams: object, reason: str) -> None:
    error = refused({"streams": streams})

    assert error.failure.type == "config_error"
    assert reason in str(error)


DISCOVERED = {"name": "orders", "json_schema": SCHEMA, "supported_sync_modes": ["full_refresh", "incremental"]}


@pytest.mark.parametrize(
    "catalog",
    [
        {"streams": [DISCOVERED]},
        {"streams": [configured("items"), DISCOVERED]},
        {"type": "CATALOG", "catalog": {"streams": [DISCOVERED]}},
    ],
)
def test_a_discovered_catalog_is_refused_with_what_to_make_of_it(catalog: object) -> None:
    error = refused(catalog)

    assert error.failure.type == "config_error"
    assert "is a source's discovered catalog" in str(error)
    assert '{"stream": {…}, "sync_mode": "full_refresh", "destination_sync_mode": "append"}' in str(error)


@pytest.mark.parametrize("catalog", [None, [], "orders", {}])
def test_other_values_than_a_catalog_are_refused(catalog: object) -> None:
    assert "configured catalog is invalid" in str(refused(catalog))


# --- The stream that a message names


@pytest.mark.parametrize(
    ("streams", "namespace", "name", "expected"),
    [
        ([ORDERS], None, "orders", ORDERS),
        ([ORDERS], "", "orders", ORDERS),
        ([SHOP_ITEMS], "shop", "items", SHOP_ITEMS),
        ([SHOP_ITEMS], None, "items", SHOP_ITEMS),
        ([SHOP_ITEMS], "", "items", SHOP_ITEMS),
        ([ITEMS, SHOP_ITEMS], None, "items", ITEMS),
        ([ITEMS, SHOP_ITEMS], "shop", "items", SHOP_ITEMS),
    ],
)
def test_a_message_without_a_namespace_may_name_the_only_stream_of_that_name(
    streams: list[StreamId], namespace: str | None, name: str, expected: StreamId
) -> None:
    assert StreamFinder(streams).find(namespace, name) == expected


@pytest.mark.parametrize(
    ("streams", "namespace", "name", "reason"),
    [
        ([ORDERS], "shop", "orders", "The configured catalog does not contain this stream"),
        ([ORDERS], None, "nothing", "The configured catalog does not contain this stream"),
        ([], None, "orders", "The configured catalog does not contain this stream"),
        ([SHOP_ITEMS, StreamId("store", "items")], "", "items", "2 streams with this name (shop.items, store.items)"),
    ],
)
def test_a_message_that_names_no_stream_or_several_is_refused(
    streams: list[StreamId], namespace: str | None, name: str, reason: str
) -> None:
    with pytest.raises(UnknownStream, match=re.escape(reason)):
        StreamFinder(streams).find(namespace, name)


@pytest.mark.parametrize("namespace", [None, ""])
def test_a_descriptor_with_an_empty_namespace_names_the_same_stream_as_one_without(namespace: str | None) -> None:
    assert StreamDescriptor("orders", namespace).id == ORDERS
