"""The configured catalog: which streams a sync writes, how, and what it refuses before anything is read."""

from __future__ import annotations

from typing import Any

import pytest

from destination_datalake.errors import SyncRefused
from destination_datalake.protocol.catalog import Stream, StreamId, parse_catalog


def configured(name: str = "orders", namespace: str | None = None, **options: object) -> dict[str, Any]:
    stream: dict[str, Any] = {"name": name, "json_schema": {"type": "object"}}
    if namespace is not None:
        stream["namespace"] = namespace
    return {"stream": stream, "sync_mode": "incremental", "destination_sync_mode": "append", **options}


def parsed(**options: object) -> Stream:
    [stream] = parse_catalog({"streams": [configured(**options)]})  # type: ignore[arg-type]
    return stream


def refused(catalog: object) -> SyncRefused:
    with pytest.raises(SyncRefused) as raised:
        parse_catalog(catalog)
    return raised.value


def test_a_stream_is_what_the_catalog_says_of_it() -> None:
    stream = parsed(namespace="shop", generation_id=7, minimum_generation_id=0, sync_id=42)

    assert stream == Stream(StreamId("shop", "orders"), {"type": "object"}, False, 7, 0, 42)
    assert str(stream.id) == "shop.orders"


def test_streams_keep_the_catalog_s_order() -> None:
    streams = parse_catalog({"streams": [configured("b"), configured("a"), configured("b", "shop")]})

    assert [stream.id for stream in streams] == [StreamId(None, "b"), StreamId(None, "a"), StreamId("shop", "b")]


@pytest.mark.parametrize("namespace", [None, ""])
def test_an_empty_namespace_is_none(namespace: str | None) -> None:
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


def test_unknown_keys_and_cursors_are_of_no_concern() -> None:
    stream = configured(cursor_field=["id"], primary_key=[["id"]], include_files=False, from_the_future={"a": 1})
    stream["stream"] |= {"is_resumable": True, "source_defined_cursor": None}

    assert parse_catalog({"streams": [stream], "more": 1})[0].id.name == "orders"


def test_a_stream_without_a_schema_is_a_stream_without_columns() -> None:
    assert parse_catalog({"streams": [{"stream": {"name": "orders"}}]})[0].json_schema == {}


@pytest.mark.parametrize(
    ("mode", "generation", "minimum", "replaces"),
    [
        ("append", None, None, False),
        ("append", 0, 0, False),
        ("append", 3, 0, False),
        ("append", 3, 3, True),
        ("overwrite", None, None, True),
        ("overwrite", 3, 3, True),
        ("overwrite", 3, 0, True),
    ],
)
def test_a_stream_replaces_what_was_there_when_asked_in_either_way(
    mode: str, generation: int | None, minimum: int | None, replaces: bool
) -> None:
    stream = parsed(destination_sync_mode=mode, generation_id=generation, minimum_generation_id=minimum)

    assert stream.replaces is replaces


@pytest.mark.parametrize(
    ("mode", "generation", "minimum", "sync_id", "there", "outdated"),
    [
        ("append", 3, 0, 9, 2, False),
        ("append", None, None, None, None, False),
        ("append", 3, 3, 9, 2, True),
        ("append", 3, 3, 9, None, True),
        ("append", 3, 3, 9, 3, False),
        ("append", 1, 1, 1, 1, False),
        ("overwrite", 3, 3, 9, 2, True),
        ("overwrite", 3, 3, 9, 3, False),
        ("overwrite", 1, 1, 1, 1, True),
        ("overwrite", 1, 1, 2, 1, False),
        ("overwrite", 3, 0, 9, 3, True),
        ("overwrite", None, None, None, 3, True),
    ],
)
def test_rows_go_unless_they_are_of_the_generation_that_replaces_them(
    mode: str, generation: int | None, minimum: int | None, sync_id: int | None, there: int | None, outdated: bool
) -> None:
    """The ids decide wherever they say something: not where there are none, and not where they are always 1."""
    ids = {"generation_id": generation, "minimum_generation_id": minimum, "sync_id": sync_id}

    assert parsed(destination_sync_mode=mode, **ids).outdates(there) is outdated


@pytest.mark.parametrize(
    ("mode", "generation", "minimum", "sync_id", "known_as"),
    [
        ("append", 3, 3, 9, 3),
        ("overwrite", 3, 3, 9, 3),
        ("append", 1, 1, 1, 1),
        ("overwrite", 1, 1, 1, None),
        ("overwrite", 3, 0, 9, None),
        ("overwrite", None, None, None, None),
        ("append", 3, 0, 9, None),
    ],
)
def test_attempts_at_one_replacement_know_one_another_by_its_generation(
    mode: str, generation: int | None, minimum: int | None, sync_id: int | None, known_as: int | None
) -> None:
    ids = {"generation_id": generation, "minimum_generation_id": minimum, "sync_id": sync_id}

    assert parsed(destination_sync_mode=mode, **ids).replacement_generation == known_as


@pytest.mark.parametrize("mode", ["append_dedup", "update", "soft_delete", ""])
def test_a_sync_mode_that_is_not_offered_is_the_user_s_to_mend(mode: str) -> None:
    error = refused({"streams": [configured(namespace="shop", destination_sync_mode=mode)]})

    assert error.failure.type == "config_error"
    assert f"Stream shop.orders asks for the destination sync mode {mode!r}" in str(error)
    assert "overwrite and append" in str(error)


def test_a_hybrid_refresh_is_the_platform_s_fault() -> None:
    error = refused({"streams": [configured(generation_id=3, minimum_generation_id=2)]})

    assert error.failure.type == "system_error"
    assert "hybrid refresh (minimum_generation_id 2, generation_id 3)" in str(error)


@pytest.mark.parametrize(
    ("streams", "said"),
    [
        ([], "no streams"),
        ([configured("a", "shop"), configured("a", "shop")], "names stream shop.a twice"),
        ([configured("a"), configured("a", "")], "names stream a twice"),
        ([{"stream": {}}], "missing required field `name`"),
        ([{}], "missing required field `stream`"),
        ("orders", "Expected `array`, got `str`"),
        ([configured(generation_id="3")], "Expected `int | null`, got `str`"),
    ],
)
def test_a_catalog_that_cannot_be_is_refused_with_the_reason(streams: object, said: str) -> None:
    error = refused({"streams": streams})

    assert error.failure.type == "config_error"
    assert said in str(error)


@pytest.mark.parametrize("catalog", [None, [], "orders", {}])
def test_what_is_no_catalog_is_refused(catalog: object) -> None:
    assert "not valid" in str(refused(catalog))
