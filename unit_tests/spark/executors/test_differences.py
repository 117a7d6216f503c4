"""What a user reads when executors cannot do the driver's work, by what Spark said."""

from __future__ import annotations

import json

import pytest

from destination_datalake.spark.executors.arrival import MARK
from destination_datalake.spark.executors.differences import difference
from destination_datalake.spark.executors.python import MINOR_VERSION, ExecutorPython

SAME, PACK, PATH = ExecutorPython(), ExecutorPython("pack"), ExecutorPython("/opt/lake/bin/python")

HERE = {"host": "worker-7", "interpreter": "/opt/lake/bin/python"}


def told(**facts: str) -> str:
    """The text of a job that failed because of what an executor found."""
    return (
        "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
        f"RuntimeError: {MARK}{json.dumps(HERE | facts)}\n SQLSTATE: 38000\n\tat org.apache.spark"
    )


@pytest.mark.parametrize(
    ("text", "python", "words"),
    [
        (told(missing="destination-datalake"), PATH, "have no connector: /opt/lake/bin/python on worker-7"),
        (told(missing="destination-datalake"), SAME, "or set it to pack"),
        (told(version="9.9.9"), SAME, "another version of the connector: /opt/lake/bin/python on worker-7 has 9.9.9"),
        (
            told(abi="cpython-311-aarch64-linux-gnu"),
            PACK,
            "/opt/lake/bin/python on worker-7 is cpython-311-aarch64",
        ),
        (told(unusable="GLIBC_2.28 not found (x86_64, glibc 2.26)"), PACK, "worker-7 says GLIBC_2.28 not found"),
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in driver: 3.11, PySpark",
            SAME,
            f"Executors run Python 3.9 and the connector Python {MINOR_VERSION}",
        ),
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version (3, 9) than that in driver 3.11",
            PACK,
            f"Install Python {MINOR_VERSION} on them, or run the connector with theirs",
        ),
        (
            'java.io.IOException: Cannot run program "/opt/lake/bin/python": error=2, No such file or directory\n\tat',
            PATH,
            "cannot start /opt/lake/bin/python: No such file or directory. Set spark.python to",
        ),
        (
            'Cannot run program "./destination-datalake/bin/python" (in directory "/w/1"): error=13, Permission denied',
            PACK,
            f"Permission denied. Executors need /bin/sh and Python {MINOR_VERSION}",
        ),
        (
            "org.apache.spark.SparkException: \nError from python worker:\n  /opt/lake/bin/python: Error while finding "
            "module specification for 'destination_datalake.spark.worker_daemon' (ModuleNotFoundError: No module named "
            "'destination_datalake')\nPYTHONPATH was:",
            PATH,
            "no connector in /opt/lake/bin/python: destination_datalake is missing there",
        ),
        ("ModuleNotFoundError: No module named 'pyarrow'", PATH, "pyarrow is missing there. Install destination-"),
        ("ModuleNotFoundError: No module named 'pyarrow'", SAME, "no connector in the Python that they run: pyarrow"),
        (
            "Error from python worker:\n  ./destination-datalake/bin/python: 16: exec: python3: not found\nPYTHONPATH",
            PACK,
            "exec: python3: not found. Executors need /bin/sh and Python",
        ),
        (MARK + "{cut off", PATH, "Executors cannot run the connector in /opt/lake/bin/python on an executor"),
    ],
)
def test_what_differs_is_said_with_where_and_what_helps(text: str, python: ExecutorPython, words: str) -> None:
    message = difference(text, python)

    assert message is not None
    assert words in message
    assert message.startswith("Executors ")
    assert message.endswith(".")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "java.lang.OutOfMemoryError: Java heap space",
        "ModuleNotFoundError: No module named 'orders'",
        "destination-datalake executor: lost",
    ],
)
def test_errors_of_other_kinds_are_nobody_s_difference(text: str) -> None:
    assert difference(text, SAME) is None
