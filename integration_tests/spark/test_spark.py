"""What Spark does that the connector works around, shown without the workaround, where that needs a JVM.

A test here that fails after an update means that Spark was changed: see docs/code/workarounds.md.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CONTEXT = """
import os, signal, sys
from pathlib import Path
from pyspark import SparkConf, SparkContext

conf = SparkConf().setMaster("local[1]").set("spark.task.maxFailures", "3").set("spark.ui.enabled", "false")
context = SparkContext(conf=conf)
"""

DIES_ONCE = (
    CONTEXT
    + """
def work(names):
    for name in names:
        if not Path(name).exists():
            Path(name).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        yield name

try:
    print(context.parallelize([sys.argv[1]], 1).mapPartitions(work).collect())
except Exception as error:
    print("failed 1 times" in str(error))
"""
)


def run(code: str, *arguments: str, prefix: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "localhost"}
    command = [*prefix, sys.executable, "-c", code, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)


@pytest.mark.slow
def test_a_local_master_does_not_retry_a_task_however_many_failures_are_allowed(tmp_path: Path) -> None:
    assert run(DIES_ONCE, str(tmp_path / "tried")).stdout == "True\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("java_options", "words"),
    [("", "basedir must be absolute: ?/"), ("-Duser.home=/tmp", "LoginException")],
    ids=["home", "name"],
)
def test_spark_does_not_start_for_a_user_whom_the_system_does_not_know(java_options: str, words: str) -> None:
    stranger = ("unshare", "--user", "--map-user=54321", "--map-group=54321", "env", "-u", "HOME")

    ended = run(CONTEXT, prefix=(*stranger, f"JAVA_TOOL_OPTIONS={java_options}"))

    assert ended.returncode != 0
    assert words in ended.stderr
