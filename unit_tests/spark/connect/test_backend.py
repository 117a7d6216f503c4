"""Jobs over Spark Connect, against a server that fails when it is asked to; the server that options name."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import grpc
import pytest
from pyspark.errors.exceptions.connect import SparkConnectGrpcException

from destination_datalake.config.options import Config
from destination_datalake.spark.backend import JobFailed, SparkFailed
from destination_datalake.spark.connect import backend as backends
from destination_datalake.spark.connect import jobs
from destination_datalake.spark.connect.backend import ConnectBackend, Endpoint, server_version
from destination_datalake.spark.connect.session import ErrorKind, RemoteSession, connect, error_kind
from destination_datalake.spark.executors.python import ExecutorPython
from unit_tests.config.examples import options
from unit_tests.spark.connect.server import Server, fails

CLOSED = fails(grpc.StatusCode.INTERNAL, "[INVALID_HANDLE.SESSION_CLOSED] The handle 0 is invalid. Session was closed.")


def doubled(numbers: Iterable[int]) -> Iterator[int]:
    yield from (2 * number for number in numbers)


def broken(_: Iterable[int]) -> Iterator[int]:
    raise ValueError("boom")


def payloads(numbers: Iterable[int]) -> Iterator[tuple[int, bytes]]:
    for number in numbers:
        yield number % 3, bytes([number])


class Joined(NamedTuple):
    partition: int
    content: bytes


def joined(partition: int, payloads: Iterator[bytes]) -> list[Joined]:
    return [Joined(partition, b"".join(sorted(payloads)))]


def sizes(numbers: Iterable[int]) -> Iterator[bytes]:
    yield from (os.urandom(number) for number in numbers)


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


def started(server: Server, conf: dict[str, str] | None = None) -> ConnectBackend:
    backend = ConnectBackend(Endpoint(server.url, server.token), ExecutorPython(), conf or {})
    backend.start()
    return backend


@pytest.fixture
def backend(server: Server) -> Iterator[ConnectBackend]:
    backend = started(server)
    server.entered.clear()
    yield backend
    backend.stop(orderly=True)


def test_a_job_has_a_spark_task_for_each_task_and_results_in_their_order(server: Server) -> None:
    backend = started(server)

    assert backend.run(doubled, list(range(20))) == [2 * number for number in range(20)]
    assert server.partitions[-1] == 20
    assert backend.parallelism() == 2
    backend.stop(orderly=True)
    assert server.released == server.sessions


def test_results_of_many_megabytes_come_back(backend: ConnectBackend) -> None:
    results = backend.run(sizes, [3_000_000, 0, 1])

    assert [len(result) for result in results] == [3_000_000, 0, 1]


def test_tasks_that_are_too_large_for_a_request_are_several_jobs(
    server: Server, backend: ConnectBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs.jobs_of, "__defaults__", (1,))

    assert backend.run(doubled, [1, 2, 3]) == [2, 4, 6]
    assert server.partitions[-3:] == [1, 1, 1]


def test_a_shuffle_has_a_spark_task_for_each_partition(server: Server, backend: ConnectBackend) -> None:
    results = backend.exchange(payloads, list(range(9)), joined, 5)

    assert results == [(0, bytes([0, 3, 6])), (1, bytes([1, 4, 7])), (2, bytes([2, 5, 8]))]
    assert server.partitions[-1] == 5


def test_a_session_that_the_server_closes_is_replaced_and_its_job_run_again(
    server: Server, backend: ConnectBackend
) -> None:
    server.executions = [CLOSED]

    assert backend.run(doubled, [1, 2]) == [2, 4]
    assert len(server.sessions) == 2
    assert backend.ended() is None


def test_jobs_that_lose_one_session_at_once_get_one_other(server: Server, backend: ConnectBackend) -> None:
    barrier = threading.Barrier(2)

    def closed(context: Any) -> None:
        barrier.wait(10)
        CLOSED(context)

    server.executions = [closed, closed]
    results: list[list[int]] = []
    jobs = [threading.Thread(target=lambda: results.append(backend.run(doubled, [1, 2]))) for _ in range(2)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()

    assert results == [[2, 4], [2, 4]]
    assert len(server.sessions) == 2


def test_a_session_that_ends_while_it_is_opened_is_replaced(server: Server) -> None:
    server.executions = [CLOSED]

    backend = started(server)

    assert backend.run(doubled, [1]) == [2]
    assert len(server.sessions) == 2
    backend.stop(orderly=True)


def test_sessions_that_end_again_and_again_end_the_sync(server: Server, backend: ConnectBackend) -> None:
    # Each new session runs the probe, and then loses the job.
    server.executions = [CLOSED, None, CLOSED, None, CLOSED, None, CLOSED]

    with pytest.raises(SparkFailed, match="ended repeatedly"):
        backend.run(doubled, [1])

    assert len(server.sessions) == 1 + backends._MAX_LOST_SESSIONS
    assert isinstance(backend.ended(), SparkFailed)
    with pytest.raises(SparkFailed, match="ended repeatedly"):
        backend.run(doubled, [1])


def test_a_job_that_fails_leaves_spark_to_others(backend: ConnectBackend) -> None:
    with pytest.raises(JobFailed) as failed:
        backend.run(broken, [1])

    assert "boom" in failed.value.detail
    assert backend.ended() is None
    assert backend.run(doubled, [1]) == [2]


@pytest.mark.parametrize(("sent", "accepted"), [("open-sesame", True), ("guess", False)])
def test_a_server_is_used_with_its_token(sent: str, *, accepted: bool) -> None:
    with Server(token="open-sesame") as server:
        backend = ConnectBackend(Endpoint(server.url, sent), ExecutorPython(), {})

        if accepted:
            backend.start()
            backend.stop(orderly=True)
        else:
            with pytest.raises(SparkFailed, match=r"refuses access \(Invalid token\). Correct spark.token.") as refused:
                backend.start()
            assert refused.value.failure.type == "config_error"
            assert "guess" not in refused.value.failure.message


def test_a_property_that_the_server_does_not_let_sessions_change_is_refused_by_name(server: Server) -> None:
    server.static = {"spark.executor.memory"}

    with pytest.raises(SparkFailed, match=r"Cannot set spark.executor.memory from spark.conf") as refused:
        started(server, {"spark.executor.memory": "4g"})

    assert refused.value.failure.type == "config_error"


def test_properties_of_the_user_are_the_session_s(server: Server) -> None:
    backend = started(server, {"spark.sql.session.timeZone": "UTC"})

    assert server.settings["spark.sql.session.timeZone"] == "UTC"
    assert server.settings["spark.sql.adaptive.enabled"] == "false"
    backend.stop(orderly=True)


def test_executors_that_dynamic_allocation_may_add_are_counted(server: Server) -> None:
    server.settings = {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.maxExecutors": "5",
        "spark.executor.cores": "4",
    }

    backend = started(server)

    assert backend.parallelism() == 20
    backend.stop(orderly=True)


def test_stopping_ends_a_job_that_waits(server: Server) -> None:
    backend = started(server)
    server.entered.clear()
    ended = threading.Event()
    server.executions = [lambda context: (ended.wait(10), CLOSED(context))[1]]
    raised: list[BaseException] = []

    def run() -> None:
        try:
            backend.run(doubled, [1])
        except BaseException as error:
            raised.append(error)

    job = threading.Thread(target=run)
    job.start()
    server.entered.wait(10)
    backend.stop(orderly=True)
    ended.set()
    job.join(10)

    assert [str(error) for error in raised] == ["Spark was stopped."]
    assert len(server.sessions) == 1


def test_stopping_ends_a_start_that_waits_for_executors(server: Server) -> None:
    waits = threading.Event()
    server.executions = [lambda context: (waits.wait(10), CLOSED(context))[1]]
    backend = ConnectBackend(Endpoint(server.url), ExecutorPython(), {})
    raised: list[BaseException] = []

    def start() -> None:
        try:
            backend.start()
        except BaseException as error:
            raised.append(error)

    starting = threading.Thread(target=start)
    starting.start()
    server.entered.wait(10)
    backend.stop(orderly=False)
    starting.join(10)
    waits.set()

    assert [str(error) for error in raised] == ["Spark was stopped."]
    assert server.released == server.sessions


@pytest.mark.parametrize("address", ["sc://lake/path", "sc://lake:port", "sc://lake/;use_ssl"])
def test_invalid_address_is_reported_before_a_request(address: str) -> None:
    with pytest.raises(SparkFailed, match="is not a valid address of a Spark Connect server") as refused:
        ConnectBackend(Endpoint(address, None), ExecutorPython(), {}).start()

    assert refused.value.failure.type == "config_error"


def config(**spark: Any) -> Config:
    return Config.parse(options(spark=spark))


def test_messages_name_the_server_without_its_parameters() -> None:
    spark = config(remote="sc://lake:15002/;use_ssl=true").spark

    assert Endpoint.from_options(spark).name == "the Spark Connect server sc://lake:15002"


def test_a_check_opens_a_session_and_ends_it() -> None:
    with Server(version="4.0.5", token="open-sesame") as server:
        assert server_version(config(remote=server.url, token="open-sesame")) == "4.0.5"

        assert server.released == server.sessions
        assert "ExecutePlan" not in server.calls


def test_check_reports_a_wrong_token_and_an_unreachable_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "_CHECK_SECONDS", 0.1)
    with Server(token="open-sesame") as server, pytest.raises(SparkFailed, match=r"Correct spark\.token"):
        server_version(config(remote=server.url, token="guess"))

    with pytest.raises(SparkFailed, match="did not respond") as unreachable:
        server_version(config(remote=server.url))

    assert unreachable.value.failure.type == "transient_error"


def test_a_server_that_accepts_calls_and_does_not_respond_fails_the_check_and_the_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    responding = threading.Event()

    class Hanging(Server):
        def AnalyzePlan(self, request: Any, context: Any) -> Any:  # noqa: N802
            responding.wait(20)
            return super().AnalyzePlan(request, context)

    monkeypatch.setattr(backends, "_CHECK_SECONDS", 0.2)
    begun = time.monotonic()
    with Hanging() as server:
        with pytest.raises(SparkFailed, match="did not respond") as in_check:
            server_version(config(remote=server.url))
        session = connect(server.url, response_seconds=0.2)
        with pytest.raises(SparkConnectGrpcException) as in_session:
            RemoteSession.open(session, ExecutorPython(), {})
        responding.set()

    assert in_check.value.failure.type == "transient_error"
    assert error_kind(in_session.value) is ErrorKind.UNREACHABLE
    assert time.monotonic() - begun < 10.0


# --- Jobs that run while another one loses their session


@pytest.mark.parametrize("lost_before", [0, backends._MAX_LOST_SESSIONS - 1])
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


def test_other_jobs_do_not_wait_until_a_lost_session_is_closed() -> None:
    closing, closed = threading.Event(), threading.Event()

    class SlowToClose(Server):
        def Interrupt(self, request: Any, context: Any) -> Any:  # noqa: N802
            closing.set()
            closed.wait(20)
            return super().Interrupt(request, context)

    with SlowToClose() as server, ThreadPoolExecutor(2) as threads:
        backend = ConnectBackend(Endpoint(server.url), ExecutorPython(), {})
        backend.start()
        server.executions = [CLOSED]
        losing = threads.submit(backend.run, doubled, [1])
        closing.wait(10)

        assert threads.submit(backend.run, doubled, [2]).result(10) == [4]
        assert not losing.done()
        closed.set()
        assert losing.result(30) == [2]
        backend.stop(orderly=True)


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
