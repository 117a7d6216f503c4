"""A cluster that gives no executors: what is noticed, and what is said."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from destination_datalake.spark.classic.cluster import ExecutorWatch, application_ended, no_executor


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


@pytest.mark.parametrize(
    ("output", "failure_type", "words"),
    [
        ((RUNNING,), "transient_error", ("spark://lake:7077", "60 s", "4g", "3 cores", "12 cores in all")),
        ((EXITED, RUNNING), "config_error", ("EXITED (Command exited)", "10.0.0.7:40001", "spark.driver.host")),
    ],
)
def test_no_executor_is_explained_by_what_was_asked_for_or_by_how_executors_ended(
    output: tuple[str, ...], failure_type: str, words: tuple[str, ...]
) -> None:
    failure = no_executor(APPLICATION, 60, output)

    assert failure.failure.type == failure_type
    assert [word for word in words if word not in str(failure)] == []


@pytest.mark.parametrize(
    ("output", "failure_type", "words"),
    [
        ((EXITED, f"{REMOVED}: FAILED"), "config_error", "they do not reach this driver, at 10.0.0.7:40001"),
        ((EXITED, f"{REMOVED}: KILLED"), "transient_error", "ended this sync's application (Master removed our app"),
        ((UNRESPONSIVE,), "transient_error", "spark://lake:7077 did not answer (All masters are unresponsive!)"),
    ],
)
def test_an_application_that_the_cluster_ends_says_why(output: tuple[str, ...], failure_type: str, words: str) -> None:
    failure = application_ended(APPLICATION, output)

    assert failure is not None
    assert failure.failure.type == failure_type
    assert words in str(failure)


def test_an_application_that_runs_has_not_ended() -> None:
    assert application_ended(APPLICATION, (EXITED, RUNNING)) is None
