"""PySpark and py4j, without a JVM: converters, printed errors, and what is imported from where."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from zipfile import ZipFile

import pyspark
import pytest
from pyspark import SparkContext, daemon, java_gateway
from pyspark.serializers import CPickleSerializer
from pyspark.sql.connect.client import core

from destination_datalake.spark.classic.pyspark_internals import GATEWAY_CLASS, GATEWAY_FILE, MODULE_OPTIONS

pytestmark = pytest.mark.slow


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)


CONVERTERS = """
import sys
from py4j import protocol
import pyspark
before = "pandas" in sys.modules
for converter in protocol.INPUT_CONVERTER:
    converter.can_convert({})
print(before, "pandas" in sys.modules, "pyspark.testing" in sys.modules)
"""


def test_a_converter_for_sql_imports_pandas_at_the_first_value_of_any_type() -> None:
    ended = run(CONVERTERS)

    assert ended.stdout == "False True True\n", ended.stderr


LOST_CONNECTION = """
import socket
from pyspark import accumulators
server = accumulators._start_update_server("token", False, None)
with socket.create_connection(server.server_address) as connection:
    connection.sendall(b"token")
    connection.shutdown(socket.SHUT_WR)
    connection.recv(1)
server.shutdown()
"""


def test_the_accumulator_server_prints_a_stack_trace_when_the_jvm_is_gone() -> None:
    ended = run(LOST_CONNECTION)

    assert "Traceback" in ended.stderr
    assert "EOFError" in ended.stderr


LOST_JVM = """
import logging, socket, threading
socket.setdefaulttimeout(10)
from py4j.java_gateway import GatewayParameters, JavaGateway

logging.getLogger("py4j").setLevel(logging.CRITICAL)
logging.getLogger("py4j").propagate = False
listener = socket.create_server(("127.0.0.1", 0))

def end_at_each_command():
    for _ in range(2):  # py4j tries a second time.
        connection, _ = listener.accept()
        connection.recv(1000)
        connection.close()

threading.Thread(target=end_at_each_command).start()
gateway = JavaGateway(gateway_parameters=GatewayParameters(port=listener.getsockname()[1]))
try:
    gateway.jvm.System.currentTimeMillis()
except Exception:
    pass
"""


def test_py4j_reports_a_lost_jvm_to_the_root_logger_whatever_its_own_level_is() -> None:
    ended = run(LOST_JVM)

    assert "ERROR:root:Exception while sending command." in ended.stderr


def test_the_zip_files_that_workers_import_pyspark_from_have_no_byte_code() -> None:
    archives = [*Path(pyspark.__path__[0], "python", "lib").glob("*.zip")]

    assert {archive.name.partition("-")[0] for archive in archives} == {"py4j", "pyspark.zip"}
    for archive in archives:
        assert not [name for name in ZipFile(archive).namelist() if name.endswith(".pyc")]


def test_the_jvm_is_launched_by_shell_scripts_and_looked_for_ten_times_a_second() -> None:
    source = inspect.getsource(java_gateway.launch_gateway)

    assert '"./bin/spark-submit"' in source
    assert "time.sleep(0.1)" in source


def test_what_spark_s_launcher_gives_each_jvm_is_what_we_give_it() -> None:
    (launcher,) = Path(pyspark.__path__[0], "jars").glob("spark-launcher_*.jar")
    constants = ZipFile(launcher).read("org/apache/spark/launcher/JavaModuleOptions.class")

    given = re.findall(rb"(?:--[a-z]|-D|-XX:)[ -~]+", constants)

    assert {*map(bytes.decode, given)} - {*MODULE_OPTIONS} == {"--add-modules=jdk.incubator.vector"}
    assert {*MODULE_OPTIONS} <= {*map(bytes.decode, given)}


def test_the_jvm_s_gateway_writes_where_it_listens_to_a_file_that_a_variable_names() -> None:
    (core,) = Path(pyspark.__path__[0], "jars").glob("spark-core_*.jar")
    constants = ZipFile(core).read(f"{GATEWAY_CLASS.replace('.', '/')}$.class")

    assert GATEWAY_FILE.encode() in constants


def test_a_worker_daemon_talks_to_the_jvm_over_its_standard_input_and_output() -> None:
    source = inspect.getsource(daemon.manager)

    assert "write_int(listen_port, stdout_bin)" in source
    assert "worker_pid = read_int(stdin_bin)" in source


SUBMIT_ARGUMENTS = """
import inspect
from pyspark.java_gateway import launch_gateway
print([*inspect.signature(launch_gateway).parameters], "PYSPARK_SUBMIT_ARGS" in inspect.getsource(launch_gateway))
"""


def test_arguments_of_spark_submit_are_taken_from_the_environment_only() -> None:
    assert run(SUBMIT_ARGUMENTS).stdout == "['conf', 'popen_kwargs'] True\n"


COMMAND_LINE = """
import subprocess
from pyspark import SparkConf, java_gateway

class Popen:
    def __init__(self, command, **_):
        print([argument for argument in command if "secret" in argument])
        raise OSError

java_gateway.Popen = Popen
try:
    java_gateway.launch_gateway(SparkConf(loadDefaults=False).set("spark.key", "secret"))
except OSError:
    pass
"""


def test_properties_given_to_the_launch_are_on_the_command_line() -> None:
    assert run(COMMAND_LINE).stdout == "['spark.key=secret']\n"


def test_data_for_the_jvm_is_written_to_a_file(tmp_path: Path) -> None:
    context: Any = SimpleNamespace(_encryption_enabled=False, _temp_dir=tmp_path)

    def read(name: str) -> bytes:
        return Path(name).read_bytes()

    received = SparkContext._serialize_to_jvm(context, ["a secret"], CPickleSerializer(), read, read)

    assert b"a secret" in cast("bytes", received)


AT_EXIT = """
import atexit
registered = []
atexit.register = registered.append
from pyspark.sql.connect.session import SparkSession
session = SparkSession("sc://localhost:1")
print(session.client._on_exit in registered)
"""


def test_a_spark_connect_client_calls_its_server_at_exit() -> None:
    ended = run(AT_EXIT)

    assert ended.stdout == "True\n", ended.stderr


RETRIES = """
import warnings
import grpc
from pyspark.sql.connect.client.retries import DefaultPolicy, Retrying

class Gone(grpc.RpcError):
    def code(self):
        return grpc.StatusCode.UNAVAILABLE

with warnings.catch_warnings(record=True) as told:
    try:
        for attempt in Retrying(DefaultPolicy(max_retries=0)):
            with attempt:
                raise Gone
    except Gone:
        print([str(each.message)[:18] for each in told])
"""


def test_a_spark_connect_client_warns_when_it_has_tried_often_enough() -> None:
    ended = run(RETRIES)

    assert ended.stdout == "['[RETRIES_EXCEEDED]']\n", ended.stderr


USER_DEFINED = """
import sys
from pathlib import Path
from pyspark.sql.connect.proto import types_pb2
from pyspark.sql.connect.types import proto_schema_to_pyspark_data_type
try:
    proto_schema_to_pyspark_data_type(types_pb2.DataType(udt=types_pb2.DataType.UDT(type="udt", python_class="this.T")))
except Exception:
    print("this" in sys.modules)
"""


def test_a_spark_connect_client_imports_the_module_that_a_schema_names() -> None:
    ended = run(USER_DEFINED)

    assert ended.stdout.endswith("True\n"), ended.stderr


def test_a_spark_connect_client_unpickles_metrics_by_their_name() -> None:
    source = inspect.getsource(core.SparkConnectClient._execute_and_fetch_as_iterator)

    assert 'observed_metrics.name == "__python_accumulator__"' in source
    assert "specialAccumulatorSer.loads(" in source
