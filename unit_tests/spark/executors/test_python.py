"""The Python of executors: which it is, work that tells what it lacks, and what a user reads of that."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import destination_datalake
from destination_datalake.spark.executors.preflight import MARK, check_then_run
from destination_datalake.spark.executors.python import (
    MINOR_VERSION,
    ExecutorPython,
    Shipped,
    difference,
    expected,
    shipped,
)
from unit_tests.spark.executors import shipped_example


@pytest.mark.parametrize(
    ("option", "interpreter", "packed"),
    [
        ("same", sys.executable, False),
        ("pack", "./destination-datalake/bin/python", True),
        ("/opt/lake/bin/python", "/opt/lake/bin/python", False),
    ],
)
def test_executors_start_the_python_that_the_option_means(option: str, interpreter: str, packed: bool) -> None:
    python = ExecutorPython(option)

    assert (python.interpreter, python.is_packed) == (interpreter, packed)


UNSET, PACK, PATH = ExecutorPython(), ExecutorPython("pack"), ExecutorPython("/opt/lake/bin/python")
VERSION = expected(ExecutorPython())["version"]

EXECUTOR = """
import base64, pickle, sys
sys.modules["pyspark"] = None
sys.path[:0] = sys.argv[1:]
work = pickle.loads(base64.b64decode(sys.stdin.read()))
assert not {"destination_datalake", "cloudpickle"} & set(sys.modules)
print([*work([1, 2])])
"""
"""A Python with its standard library alone, which unpickles what it is sent, as a worker of Spark does, and runs it."""


def doubled(numbers: Iterable[int], *, times: int = 2) -> Iterator[int]:
    yield from (number * times for number in numbers)


def executed(work: Any, *path: Path) -> subprocess.CompletedProcess[str]:
    from pyspark.serializers import CloudPickleSerializer

    sent = base64.b64encode(CloudPickleSerializer().dumps(work)).decode()  # type: ignore[no-untyped-call]
    command = [sys.executable, "-I", "-S", "-c", EXECUTOR, *map(str, path)]
    return subprocess.run(command, input=sent, capture_output=True, text=True, timeout=60)


def facts(error: str) -> dict[str, str]:
    parsed: dict[str, str] = json.loads(error[error.index(MARK) :].strip().removeprefix(MARK))
    return parsed


@pytest.mark.parametrize("python", [ExecutorPython(), PACK])
@pytest.mark.parametrize(("work", "results"), [(doubled, [2, 4]), (partial(doubled, times=3), [3, 6])])
def test_an_executor_like_the_driver_does_the_work(python: ExecutorPython, work: Any, results: list[int]) -> None:
    assert list(shipped(work, python)([1, 2])) == results


def test_missing_connector_is_reported_before_work_is_unpickled() -> None:
    from destination_datalake.files.encode import encode

    ended = executed(shipped(encode, ExecutorPython()))

    assert ended.stdout == ""
    assert facts(ended.stderr)["missing"] == "destination-datalake"
    assert facts(ended.stderr)["interpreter"] == sys.executable


@pytest.mark.parametrize(
    ("wanted", "fact", "value"),
    [
        ({"version": "9.9.9"}, "version", VERSION),
        ({"version": VERSION, "abi": "cpython-311-aarch64-linux-gnu"}, "abi", sysconfig.get_config_var("SOABI")),
    ],
)
def test_different_executor_reports_its_facts(wanted: dict[str, str], fact: str, value: str) -> None:
    with pytest.raises(RuntimeError) as raised:
        check_then_run(b"", wanted, [])

    assert facts(str(raised.value))[fact] == value


@pytest.mark.parametrize(
    ("raised", "reason"),
    [
        ("ImportError('libm.so.6: version GLIBC_2.28 not found')", "libm.so.6: version GLIBC_2.28 not found ("),
        ("AttributeError('no attribute array_interface')", "no attribute array_interface ("),
        ("ValueError('numpy.dtype size changed')", "numpy.dtype size changed ("),
    ],
)
def test_packages_that_cannot_be_loaded_are_named_with_the_machine(tmp_path: Path, raised: str, reason: str) -> None:
    # Given the connector on a machine where Arrow's library lacks what it is linked with, or is of another version
    (tmp_path / "pyarrow.py").write_text(f"raise {raised}")
    described = tmp_path / f"destination_datalake-{VERSION}.dist-info"
    described.mkdir()
    (described / "METADATA").write_text(f"Metadata-Version: 2.1\nName: destination-datalake\nVersion: {VERSION}\n")

    # When it is sent work
    ended = executed(shipped(doubled, PACK), tmp_path, Path(destination_datalake.__file__).parent.parent)

    # Then it says what fails to load, and which C library it has
    assert reason in facts(ended.stderr)["unusable"]


def test_a_function_takes_functions_along_that_are_sent_as_it_is() -> None:
    work = Shipped(shipped_example.applied, Shipped(shipped_example.added, 10))

    assert executed(work).stdout == "[11, 12]\n"
    assert list(work([1, 2])) == [11, 12]


def test_only_packages_that_are_sent_must_fit_the_executor_s_abi() -> None:
    assert "abi" not in expected(ExecutorPython())
    assert expected(PACK)["abi"] == sysconfig.get_config_var("SOABI")


WORKER = {"host": "worker-7", "interpreter": "/opt/lake/bin/python"}


def told(**facts: str) -> str:
    """The text of a job that failed because of what an executor found."""
    return (
        "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
        f"RuntimeError: {MARK}{json.dumps(WORKER | facts)}\n SQLSTATE: 38000\n\tat org.apache.spark"
    )


@pytest.mark.parametrize(
    ("text", "python", "words"),
    [
        (told(missing="destination-datalake"), PATH, "it is not installed in /opt/lake/bin/python on worker-7"),
        (told(missing="destination-datalake"), UNSET, "Or set spark.python to pack"),
        (told(version="9.9.9"), UNSET, "another version of the connector: /opt/lake/bin/python on worker-7 uses 9.9.9"),
        (
            told(abi="cpython-311-aarch64-linux-gnu"),
            PACK,
            "/opt/lake/bin/python on worker-7 needs cpython-311-aarch64",
        ),
        (told(unusable="GLIBC_2.28 not found (x86_64, glibc 2.26)"), PACK, "worker-7: GLIBC_2.28 not found"),
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in driver: 3.11, PySpark",
            UNSET,
            f"Executors run Python 3.9, but the connector runs Python {MINOR_VERSION}",
        ),
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version (3, 9) than that in driver 3.11",
            PACK,
            f"Install Python {MINOR_VERSION} on the executors, or run the connector with Python 3.9",
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
            "cannot run the connector in /opt/lake/bin/python: the package destination_datalake is missing",
        ),
        (
            "ModuleNotFoundError: No module named 'pyarrow'",
            PATH,
            "the package pyarrow is missing. Install destination-",
        ),
        (
            "ModuleNotFoundError: No module named 'pyarrow'",
            UNSET,
            "cannot run the connector in their Python: the package pyarrow",
        ),
        (
            "Error from python worker:\n  ./destination-datalake/bin/python: 16: exec: python3: not found\nPYTHONPATH",
            PACK,
            "exec: python3: not found. Executors need /bin/sh and Python",
        ),
        (MARK + "{cut off", PATH, "Executors cannot run the connector in /opt/lake/bin/python on an executor"),
    ],
)
def test_difference_is_reported_with_its_place_and_remedy(text: str, python: ExecutorPython, words: str) -> None:
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
def test_other_errors_are_not_differences(text: str) -> None:
    assert difference(text, UNSET) is None
