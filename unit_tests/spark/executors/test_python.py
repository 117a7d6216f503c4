"""What Spark is told to start Python with on executors."""

from __future__ import annotations

import sys

import pytest

from destination_datalake.spark.executors.python import ExecutorPython


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
