"""Which streams the source finished, and which stream a message means."""

from __future__ import annotations

import json

import msgspec
import pytest

from destination_datalake.protocol.catalog import Stream, StreamId
from destination_datalake.protocol.statuses import Statuses, find_stream

ORDERS, ITEMS, SHOP_ITEMS = StreamId(None, "orders"), StreamId(None, "items"), StreamId("shop", "items")


def status(kind: str, name: str = "orders", namespace: str | None = None) -> bytes:
    descriptor = {"name": name} if namespace is None else {"name": name, "namespace": namespace}
    body = {"stream_descriptor": descriptor, "status": kind}
    return json.dumps(
        {"type": "TRACE", "trace": {"type": "STREAM_STATUS", "emitted_at": 1, "stream_status": body}}
    ).encode()


def statuses(generation: int | None) -> Statuses:
    return Statuses([Stream(ORDERS, {}, False, generation, None, None)])


@pytest.mark.parametrize(
    ("said", "with_generations", "without"),
    [
        ([], False, True),
        (["STARTED"], False, True),
        (["STARTED", "RUNNING"], False, True),
        (["COMPLETE"], True, True),
        (["STARTED", "RUNNING", "COMPLETE"], True, True),
        (["INCOMPLETE"], False, False),
        (["INCOMPLETE", "COMPLETE"], True, True),
        (["COMPLETE", "INCOMPLETE"], False, False),
        (["INCOMPLETE", "RUNNING"], False, False),
        (["SOMETHING_NEW"], False, True),
    ],
)
def test_a_stream_is_complete_when_its_last_status_says_so(
    said: list[str], with_generations: bool, without: bool
) -> None:
    """Only a platform that sends generation ids sends statuses; of another one the end of the input is enough."""
    for generation, complete in [(0, with_generations), (None, without)]:
        noted = statuses(generation)
        for kind in said:
            noted.note(status(kind))

        assert noted.complete(ORDERS) is complete


@pytest.mark.parametrize(
    "line",
    [
        status("COMPLETE", "items"),
        status("COMPLETE", "orders", "elsewhere"),
        b'{"type":"TRACE","trace":{"type":"ESTIMATE","estimate":{"name":"orders"}}}',
        b'{"type":"TRACE","trace":{"type":"ERROR","error":{"message":"no"}}}',
        b'{"type":"TRACE","trace":{"type":"WEATHER"}}',
        b'{"type":"TRACE","trace":{"type":"STREAM_STATUS","stream_status":null}}',
    ],
)
def test_traces_about_other_things_change_nothing(line: bytes) -> None:
    noted = statuses(0)

    noted.note(line)

    assert not noted.complete(ORDERS)


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"TRACE"}',
        b'{"type":"TRACE","trace":{}}',
        b'{"type":"TRACE","trace":{"type":"STREAM_STATUS","stream_status":{"status":"COMPLETE"}}}',
        b'{"type":"TRACE","trace":{"type":"STREAM_STATUS","stream_status":{"stream_descriptor":{"name":"orders"}}}}',
    ],
)
def test_a_trace_without_its_shape_is_an_error(line: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        statuses(0).note(line)


@pytest.mark.parametrize(
    ("streams", "namespace", "name", "meant"),
    [
        ([ORDERS], None, "orders", ORDERS),
        ([ORDERS], "", "orders", ORDERS),
        ([ORDERS], "shop", "orders", None),
        ([ORDERS], None, "nothing", None),
        ([SHOP_ITEMS], "shop", "items", SHOP_ITEMS),
        ([SHOP_ITEMS], None, "items", SHOP_ITEMS),
        ([SHOP_ITEMS], "", "items", SHOP_ITEMS),
        ([ITEMS, SHOP_ITEMS], None, "items", ITEMS),
        ([ITEMS, SHOP_ITEMS], "shop", "items", SHOP_ITEMS),
        ([SHOP_ITEMS, StreamId("store", "items")], None, "items", None),
        ([], None, "orders", None),
    ],
)
def test_a_message_means_the_exact_stream_or_without_a_namespace_the_only_one_of_that_name(
    streams: list[StreamId], namespace: str | None, name: str, meant: StreamId | None
) -> None:
    assert find_stream(streams, namespace, name) == meant
