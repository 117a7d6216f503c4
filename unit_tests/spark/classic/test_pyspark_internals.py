"""The workarounds at work; unit_tests/libraries/test_pyspark.py shows what happens without them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from destination_datalake.spark.classic.pyspark_internals import _JARS, spark_home, spark_jars

MODULE = "destination_datalake.spark.classic.pyspark_internals"


def run(code: str, *arguments: str, **environment: str) -> str:
    """Run the code in a process of its own and return what it prints."""
    command = [sys.executable, "-W", "error", "-c", code, *arguments]
    ended = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout


ARROW = """
import importlib.util, sys
from destination_datalake.spark.classic.pyspark_internals import import_arrow
import_arrow()
import pyarrow
pyarrow.array([{"a": [1.5]}, None])
print("pandas" in sys.modules, importlib.util.find_spec("pandas") is not None)
"""


def test_arrow_is_imported_without_pandas_which_can_be_imported_later() -> None:
    assert run(ARROW) == "False True\n"


THREADS = """
import threading
from destination_datalake.spark.classic.pyspark_internals import hide_pandas

def attempt():
    try:
        import pandas
        print("found")
    except ModuleNotFoundError:
        print("hidden")

with hide_pandas():
    attempt()
    other = threading.Thread(target=attempt)
    other.start()
    other.join()
"""


def test_pandas_is_hidden_from_the_thread_that_wants_it_so_and_from_no_other() -> None:
    assert run(THREADS) == "hidden\nfound\n"


CONVERTERS = """
import sys
import pyspark
from py4j import protocol
from destination_datalake.spark.classic.pyspark_internals import drop_sql_converters
drop_sql_converters()
print(sorted(type(converter).__name__ for converter in protocol.INPUT_CONVERTER))
any(converter.can_convert(1) for converter in protocol.INPUT_CONVERTER)
print("pandas" in sys.modules)
"""


def test_only_converters_for_python_s_collections_remain() -> None:
    assert run(CONVERTERS) == "['ListConverter', 'MapConverter', 'SetConverter']\nFalse\n"


LOGGING = """
import logging
from py4j import java_gateway
from destination_datalake.spark.classic.pyspark_internals import silence_py4j
logging.basicConfig(format="%(message)s")
silence_py4j()
java_gateway.logger.error("of py4j")
exec(compile("logging.error('of py4j, on the root logger')", java_gateway.__file__, "exec"))
logging.getLogger().handlers[0].stream = __import__("sys").stdout
logging.error("of ours")
"""


def test_only_py4j_is_silenced() -> None:
    assert run(LOGGING) == "of ours\n"


STOP = """
from types import SimpleNamespace
from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext
from destination_datalake.spark.classic.pyspark_internals import silence_py4j

def fail():
    raise Py4JNetworkError("the JVM has ended")

silence_py4j()
context = object.__new__(SparkContext)
context._jsc = SimpleNamespace(stop=fail)
context.stop()
"""


def test_a_context_whose_jvm_has_ended_is_stopped_without_a_warning() -> None:
    assert run(STOP) == ""


LAUNCH = """
import os, sys
from pathlib import Path
from pyspark import java_gateway
from destination_datalake.spark.classic.pyspark_internals import launch_gateway

class Popen:
    def __init__(self, command, env, process_group, stdout, stderr, **_):
        print(command[1:], env["SPARK_USER"], process_group, stdout, stderr)
        raise OSError

java_gateway.Popen = Popen
try:
    launch_gateway(Path("/tmp/a folder/spark.properties"), 7, {"SPARK_USER": "airbyte"})
except OSError:
    print(os.environ["PYSPARK_SUBMIT_ARGS"])
"""


@pytest.mark.parametrize("arguments", ["pyspark-shell", "--verbose pyspark-shell"])
def test_launch_names_the_properties_file_and_restores_the_arguments(arguments: str) -> None:
    file = "'--properties-file', '/tmp/a folder/spark.properties', '--load-spark-defaults'"
    user_arguments = ", ".join(repr(argument) for argument in arguments.split())

    assert run(LAUNCH, PYSPARK_SUBMIT_ARGS=arguments) == f"[{file}, {user_arguments}] airbyte 0 7 7\n{arguments}\n"


def test_the_class_path_has_each_jar_that_it_names_and_no_other_part_of_spark() -> None:
    jars = {jar.name for jar in (spark_home() / "jars").glob("*.jar")}
    named = {Path(jar).name for jar in spark_jars().split(os.pathsep)}

    assert named < jars
    assert not [beginning for beginning in _JARS if not any(name.startswith(beginning) for name in named)]
    assert not [name for name in named if name.startswith(("spark-sql", "spark-mllib", "hive-", "kubernetes-"))]


PREFERRED = """
import sys
from pathlib import Path
import pyspark
from destination_datalake.spark.classic.pyspark_internals import prefer_installed_packages
packages = str(Path(pyspark.__path__[0]).parent)
sys.path[:] = [f"{packages}/pyspark/python/lib/pyspark.zip", "/elsewhere/pyspark/python/lib/pyspark.zip", packages]
prefer_installed_packages()
print([entry.removeprefix(packages) for entry in sys.path])
"""


def test_zip_files_of_an_installed_pyspark_come_last() -> None:
    expected = ["/elsewhere/pyspark/python/lib/pyspark.zip", "", "/pyspark/python/lib/pyspark.zip"]

    assert run(PREFERRED) == f"{expected}\n"


def test_importing_the_module_imports_neither_pyspark_nor_arrow() -> None:
    code = f"import sys, {MODULE}; print({{'pyspark', 'pyarrow'}} & {{*sys.modules}})"

    assert run(code) == "set()\n"
