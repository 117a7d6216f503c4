"""Spark's process, without a sync: it leaves nothing behind however early it is stopped."""

from __future__ import annotations

import os
import subprocess
import sys
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
