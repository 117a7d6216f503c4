"""Functions that executors get as source."""

from __future__ import annotations

import base64
import subprocess
import sys
from functools import partial

from destination_datalake.spark.connect.jobs.frames import shipped
from destination_datalake.spark.connect.jobs.shipping import Shipped
from destination_datalake.spark.executors import arrival
from destination_datalake.spark.executors.python import ExecutorPython
from unit_tests.spark.connect.jobs import shipped_example

BARE = """
import base64, pickle, sys
sys.modules["pyspark"] = None
function = pickle.loads(base64.b64decode(sys.stdin.read()))
assert not {"destination_datalake", "cloudpickle"} & set(sys.modules)
try:
    print(list(function([3, 4])))
except RuntimeError as error:
    print(error)
"""
"""A Python with nothing but its standard library, as executors have that were not prepared."""


def elsewhere(function: object) -> str:
    from pyspark.serializers import CloudPickleSerializer

    sent = base64.b64encode(CloudPickleSerializer().dumps(function))  # type: ignore[no-untyped-call]
    command = [sys.executable, "-I", "-S", "-c", BARE]
    done = subprocess.run(command, input=sent.decode(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_executor_without_the_connector_says_so() -> None:
    told = elsewhere(shipped(partial(map, str), ExecutorPython()))

    assert told.startswith(arrival.MARK)
    assert '"missing": "destination-datalake"' in told


def test_a_function_takes_functions_along_that_are_sent_as_it_is() -> None:
    work = Shipped(shipped_example.added, 10)

    assert elsewhere(Shipped(shipped_example.applied, work)) == "[13, 14]\n"
    assert list(Shipped(shipped_example.applied, work)([3, 4])) == [13, 14]
