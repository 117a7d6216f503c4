"""What is said of a Spark that did not start, and of a unit whose worker died."""

from __future__ import annotations

from pathlib import Path

import pytest

from destination_datalake.protocol.catalog import StreamId
from destination_datalake.spark.failure import JobFailed, start_failure, worker_failure

NOISE = ("WARNING: Using incubator modules: jdk.incubator.vector", 'Setting default log level to "WARN".')


@pytest.fixture(autouse=True)
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


@pytest.mark.parametrize(
    ("error", "said", "master", "failure_type", "words"),
    [
        (
            Thrown("java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.\n\tat Spark"),
            NOISE,
            "spark://lake:7077",
            "transient_error",
            "spark://lake:7077 did not answer",
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
            "give it more, or lower spark.driver.memory",
        ),
        (RuntimeError("no gateway"), NOISE, "local[*]", "transient_error", "start: RuntimeError: no gateway. The log"),
    ],
    ids=["master", "address", "memory", "silence"],
)
def test_a_start_that_failed_is_told_with_its_reason_and_what_to_do(
    error: Exception, said: tuple[str, ...], master: str, failure_type: str, words: str
) -> None:
    failure = start_failure(error, said, master)

    assert words in str(failure)
    assert failure.failure.type == failure_type


def worker_said(text: str) -> JobFailed:
    error = JobFailed()
    error.__cause__ = Thrown(text)
    return error


@pytest.mark.parametrize(
    ("said", "failure_type", "words"),
    [
        (
            "Python worker exited unexpectedly (crashed): Fatal Python error: Segmentation fault\n\n",
            "system_error",
            "crashed (Segmentation fault)",
        ),
        ("Python worker exited unexpectedly (crashed)", "transient_error", "ran out of memory"),
    ],
)
def test_a_unit_whose_worker_died_is_told_of_in_its_own_stream(said: str, failure_type: str, words: str) -> None:
    answer = worker_failure(StreamId("shop", "orders"), worker_said(said))

    assert "shop.orders" in answer.failure.message
    assert words in answer.failure.message
    assert (answer.failure.type, answer.failure.detail) == (failure_type, said)
