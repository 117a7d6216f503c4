"""Spark's process, without a sync: it leaves nothing behind however early it is stopped."""

from __future__ import annotations

import os
import subprocess
import sys
from ast import literal_eval
from importlib.util import find_spec
from pathlib import Path

import pytest

START_AND_STOP = """
import sys, time
import psutil
from destination_datalake.spark.engine import Engine, EngineSettings

engine = Engine.start(EngineSettings("local[1]", {}))
time.sleep(float(sys.argv[1]))
engine.stop()
living = [child for child in psutil.Process().children(recursive=True) if child.status() != psutil.STATUS_ZOMBIE]
sys.exit(f"still running: {living}" if living else 0)
"""


@pytest.mark.parametrize("seconds", [0, 0.1, 0.3, 0.6, 1, 1.5, 2.5])
def test_spark_stopped_while_it_starts_leaves_no_process_and_no_file(tmp_path: Path, seconds: float) -> None:
    # Given a Spark that has been starting for some moments
    command = [sys.executable, "-c", START_AND_STOP, str(seconds)]
    environment = os.environ | {"TMPDIR": str(tmp_path)}

    # When it is stopped
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)

    # Then nothing is left of it, and nobody reads of a start that nobody wanted any more
    assert ended.returncode == 0, ended.stderr
    assert "Traceback" not in ended.stderr
    assert "Exception" not in ended.stderr
    assert list(tmp_path.iterdir()) == []


WHAT_IS_LOADED = """
import sys
from destination_datalake.spark.engine import Engine, EngineSettings
from destination_datalake.spark.without_pandas import load_arrow

def loaded(_):
    import pyspark
    slow = {"pandas", "pyspark.testing"} & set(sys.modules)
    return (pyspark.__file__, sorted(slow), "destination_datalake.spark.encode" in sys.modules, "boto3" in sys.modules)

engine = Engine.start(EngineSettings("local[1]", {}))
load_arrow()
context = engine._context.result()
print(loaded(None))
print(context.parallelize([None], 1).map(loaded).collect()[0])
engine.stop()
"""


def test_neither_driver_nor_workers_load_what_makes_their_start_slow() -> None:
    # Given that PySpark would load pandas in both, and compile itself out of a zip file in the workers
    installed = find_spec("pyspark")
    assert installed is not None

    # When Spark has started
    ended = subprocess.run([sys.executable, "-c", WHAT_IS_LOADED], capture_output=True, text=True, timeout=120)

    # Then pandas is in neither, and the workers have the installed PySpark, the encoder and the client of S3
    assert ended.returncode == 0, ended.stderr
    driver, worker = map(literal_eval, ended.stdout.splitlines())
    assert driver[:3] == (installed.origin, [], True)
    assert worker == (installed.origin, [], True, True)
