"""Every use of private parts of PySpark, py4j and Arrow's Python layer, and every workaround of what they do.

docs/code/workarounds.md has the reason of each, and the test that fails once it is not needed any more. Nothing is
imported before a function needs it: `spec` loads this module too.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import subprocess

    from py4j.java_gateway import JavaGateway  # type: ignore[import-untyped]
    from pyspark import SparkContext


# --- the JVM's launch and its gateway --------------------------------------------------------------------------------


GATEWAY_CLASS = "org.apache.spark.api.python.PythonGatewayServer"
"""The main class of the JVM that PySpark talks to."""

GATEWAY_FILE = "_PYSPARK_DRIVER_CONN_INFO_PATH"
"""The variable that names the file which this class writes its port and its secret to."""

_OPENED = (
    *("java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util"),
    *("java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref", "sun.nio.ch", "sun.nio.cs"),
    *("sun.security.action", "sun.util.calendar"),
)
MODULE_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
)
"""Spark's own options for every JVM (its JavaModuleOptions), without the modules that only MLlib uses."""


WITHOUT_LOGGING = (
    "-Dslf4j.provider=org.slf4j.helpers.NOP_FallbackServiceProvider",
    "-Dslf4j.internal.verbosity=ERROR",
    "-Dlog4j.provider=org.apache.logging.log4j.simple.internal.SimpleProvider",
    "-Dorg.apache.logging.log4j.simplelog.level=OFF",
)
"""Options of a JVM that does not log: what Spark fails of is thrown, and Log4j takes a tenth of its start."""

_JARS = (
    *("spark-common-utils", "spark-config", "spark-core", "spark-kvstore", "spark-launcher", "spark-network-"),
    *("spark-tags", "spark-udf-worker-core", "spark-unsafe", "scala-library", "scala-reflect", "hadoop-client-"),
    *("avro-1", "chill", "commons-", "compress-lzf", "failureaccess", "guava", "ivy", "jackson-", "jakarta."),
    *("javax.servlet", "jersey-", "json4s-", "kryo-", "log4j-api", "log4j-core", "lz4-", "metrics-", "minlog"),
    *("netty-", "objenesis", "paranamer", "py4j", "RoaringBitmap", "slf4j-api", "snappy-", "stream-", "xbean-"),
    "zstd-",
)
"""What jars of Spark's core, and of what it uses, are called."""


def spark_home() -> Path:
    """Return the folder of the installed Spark. PySpark is not imported for it."""
    package = find_spec("pyspark")
    assert package is not None
    assert package.origin is not None
    return Path(package.origin).parent


def spark_jars() -> str:
    """Return the class path of Spark's core: Java looks for some things in each jar, and there are 280 in all."""
    jars = sorted((spark_home() / "jars").iterdir())
    return os.pathsep.join(str(jar) for jar in jars if jar.name.startswith(_JARS))


def connected_gateway(process: subprocess.Popen[bytes], file: Path) -> JavaGateway:
    """Wait until the JVM's gateway has written `file`, and connect to it, as PySpark's `launch_gateway` does.

    Raises PySparkRuntimeError if the JVM ends before.
    """
    from py4j.clientserver import ClientServer, JavaParameters, PythonParameters  # type: ignore[import-untyped]
    from py4j.java_gateway import java_import
    from pyspark.errors import PySparkRuntimeError
    from pyspark.serializers import UTF8Deserializer, read_int

    while not file.exists():
        if process.poll() is not None:
            raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})
        time.sleep(_POLL_SECONDS)
    with file.open("rb") as info:
        port, secret = read_int(info), UTF8Deserializer().loads(info)  # type: ignore[no-untyped-call]
    gateway = ClientServer(
        JavaParameters(port=port, auth_token=secret, auto_convert=True), PythonParameters(port=0, eager_load=False)
    )
    gateway.proc = process
    for name in _IMPORTED:
        java_import(gateway.jvm, name)
    return gateway


_POLL_SECONDS = 0.002
_IMPORTED = (
    "org.apache.spark.SparkConf",
    "org.apache.spark.api.java.*",
    "org.apache.spark.api.python.*",
    "org.apache.spark.resource.*",
    "scala.Tuple2",
)
"""Classes that SparkContext and RDDs find by their short names."""


def launch_gateway(properties_file: Path, output: int, environment: Mapping[str, str]) -> JavaGateway:
    """Launch Spark's JVM in a process group of its own and connect to it. Raises what PySpark raises.

    `output` is the file descriptor for what the JVM prints. `environment` is added to this process's: PySpark hands
    that on, and takes the arguments of `spark-submit` from one of its variables.
    """
    import shlex

    from pyspark.java_gateway import launch_gateway

    submit_args = os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell")
    arguments = f"--properties-file {shlex.quote(str(properties_file))} --load-spark-defaults {submit_args}"
    popen: dict[str, Any] = {"process_group": 0, "stdout": output, "stderr": output}
    try:
        os.environ.update(environment, PYSPARK_SUBMIT_ARGS=arguments)
        return launch_gateway(None, popen)  # type: ignore[no-untyped-call]
    finally:
        # A variable that was not there before is set, not removed: other threads read the environment meanwhile, and
        # one that iterates over it (urllib does, for each client of boto3's) fails if a variable is removed.
        os.environ["PYSPARK_SUBMIT_ARGS"] = submit_args


def available_processors(gateway: JavaGateway) -> int:
    """Return how many processors the JVM may use, which a container can limit."""
    return int(gateway.jvm.java.lang.Runtime.getRuntime().availableProcessors())


def log_in(user: str, gateway: JavaGateway) -> None:
    """Let Hadoop take a name as the user of the JVM's process, which it cannot find out itself.

    Spark keeps the secret of `spark.authenticate` among the credentials of Hadoop's user, for whose name Hadoop asks
    the system, also where HADOOP_USER_NAME has one (Hadoop: `UserGroupInformation`).
    """
    users = gateway.jvm.org.apache.hadoop.security.UserGroupInformation
    users.setLoginUser(users.createRemoteUser(user))


def drop_sql_converters() -> None:
    """Leave py4j the converters of Python's own collections only.

    To be called once pyspark is imported: it registers converters for values of its SQL, which we do not use. One of
    them looks for NumPy at each value, the first time by importing pyspark.testing, and pandas with it: half of Spark's
    start.
    """
    from py4j import protocol  # type: ignore[import-untyped]

    protocol.INPUT_CONVERTER[:] = [c for c in protocol.INPUT_CONVERTER if type(c).__module__.startswith("py4j.")]


# --- the running context ---------------------------------------------------------------------------------------------


def hand_over_without_files(context: SparkContext) -> None:
    """Send tasks to the JVM over a connection that PySpark authenticates, instead of through a file on disk.

    They contain credentials. PySpark does the same where Spark encrypts its files, but leaves the connection open.
    """
    from pyspark.serializers import ChunkedStream
    from pyspark.util import local_connect_and_auth

    def send(data: Any, serializer: Any, _: object, serve: Callable[[], Any]) -> Any:
        server = serve()
        stream, connection = local_connect_and_auth(server.connInfo(), server.secret())
        with connection:
            chunks = ChunkedStream(stream, 8192)  # type: ignore[no-untyped-call]
            serializer.dump_stream(data, chunks)
            chunks.close()  # type: ignore[no-untyped-call]
        return server.getResult()

    context._serialize_to_jvm = send  # type: ignore[method-assign, assignment]


def is_stopped(context: SparkContext) -> bool:
    """Return whether the JVM's SparkContext has stopped. Raises if the JVM does not answer."""
    return bool(context._jsc.sc().isStopped())


def count_executors(context: SparkContext) -> int:
    """Return how many executors are registered, the driver not counted. Raises if the JVM does not answer."""
    # Java's status tracker has them; PySpark's lacks the method.
    return len(context._jsc.sc().statusTracker().getExecutorInfos()) - 1


def seconds_property(context: SparkContext, name: str) -> float | None:
    """Return a property that is a time, as Spark reads it ("2min"), in seconds; None if it is not set."""
    conf = context._jsc.sc().conf()
    return float(conf.getTimeAsSeconds(name)) if conf.contains(name) else None


def is_java_exception(error: BaseException) -> bool:
    """Return whether PySpark raised the error because the JVM, which still answers, threw an exception."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

    return isinstance(error, Py4JJavaError)


def java_exception_text(error: BaseException | None) -> str | None:
    """Return the text of the JVM's exception, with its stack trace; None if there is none."""
    thrown = getattr(error, "java_exception", None)
    return None if thrown is None else str(thrown)


# --- silence after the JVM's end -------------------------------------------------------------------------------------


def silence_accumulator_server(context: SparkContext) -> None:
    """Keep PySpark's accumulator server from printing a stack trace when the JVM ends; the next job reports that."""
    context._accumulatorServer.handle_error = _ignore  # type: ignore[method-assign, assignment]


def silence_py4j() -> None:
    """Drop py4j's log messages from now on.

    Errors of our own calls are raised. py4j makes others on a thread of its own, for objects that are collected, and
    logs those that find the JVM gone. Some of it goes to the root logger, hence the filter.
    """
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_not_of_py4j)


def _ignore(*_: object) -> None:
    """Ignore that a connection has ended."""


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return f"{os.sep}py4j{os.sep}" not in record.pathname


# --- imports that cost time and memory -------------------------------------------------------------------------------


def import_arrow() -> None:
    """Import Arrow without pandas, which would take a second and 60 MB and is not used.

    Arrow looks for pandas once, at the first value that it converts, and imports it if it is installed.
    """
    with hide_pandas():
        import pyarrow as pa

        pa.array([])


@contextmanager
def hide_pandas() -> Iterator[None]:
    """Make imports of pandas fail inside the `with` block, for this thread: Spark Connect needs it, on another."""
    finder = _PandasHider()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _PandasHider:
    """A finder of `sys.meta_path`. Its usual base class would take a tenth of `spec`'s time to import."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()

    def find_spec(self, name: str, _path: Sequence[str] | None, _target: ModuleType | None = None) -> None:
        if name.partition(".")[0] == "pandas" and threading.get_ident() == self._thread:
            raise ModuleNotFoundError(f"{name} is hidden", name=name)


def prefer_installed_packages() -> None:
    """Have a worker import PySpark from where it is installed rather than from the zip files beside it.

    Spark puts the zip files first in `sys.path`. They contain no byte code: each start would compile them again.
    """
    sys.path[:] = sorted(sys.path, key=_is_zip_of_installed_package)


def _is_zip_of_installed_package(entry: str) -> bool:
    path = Path(entry)
    return path.match("pyspark/python/lib/*.zip") and str(path.parents[3]) in sys.path
