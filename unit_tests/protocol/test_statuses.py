"""Which streams the source completed."""

from __future__ import annotations

import json

import msgspec
import pytest

from destination_datalake.protocol.catalog import AmbiguousStream, Stream, StreamId
from destination_datalake.protocol.statuses import Statuses

ORDERS = StreamId(None, "orders")


def status(kind: str, name: str = "orders", namespace: str | None = None) -> bytes:
    descriptor = {"name": name} if namespace is None else {"name": name, "namespace": namespace}
    body = {"stream_descriptor": descriptor, "status": kind}
    return json.dumps(
        {"type": "TRACE", "trace": {"type": "STREAM_STATUS", "emitted_at": 1, "stream_status": body}}
    ).encode()


def statuses(generation: int | None) -> Statuses:
    return Statuses([Stream(ORDERS, {}, False, generation, None, None)])


@pytest.mark.parametrize(
    ("kinds", "with_generations", "without"),
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
def test_a_stream_is_complete_if_its_last_final_status_is(
    kinds: list[str], with_generations: bool, without: bool
) -> None:
    """Without generation ids the platform sends no statuses, and the end of the input is enough."""
    for generation, complete in [(0, with_generations), (None, without)]:
        statuses_read = statuses(generation)
        for kind in kinds:
            statuses_read.read_trace(status(kind))

        assert statuses_read.is_complete(ORDERS) is complete


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
def test_other_traces_are_ignored(line: bytes) -> None:
    statuses_read = statuses(0)

    statuses_read.read_trace(line)

    assert not statuses_read.is_complete(ORDERS)


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"TRACE"}',
        b'{"type":"TRACE","trace":{}}',
        b'{"type":"TRACE","trace":{"type":"STREAM_STATUS","stream_status":{"status":"COMPLETE"}}}',
        b'{"type":"TRACE","trace":{"type":"STREAM_STATUS","stream_status":{"stream_descriptor":{"name":"orders"}}}}',
    ],
)
def test_a_trace_without_required_members_is_an_error(line: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        statuses(0).read_trace(line)


@pytest.mark.parametrize("irregular", [b'"x":NaN', b'"x":"\\ud83d"', b'"\\ud83d":1', b'"x":1e400'])
def test_a_status_is_read_whatever_else_the_trace_contains(irregular: bytes) -> None:
    statuses_read = statuses(0)

    statuses_read.read_trace(status("COMPLETE").replace(b'"emitted_at": 1', b'"emitted_at": 1,' + irregular))

    assert statuses_read.is_complete(ORDERS)


def test_a_status_that_several_streams_match_is_refused() -> None:
    streams = [Stream(StreamId(namespace, "orders"), {}, False, 0, None, None) for namespace in ("north", "south")]

    with pytest.raises(AmbiguousStream, match="2 streams of that name"):
        Statuses(streams).read_trace(status("COMPLETE"))


def test_a_trace_that_is_nested_too_deeply_is_ignored() -> None:
    statuses_read = statuses(0)

    statuses_read.read_trace(status("COMPLETE").replace(b'"emitted_at": 1', b'"x":' + b"[" * 5000 + b"]" * 5000))

    assert not statuses_read.is_complete(ORDERS)
