"""A cluster that gives no executors: what is noticed, and what is said."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from destination_datalake.spark.classic.cluster import ExecutorWatch, application_ended, executors_end, no_executor


class Executors:
    """Counts of registered executors, poll by poll; the last one stays."""

    def __init__(self, *counts: int) -> None:
        self._counts: Iterator[int] = iter(counts)
        self._now = 0
        self.polls = 0
        self.polled = threading.Event()

    def __call__(self) -> int:
        self._now = next(self._counts, self._now)
        self.polls += 1
        if self.polls >= 50:
            self.polled.set()
        return self._now


def watch(executors: Callable[[], int], polls: int) -> tuple[ExecutorWatch, threading.Event]:
    given_up = threading.Event()
    return ExecutorWatch(executors, given_up.set, patience=polls / 1000, every=1 / 1000), given_up


def test_a_job_without_executors_is_given_up_after_a_while() -> None:
    executors = Executors(0)
    watched, given_up = watch(executors, polls=7)

    with watched.job():
        assert given_up.wait(30)

    assert watched.gave_up
    assert executors.polls == 7


@pytest.mark.parametrize("counts", [(1,), (0, 0, 0, 0, 0, 0, 2), (1, 0, 0, 0, 0, 0, 0, 1)])
def test_a_job_is_left_alone_as_soon_as_an_executor_comes(counts: tuple[int, ...]) -> None:
    executors = Executors(*counts)
    watched, given_up = watch(executors, polls=7)

    with watched.job():
        assert executors.polled.wait(30)

    assert not watched.gave_up
    assert not given_up.is_set()


def test_executors_that_all_go_away_and_stay_away_end_the_job_too() -> None:
    watched, given_up = watch(Executors(2, 2, 1, 0), polls=7)

    with watched.job():
        assert given_up.wait(30)


def test_a_spark_that_does_not_answer_is_not_given_up_here() -> None:
    asked = threading.Event()

    def executors() -> int:
        asked.set()
        raise ConnectionRefusedError

    watched, given_up = watch(executors, polls=1)

    with watched.job():
        assert asked.wait(30)

    assert not watched.gave_up
    assert not given_up.is_set()


APPLICATION = {
    "spark.master": "spark://lake:7077",
    "spark.driver.host": "10.0.0.7",
    "spark.driver.port": "40001",
    "spark.executor.memory": "4g",
    "spark.executor.cores": "3",
    "spark.cores.max": "12",
}
EXITED = "10:00:01 INFO StandaloneAppClient$ClientEndpoint: Executor updated: app-1/0 is now EXITED (Command exited)"
RUNNING = "10:00:02 INFO StandaloneAppClient$ClientEndpoint: Executor updated: app-1/1 is now RUNNING"
REMOVED = (
    "10:00:03 ERROR StandaloneSchedulerBackend: Application has been killed. Reason: Master removed our application"
)
UNRESPONSIVE = "ERROR StandaloneSchedulerBackend: Application has been killed. Reason: All masters are unresponsive!"


def test_no_executor_is_told_with_what_was_asked_for() -> None:
    failure = no_executor(APPLICATION, 60)

    assert failure.failure.type == "transient_error"
    assert "spark://lake:7077 has had no executor for this sync for 60 s" in str(failure)
    assert "executors with 4g of memory and 3 cores, 12 cores in all" in str(failure)


def test_executors_that_end_before_they_run_are_told_with_the_driver_s_address() -> None:
    failure = executors_end(APPLICATION, (EXITED, RUNNING))

    assert failure is not None
    assert failure.failure.type == "config_error"
    assert "EXITED (Command exited)" in str(failure)
    assert "they do not reach this driver, at 10.0.0.7:40001" in str(failure)
    assert executors_end(APPLICATION, (RUNNING,)) is None


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (
            (f"{REMOVED}: KILLED",),
            "spark://lake:7077 has ended this sync's application (Master removed our application",
        ),
        ((EXITED, f"{REMOVED}: FAILED"), "FAILED; the last executor to end: EXITED (Command exited)"),
        ((UNRESPONSIVE,), "spark://lake:7077 did not answer (All masters are unresponsive!)"),
    ],
)
def test_an_application_that_the_cluster_ends_says_why(output: tuple[str, ...], words: str) -> None:
    failure = application_ended(APPLICATION, output)

    assert failure is not None
    assert failure.failure.type == "transient_error"
    assert words in str(failure)


def test_an_application_that_runs_has_not_ended() -> None:
    assert application_ended(APPLICATION, (EXITED, RUNNING)) is None
