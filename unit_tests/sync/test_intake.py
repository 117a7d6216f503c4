"""Intake: what chunks of input mean for a sync, in order."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from destination_datalake.protocol.catalog import Stream, StreamId
from destination_datalake.protocol.messages import MalformedLine
from destination_datalake.protocol.states import State
from destination_datalake.protocol.statuses import Statuses
from destination_datalake.sync.intake import Intake, RecordRuns, RefusedMessage
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


def _step(step: RecordRuns | State) -> Any:
    if isinstance(step, State):
        return None if step.stream is None else step.stream.name
    return {stream.name: records.count for stream, records in step.streams.items()}


@pytest.fixture
def intake() -> Reading:
    return Reading()


def status(stream: str, value: str) -> bytes:
    stream_status = {"stream_descriptor": {"name": stream}, "status": value}
    trace = {"type": "STREAM_STATUS", "emitted_at": 1, "stream_status": stream_status}
    return json.dumps({"type": "TRACE", "trace": trace}).encode()


def test_records_between_two_states_are_gathered_by_stream(intake: Reading) -> None:
    lines = [record("a"), record("b"), record("a"), state(1, "a"), state(2, None), record("b")]

    assert intake.read(*lines) == [{"a": 2, "b": 1}, "a", None, {"b": 1}]


def test_the_bytes_of_records_are_those_of_the_chunk(intake: Reading) -> None:
    lines = [record("a", padding) + b"\n" for padding in range(3)]

    (runs,) = Intake([STREAMS[0].id], intake.statuses, intake.warnings.append).steps(b"".join(lines))

    assert isinstance(runs, RecordRuns)
    assert b"".join(runs.streams[STREAMS[0].id].pieces) == b"".join(lines)


@pytest.mark.parametrize(
    ("refused", "reason"),
    [
        (b"{", "Line 3 of the input"),
        (record("c"), "Line 3 of the input is a record for stream c"),
        (state(1, "c"), "Line 3 of the input is a state for stream c"),
        (b'{"type":"STATE","state":{"type":"STREAM"}}', "Line 3 of the input is a STATE without the member"),
        (b'{"type":"TRACE"}', "Line 3 of the input is a TRACE that cannot be read"),
    ],
    ids=["no JSON", "record", "state", "stateless", "trace"],
)
def test_a_line_is_refused_after_everything_before_it_was_taken(intake: Reading, refused: bytes, reason: str) -> None:
    steps: list[Any] = []

    with pytest.raises((MalformedLine, RefusedMessage), match=reason):
        steps.extend(intake.steps([record("a"), record("a"), refused, record("a")]))

    assert steps == [{"a": 2}]


def test_a_stream_status_is_noted(intake: Reading) -> None:
    assert intake.read(status("a", "COMPLETE"), status("b", "INCOMPLETE")) == []

    assert [intake.statuses.is_complete(stream.id) for stream in STREAMS] == [True, False]


def test_an_unknown_type_of_message_is_warned_of_once(intake: Reading) -> None:
    lines: Sequence[bytes] = [b'{"type":"NEWS"}', b'{"type":"NEWS"}', b'{"type":"LOG","log":{}}', b'{"type":"MORE"}']

    assert intake.read(*lines) == []

    assert [warning.split("'")[1] for warning in intake.warnings] == ["NEWS", "MORE"]
