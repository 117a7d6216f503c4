"""The outcome of a sync: which failures count, and how they are reported."""

from __future__ import annotations

import json
import os

import pyarrow as pa
import pytest

from destination_datalake.errors import ConnectorError, Failure, MissingPermission
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.protocol.stdout import Stdout
from destination_datalake.sync.outcome import SyncOutcome, failure_of, unexpected
from unit_tests.sync.fakes.messages import failures, parsed

A, B = StreamId(None, "a"), StreamId("shop", "b")
RECORDED = "alice@example.com"


def failure(message: str) -> Failure:
    return Failure(message, "for the log", "transient_error")


def test_a_sync_without_failures_has_succeeded() -> None:
    outcome = SyncOutcome([A, B])

    assert (outcome.is_failure, outcome.is_stopped, outcome.all_failed, outcome.first_failed) == (
        False,
        False,
        False,
        None,
    )


def test_a_sync_has_failed_with_one_stream_and_is_over_with_all() -> None:
    outcome = SyncOutcome([A, B])

    outcome.fail(B, failure("b"))
    after_one = outcome.is_failure, outcome.all_failed, outcome.first_failed
    outcome.fail(A, failure("a"))

    assert after_one == (True, False, B)
    assert (outcome.all_failed, outcome.first_failed, outcome.is_stopped) == (True, B, False)


def test_a_sync_that_is_stopped_is_over() -> None:
    outcome = SyncOutcome([A])

    outcome.stop(failure("all"))

    assert (outcome.is_failure, outcome.is_stopped, outcome.all_failed, outcome.has_failed(A)) == (
        True,
        True,
        True,
        False,
    )


def test_a_failure_contains_the_stack_and_no_text_that_may_quote_a_record() -> None:
    try:
        try:
            pa.array([RECORDED]).cast(pa.int64())
        except pa.ArrowInvalid as cause:
            raise ValueError(RECORDED) from cause
    except ValueError as error:
        of_stream, of_sync = failure_of(error, A, "commit to"), unexpected("read the input", error)

    for failed in (of_stream, of_sync):
        assert "alice" not in f"{failed.message}{failed.detail}"
        assert "test_outcome.py" in failed.detail
        assert "ArrowInvalid" in failed.detail


def test_a_failure_that_an_error_carries_keeps_its_detail_before_the_stack() -> None:
    try:
        raise ConnectorError(Failure("Cannot write.", "AccessDenied: no access", "config_error"))
    except ConnectorError as error:
        failed = failure_of(error, A, "commit to")

    assert failed.message == "Cannot write."
    assert failed.detail.startswith("AccessDenied: no access\n")
    assert "test_outcome.py" in failed.detail


def test_the_first_failure_of_a_stream_and_of_the_sync_is_reported() -> None:
    outcome = SyncOutcome([A, B])
    reader, writer = os.pipe()

    counted = [outcome.fail(B, failure("b")), outcome.fail(B, failure("b again"))]
    outcome.stop(failure("all"))
    outcome.stop(failure("all again"))

    outcome.write_traces(Stdout(writer))
    os.close(writer)
    with os.fdopen(reader, "rb") as traces:
        reported = failures(parsed(traces.read()))
    assert counted == [True, False]
    assert reported == {"b": ("transient_error", "b"), None: ("transient_error", "all")}


@pytest.mark.parametrize(
    ("missing", "command"),
    [
        (MissingPermission("s3:PutObject"), "iam-policy --config FILE` to print"),
        (MissingPermission("SELECT"), "iam-policy --config FILE --grants` to print"),
        (None, None),
    ],
)
def test_a_missing_permission_is_reported_with_how_to_see_all_of_them(
    missing: MissingPermission | None, command: str | None
) -> None:
    outcome = SyncOutcome([A])
    reader, writer = os.pipe()

    outcome.fail(A, Failure("It is denied.", "", "config_error", missing))
    outcome.write_traces(Stdout(writer))

    [line] = os.read(reader, 10_000).splitlines()
    message = json.loads(line)["trace"]["error"]["message"]
    assert message.startswith("It is denied.")
    assert ("iam-policy" in message) == (command is not None)
    assert command is None or command in message
    os.close(reader)
    os.close(writer)
