"""Work functions on their way to executors: pickled so that any Python can tell what it lacks."""

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

import pyspark
import pytest

import destination_datalake
from destination_datalake.spark.executors.arrival import MARK, arrive
from destination_datalake.spark.executors.python import ExecutorPython
from destination_datalake.spark.executors.work import expected, on_executors

PACK = ExecutorPython("pack")
VERSION = expected(ExecutorPython())["version"]

SPARK = sorted((Path(pyspark.__file__).parent / "python" / "lib").glob("*.zip"))
"""All that Spark itself brings to an executor's Python."""

EXECUTOR = """
import base64, pickle, sys
sys.path[:0] = sys.argv[1:]
print([*pickle.loads(base64.b64decode(sys.stdin.read()))([1, 2])])
"""
"""A Python that unpickles what it is sent, as a worker of Spark does, and runs it."""


def doubled(numbers: Iterable[int], *, times: int = 2) -> Iterator[int]:
    yield from (number * times for number in numbers)


def sent(work: Any) -> str:
    from pyspark.cloudpickle import dumps

    return base64.b64encode(dumps(work)).decode()  # type: ignore[no-untyped-call]


def executed(work: Any, *path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", "-S", "-c", EXECUTOR, *map(str, (*SPARK, *path))]
    return subprocess.run(command, input=sent(work), capture_output=True, text=True, timeout=60)


def facts(error: str) -> dict[str, str]:
    found: dict[str, str] = json.loads(error[error.index(MARK) :].strip().removeprefix(MARK))
    return found


@pytest.mark.parametrize("python", [ExecutorPython(), PACK])
@pytest.mark.parametrize(("work", "results"), [(doubled, [2, 4]), (partial(doubled, times=3), [3, 6])])
def test_an_executor_like_the_driver_does_the_work(python: ExecutorPython, work: Any, results: list[int]) -> None:
    assert list(on_executors(work, python)([1, 2])) == results


def test_a_python_without_the_connector_says_so_before_it_unpickles_the_work() -> None:
    from destination_datalake.files.encode import encode

    ended = executed(on_executors(encode, ExecutorPython()))

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
def test_an_executor_that_differs_names_what_it_has(wanted: dict[str, str], fact: str, value: str) -> None:
    with pytest.raises(RuntimeError) as raised:
        arrive(b"", wanted, [])

    assert facts(str(raised.value))[fact] == value


def test_packages_that_cannot_be_loaded_are_named_with_the_machine(tmp_path: Path) -> None:
    # Given the connector on a machine where Arrow's library lacks what it is linked with
    (tmp_path / "pyarrow.py").write_text("raise ImportError('libm.so.6: version GLIBC_2.28 not found')")
    described = tmp_path / f"destination_datalake-{VERSION}.dist-info"
    described.mkdir()
    (described / "METADATA").write_text(f"Metadata-Version: 2.1\nName: destination-datalake\nVersion: {VERSION}\n")

    # When it is sent work
    ended = executed(on_executors(doubled, PACK), tmp_path, Path(destination_datalake.__file__).parent.parent)

    # Then it says what fails to load, and which C library it has
    assert "libm.so.6: version GLIBC_2.28 not found (" in facts(ended.stderr)["unusable"]


def test_only_packages_that_are_sent_must_fit_the_executor_s_abi() -> None:
    assert "abi" not in expected(ExecutorPython())
    assert expected(PACK)["abi"] == sysconfig.get_config_var("SOABI")
