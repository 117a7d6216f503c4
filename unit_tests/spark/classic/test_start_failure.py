"""What is reported of a Spark with a driver of our own that did not start."""

from __future__ import annotations

from pathlib import Path

import pytest

from destination_datalake.spark.classic.start_failure import start_failure

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
    ("error", "output", "master", "failure_type", "words"),
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
            "or spark.driver.memory in spark.conf",
        ),
        (
            RuntimeError("no gateway"),
            NOISE,
            "local[*]",
            "transient_error",
            "start: RuntimeError: no gateway. The log has the details.",
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
