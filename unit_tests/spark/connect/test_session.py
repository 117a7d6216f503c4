"""A session on a server: what calls carry, how long they are tried again, and tasks that no executor takes."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from typing import Any

import grpc
import pytest
from pyspark.sql.connect.shell.progress import StageInfo

from destination_datalake.spark.backend import JobsProgress, SparkFailed
from destination_datalake.spark.connect.backend import ConnectBackend
from destination_datalake.spark.connect.session import JobsWatch, NoExecutors, _PatientPolicy, connect
from unit_tests.spark.connect.server import Server
from unit_tests.spark.connect.test_backend import doubled, started


class Refused(grpc.RpcError):
    """An error of gRPC's, as its calls raise it."""

    def __init__(self, status: grpc.StatusCode, text: str = "") -> None:
        super().__init__(text)
        self._status = status

    def code(self) -> grpc.StatusCode:
        return self._status

    def details(self) -> str:
        return str(self)

    def trailing_metadata(self) -> Any:
        """Return that there is none."""
        return None


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_server_that_is_away_is_tried_for_a_time_that_begins_with_the_first_failure() -> None:
    clock = Clock()
    clock.now = 1000
    state = _PatientPolicy(60, clock).to_state()
    gone = Refused(grpc.StatusCode.UNAVAILABLE, "failed to connect to all addresses")

    waits = []
    while state.can_retry(gone):
        wait = state.next_attempt(gone)
        assert wait is not None
        waits.append(wait)
        clock.now += wait / 1000

    assert clock.now - 1000 >= 60
    assert waits == sorted(waits[:4]) + waits[4:]
    assert max(waits) < 6000


@pytest.mark.parametrize(
    "error",
    [
        Refused(grpc.StatusCode.UNAUTHENTICATED, "Invalid token"),
        Refused(grpc.StatusCode.INTERNAL, "Job aborted"),
        Refused(grpc.StatusCode.UNAVAILABLE, "Ssl handshake failed: SSL_ERROR_SSL: WRONG_VERSION_NUMBER"),
        ValueError("not of gRPC"),
    ],
)
def test_what_another_attempt_cannot_mend_is_not_tried_again(error: Exception) -> None:
    assert not _PatientPolicy(60).to_state().can_retry(error)


def test_each_connection_opens_a_new_session() -> None:
    with Server() as server:
        for _ in range(2):
            session = connect(f"{server.url}/;session_id=00112233-4455-4677-8899-aabbccddeeff")
            assert session.version
            session.stop()

        assert len(server.sessions) == 2


def test_a_process_ends_at_once_when_its_server_is_gone() -> None:
    program = (
        "from destination_datalake.spark.connect.session import connect\n"
        "from unit_tests.spark.connect.server import Server\n"
        "with Server() as server:\n"
        "    session = connect(server.url)\n"
        "    assert session.version\n"
    )

    done = subprocess.run([sys.executable, "-c", program], timeout=30, capture_output=True, text=True)

    assert (done.returncode, done.stdout) == (0, "")


def stage(tasks: int, completed: int) -> StageInfo:
    return StageInfo(1, tasks, completed, 0, False)


def test_the_progress_is_the_sum_over_the_jobs_that_run() -> None:
    watch = JobsWatch()

    watch([stage(10, 4)], 2, "one", False)
    watch([stage(3, 3), stage(5, 0)], 1, "two", False)

    assert watch.progress() == JobsProgress(running=3, waiting=4 + 4, ended=7)
    assert watch.most_running == 3
    watch([stage(10, 10)], 0, "one", True)
    assert watch.progress() == JobsProgress(running=1, waiting=4, ended=3)


def test_tasks_that_no_executor_takes_end_their_job_after_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    watch = JobsWatch(clock, patience_seconds=300)
    watch([stage(4, 0)], 0, "job", False)

    clock.now = 61
    with caplog.at_level(logging.WARNING):
        watch([stage(4, 0)], 0, "job", False)
    clock.now = 299
    watch([stage(4, 0)], 0, "job", False)

    assert [record.message for record in caplog.records] == [
        "Spark tasks have waited for an executor for 61 s. Check that the cluster can start executors."
    ]
    clock.now = 301
    with pytest.raises(NoExecutors, match="4 tasks have waited for 301 s"):
        watch([stage(4, 0)], 0, "job", False)


def test_a_job_waits_as_long_as_another_one_is_at_work() -> None:
    clock = Clock()
    watch = JobsWatch(clock, patience_seconds=300)

    for clock.now in (0, 200, 400, 600):
        watch([stage(4, 0)], 4, "busy", False)
        watch([stage(4, 0)], 0, "waits", False)

    assert watch.progress() == JobsProgress(running=4, waiting=4)


def test_a_job_that_comes_after_a_pause_is_not_thought_to_have_waited_since() -> None:
    clock = Clock()
    watch = JobsWatch(clock, patience_seconds=300)
    watch([stage(1, 1)], 0, "early", True)

    clock.now = 1000
    watch([stage(4, 0)], 0, "late", False)

    assert watch.progress() == JobsProgress(waiting=4)


def running(backend: ConnectBackend, progress: JobsProgress) -> bool:
    """Wait until the backend tells this progress."""
    deadline = time.monotonic() + 10
    while backend.progress() != progress and time.monotonic() < deadline:
        time.sleep(0.01)
    return backend.progress() == progress


def test_backend_reports_progress_only_while_jobs_run() -> None:
    with Server() as server:
        backend = started(server)
        server.reports = [(4, 0, 2), (4, 1, 2)]
        results: list[list[int]] = []
        job = threading.Thread(target=lambda: results.append(backend.run(doubled, [1, 2, 3, 4])))
        job.start()

        assert running(backend, JobsProgress(running=2, waiting=1, ended=1))

        server.reported.set()
        job.join()
        assert results == [[2, 4, 6, 8]]
        assert backend.progress() == JobsProgress()
        backend.stop(orderly=True)


def test_a_server_without_executors_ends_the_sync_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JobsWatch.__init__, "__defaults__", (time.monotonic, -1.0))
    with Server() as server:
        server.reports = [(4, 0, 0)]
        server.reported.set()

        with pytest.raises(SparkFailed, match="has no executor for the connector: 4 tasks have waited") as failed:
            started(server)

    assert failed.value.failure.type == "transient_error"
    assert server.released == server.sessions
