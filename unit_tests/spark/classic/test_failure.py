"""What is reported of a Spark with a driver of our own that cannot run: its Java, its start, its cluster."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from destination_datalake.spark.backend import SparkFailed
from destination_datalake.spark.classic.backend import (
    ExecutorWatch,
    application_ended,
    executors_end,
    no_executor,
    start_failure,
)
from destination_datalake.spark.classic.jvm import require_java
from destination_datalake.spark.engine import start_local_engine


def put_java(folder: Path, settings: str) -> str:
    """A `java` that prints these settings, and where it is."""
    command = folder / "bin" / "java"
    command.parent.mkdir(parents=True)
    command.write_text(f"#!/bin/sh\necho '{settings}' >&2\n")
    command.chmod(0o755)
    return str(command)


@pytest.mark.parametrize("version", [17, 21])
def test_java_home_takes_precedence_over_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    put_java(tmp_path / "home", f"    java.specification.version = {version}")
    put_java(tmp_path / "other", "    java.specification.version = 11")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path / "other" / "bin"))

    require_java()


def test_path_is_searched_without_java_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_java(tmp_path, "    java.specification.version = 25")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))

    require_java()


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"PATH": "/nowhere"}, "no command java was found"),
        ({"JAVA_HOME": "/nowhere"}, "/nowhere/bin/java cannot be run"),
    ],
)
def test_a_spark_that_is_started_without_java_names_the_remedy_and_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], words: str
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    with pytest.raises(SparkFailed, match="Install a Java runtime 17 or newer") as refused:
        start_local_engine()

    assert refused.value.failure.type == "config_error"
    assert words in refused.value.failure.message
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("says", "words"),
    [
        ("    java.specification.version = 11", "is Java 11"),
        ("    java.specification.version = 1.8", "is Java 8"),
        ("who are you", "does not print its version"),
    ],
)
def test_unusable_java_is_reported_with_its_command_and_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, words: str
) -> None:
    command = put_java(tmp_path, says)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    with pytest.raises(SparkFailed, match=words) as raised:
        require_java()

    assert raised.value.failure.type == "config_error"
    assert command in str(raised.value)
    assert "17 or newer" in str(raised.value)


@pytest.mark.parametrize("home", ["/nowhere", ""])
def test_missing_java_is_reported_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str) -> None:
    monkeypatch.setenv("JAVA_HOME", home)
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(SparkFailed, match="JAVA_HOME") as raised:
        require_java()

    assert raised.value.failure.type == "config_error"


NOISE = ("WARNING: Using incubator modules: jdk.incubator.vector", 'Setting default log level to "WARN".')


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Java that Spark could run on."""
    command = tmp_path / "bin" / "java"
    command.parent.mkdir()
    command.write_text("#!/bin/sh\necho 'java.specification.version = 17'\n")
    command.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))


class Thrown(Exception):
    """What py4j raises for an exception of the JVM."""

    def __init__(self, java_exception: str) -> None:
        super().__init__("An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.")
        self.java_exception = java_exception


@pytest.mark.usefixtures("java")
@pytest.mark.parametrize(
    ("error", "output", "master", "failure_type", "words"),
    [
        (
            Thrown("java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.\n\tat Spark"),
            NOISE,
            "spark://lake:7077",
            "transient_error",
            "spark://lake:7077 did not respond",
        ),
        (
            Thrown("java.net.BindException: Cannot assign requested address"),
            NOISE,
            "local[*]",
            "config_error",
            "Cannot assign requested address. Correct spark.master or spark.conf.",
        ),
        (
            RuntimeError("gateway"),
            (*NOISE, "# There is insufficient memory for the Java Runtime Environment to continue."),
            "local[*]",
            "transient_error",
            "or spark.driver.memory (in spark.conf)",
        ),
        (
            RuntimeError("no gateway"),
            NOISE,
            "local[*]",
            "transient_error",
            "start: RuntimeError: no gateway. See the log for details.",
        ),
    ],
    ids=["master", "address", "memory", "no output"],
)
def test_start_failure_has_reason_and_remedy(
    error: Exception, output: tuple[str, ...], master: str, failure_type: str, words: str
) -> None:
    failure = start_failure(error, output, master)

    assert words in str(failure)
    assert failure.failure.type == failure_type


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
def test_job_continues_once_an_executor_registers(counts: tuple[int, ...]) -> None:
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


def test_missing_executor_is_reported_with_the_requested_resources() -> None:
    failure = no_executor(APPLICATION, 60)

    assert failure.failure.type == "transient_error"
    assert "spark://lake:7077 started no executor for this sync within 60 s" in str(failure)
    assert "executors with 4g of memory and 3 cores, at most 12 cores in total" in str(failure)


def test_executors_that_exit_early_are_reported_with_the_driver_s_address() -> None:
    failure = executors_end(APPLICATION, (EXITED, RUNNING))

    assert failure is not None
    assert failure.failure.type == "config_error"
    assert "EXITED (Command exited)" in str(failure)
    assert "the executors cannot reach this driver at 10.0.0.7:40001" in str(failure)
    assert executors_end(APPLICATION, (RUNNING,)) is None


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (
            (f"{REMOVED}: KILLED",),
            "spark://lake:7077 ended this sync's application (Master removed our application",
        ),
        ((EXITED, f"{REMOVED}: FAILED"), "FAILED; last ended executor: EXITED (Command exited)"),
        ((UNRESPONSIVE,), "spark://lake:7077 did not respond (All masters are unresponsive!)"),
    ],
)
def test_ended_application_reports_the_cluster_s_reason(output: tuple[str, ...], words: str) -> None:
    failure = application_ended(APPLICATION, output)

    assert failure is not None
    assert failure.failure.type == "transient_error"
    assert words in str(failure)


def test_an_application_that_runs_has_not_ended() -> None:
    assert application_ended(APPLICATION, (EXITED, RUNNING)) is None
