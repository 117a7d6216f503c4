"""Intake: what chunks of input mean for a sync, in order."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import pytest

from destination_datalake.protocol.catalog import AmbiguousStream, Stream, StreamId
from destination_datalake.protocol.messages import MalformedLine
from destination_datalake.protocol.states import State
from destination_datalake.sync.intake import Intake, Statuses, StreamRecords, UnexpectedMessage
from unit_tests.sync.fakes.messages import record, state

STREAMS = tuple(Stream(StreamId(None, name), {}, False, 1, 0, None) for name in ("a", "b"))


class Reading:
    """An intake for the streams a and b, and what it did besides."""

    def __init__(self) -> None:
        self.statuses = Statuses(STREAMS)
        self.warnings: list[str] = []
        self._intake = Intake([stream.id for stream in STREAMS], self.statuses, self.warnings.append)

    def read(self, *lines: bytes) -> list[Any]:
        """Return what the lines of one chunk mean: counts of records by stream, and the scopes of states."""
        return list(self.steps(lines))

    def steps(self, lines: Sequence[bytes]) -> Iterator[Any]:
        """Yield the same as `read` returns."""
        return map(_step, self._intake.steps(b"".join(line + b"\n" for line in lines)))


def _step(step: Mapping[StreamId, StreamRecords] | State) -> Any:
    if isinstance(step, State):
        return None if step.stream is None else step.stream.name
    return {stream.name: records.count for stream, records in step.items()}


@pytest.fixture
def intake() -> Reading:
    return Reading()


def trace(kind: str, name: str = "orders", namespace: str | None = None) -> bytes:
    descriptor = {"name": name} if namespace is None else {"name": name, "namespace": namespace}
    body = {"stream_descriptor": descriptor, "status": kind}
    return json.dumps(
        {"type": "TRACE", "trace": {"type": "STREAM_STATUS", "emitted_at": 1, "stream_status": body}}
    ).encode()


def test_records_between_two_states_are_gathered_by_stream(intake: Reading) -> None:
    lines = [record("a"), record("b"), record("a"), state(1, "a"), state(2, None), record("b")]

    assert intake.read(*lines) == [{"a": 2, "b": 1}, "a", None, {"b": 1}]


def test_the_bytes_of_records_are_those_of_the_chunk(intake: Reading) -> None:
    lines = [record("a", padding) + b"\n" for padding in range(3)]

    (read,) = Intake([STREAMS[0].id], intake.statuses, intake.warnings.append).steps(b"".join(lines))

    assert not isinstance(read, State)
    assert b"".join(read[STREAMS[0].id].pieces) == b"".join(lines)


@pytest.mark.parametrize(
    ("refused", "reason"),
    [
        (b"{", "Line 3 of the input"),
        (record("c"), "Line 3 of the input is a RECORD of stream c"),
        (state(1, "c"), "Line 3 of the input is a STATE of stream c"),
        (b'{"type":"STATE","state":{"type":"STREAM"}}', "Line 3 of the input is a STATE without the member"),
        (b'{"type":"TRACE"}', "Line 3 of the input is an invalid TRACE"),
    ],
    ids=["no JSON", "record", "state", "stateless", "trace"],
)
def test_a_line_is_refused_after_everything_before_it_was_taken(intake: Reading, refused: bytes, reason: str) -> None:
    steps: list[Any] = []

    with pytest.raises((MalformedLine, UnexpectedMessage), match=reason):
        steps.extend(intake.steps([record("a"), record("a"), refused, record("a")]))

    assert steps == [{"a": 2}]


def test_a_stream_status_is_noted(intake: Reading) -> None:
    assert intake.read(trace("COMPLETE", "a"), trace("INCOMPLETE", "b")) == []

    assert [intake.statuses.is_complete(stream.id) for stream in STREAMS] == [True, False]


def test_an_unknown_type_of_message_is_warned_of_once(intake: Reading) -> None:
    lines: Sequence[bytes] = [b'{"type":"NEWS"}', b'{"type":"NEWS"}', b'{"type":"LOG","log":{}}', b'{"type":"MORE"}']

    assert intake.read(*lines) == []

    assert [warning.split("'")[1] for warning in intake.warnings] == ["NEWS", "MORE"]


def test_warnings_of_unknown_types_are_limited_in_number_and_length(intake: Reading) -> None:
    for number in range(1000):
        intake.read(f'{{"type":"{number:03}{"X" * 1_000}"}}'.encode())

    assert len(intake.warnings) == 20
    assert max(map(len, intake.warnings)) < 200
    assert "does not report further unknown types" in intake.warnings[-1]


# --- Statuses of streams --------------------------------------------------------------------------------------------


ORDERS = StreamId(None, "orders")


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
            statuses_read.read_trace(trace(kind))

        assert statuses_read.is_complete(ORDERS) is complete


def error(name: str | None = None) -> bytes:
    descriptor = {} if name is None else {"stream_descriptor": {"name": name}}
    return json.dumps({"type": "TRACE", "trace": {"type": "ERROR", "error": {"message": "no", **descriptor}}}).encode()


@pytest.mark.parametrize(
    ("traces", "complete"),
    [
        ([error("a")], {"b"}),
        ([error("a"), trace("COMPLETE", "a")], {"a", "b"}),
        ([trace("COMPLETE", "a"), error("a")], {"b"}),
        ([error()], set()),
        ([trace("COMPLETE", "a"), error()], {"a"}),
        ([error(), trace("COMPLETE", "a")], {"a"}),
        ([error("items")], {"a", "b"}),
        ([b'{"type":"TRACE","trace":{"type":"ERROR","error":{"message":"no","stream_descriptor":null}}}'], set()),
        ([b'{"type":"TRACE","trace":{"type":"ERROR"}}'], set()),
    ],
)
def test_a_stream_with_an_error_of_the_source_is_incomplete(traces: list[bytes], complete: set[str]) -> None:
    streams = [StreamId(None, name) for name in ("a", "b")]
    statuses_read = Statuses([Stream(stream, {}, False, None, None, None) for stream in streams])

    for line in traces:
        statuses_read.read_trace(line)

    assert {stream.name for stream in streams if statuses_read.is_complete(stream)} == complete


@pytest.mark.parametrize(
    "line",
    [
        trace("COMPLETE", "items"),
        trace("COMPLETE", "orders", "elsewhere"),
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

    statuses_read.read_trace(trace("COMPLETE").replace(b'"emitted_at": 1', b'"emitted_at": 1,' + irregular))

    assert statuses_read.is_complete(ORDERS)


def test_a_status_that_several_streams_match_is_refused() -> None:
    streams = [Stream(StreamId(namespace, "orders"), {}, False, 0, None, None) for namespace in ("north", "south")]

    with pytest.raises(AmbiguousStream, match="2 streams with this name"):
        Statuses(streams).read_trace(trace("COMPLETE"))


def test_a_trace_that_is_nested_too_deeply_is_ignored() -> None:
    statuses_read = statuses(0)

    statuses_read.read_trace(trace("COMPLETE").replace(b'"emitted_at": 1', b'"x":' + b"[" * 5000 + b"]" * 5000))

    assert not statuses_read.is_complete(ORDERS)
