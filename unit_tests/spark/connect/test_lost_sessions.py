"""Jobs that run while another one loses their session: the session is replaced, and all of them run in the next."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from destination_datalake.spark.backend import SparkFailed
from destination_datalake.spark.connect import backend as backends
from destination_datalake.spark.connect.backend import ConnectBackend, Endpoint
from destination_datalake.spark.executors.python import ExecutorPython
from unit_tests.spark.connect.server import Server, fails

CLOSED = fails(grpc.StatusCode.INTERNAL, "[INVALID_HANDLE.SESSION_CLOSED] The handle 0 is invalid. Session was closed.")


def doubled(numbers: Iterable[int]) -> Iterator[int]:
    yield from (2 * number for number in numbers)


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


@pytest.fixture
def backend(server: Server) -> Iterator[ConnectBackend]:
    backend = ConnectBackend(Endpoint(server.url), ExecutorPython(), {})
    backend.start()
    server.entered.clear()
    yield backend
    backend.stop(orderly=True)


@pytest.mark.parametrize("lost_before", [0, backends._SESSIONS - 1])
def test_a_job_whose_session_another_job_has_lost_is_run_again(
    lost_before: int, server: Server, backend: ConnectBackend
) -> None:
    backend._lost = lost_before
    ended = threading.Event()

    def run_long(_context: Any) -> None:
        ended.wait(10)

    server.executions = [run_long, CLOSED]
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(backend.run, doubled, [1, 2])
        server.entered.wait(10)

        assert backend.run(doubled, [3]) == [6]
        assert running.result(30) == [2, 4]
        ended.set()

    assert len(server.sessions) == 2
    assert backend.ended() is None


def test_how_many_tasks_run_at_once_is_known_while_a_session_is_replaced(
    server: Server, backend: ConnectBackend
) -> None:
    opening, opened = threading.Event(), threading.Event()

    def open_late(_context: Any) -> None:
        opening.set()
        opened.wait(10)

    server.executions = [CLOSED, open_late]
    with ThreadPoolExecutor(2) as threads:
        running = threads.submit(backend.run, doubled, [1, 2])
        opening.wait(10)
        asked = threads.submit(backend.parallelism)

        assert asked.result(5) == 2, "who asks may hold the lock that reading needs"
        assert not running.done()
        opened.set()
        assert running.result(30) == [2, 4]


def test_no_session_is_opened_for_a_sync_that_has_ended_while_the_last_one_was_closed() -> None:
    class Last(Server):
        """Ends the sync in the moment in which its session is closed."""

        def ReleaseSession(self, request: Any, context: Any) -> Any:  # noqa: N802
            ending._stopping.set()
            return super().ReleaseSession(request, context)

    with Last() as server:
        ending = ConnectBackend(Endpoint(server.url), ExecutorPython(), {})
        ending.start()
        server.executions = [CLOSED]

        with pytest.raises(SparkFailed, match="was stopped"):
            ending.run(doubled, [1])

        assert len(server.sessions) == 1
