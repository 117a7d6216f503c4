"""Termination: SIGTERM as a request to end."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator

import pytest

from destination_datalake.termination import Termination


@pytest.fixture
def termination() -> Iterator[Termination]:
    termination = Termination()
    yield termination
    termination.close()


@pytest.fixture
def many_open_files() -> Iterator[None]:
    """All descriptors below 1024 are in use."""
    with contextlib.ExitStack() as files:
        while files.enter_context(open(os.devnull, "rb")).fileno() < 1024:  # noqa: PTH123 (a device)
            pass
        yield


def test_sigterm_requests_the_end_and_does_not_end_the_process(termination: Termination) -> None:
    before = termination.requested

    os.kill(os.getpid(), signal.SIGTERM)

    assert (before, termination.requested) == (False, True)


def test_a_callback_is_called_at_the_request_or_at_once_if_it_was_made(termination: Termination) -> None:
    calls: list[str] = []
    termination.on_request(lambda: calls.append("before"))

    termination.request()
    termination.on_request(lambda: calls.append("after"))

    assert calls == ["before", "after"]


def test_any_number_of_requests_can_be_made(termination: Termination) -> None:
    for _ in range(100_000):  # More than a pipe holds.
        termination.request()

    assert termination.requested


@pytest.mark.usefixtures("many_open_files")
def test_a_process_with_many_open_files_can_be_terminated() -> None:
    termination = Termination()
    assert (termination.descriptor >= 1024, termination.requested) == (True, False)

    termination.request()

    assert termination.requested
    termination.close()


def test_closing_restores_the_previous_handler() -> None:
    previous = signal.getsignal(signal.SIGTERM)

    Termination().close()

    assert signal.getsignal(signal.SIGTERM) is previous
