"""All uses of private parts of PySpark, py4j and pyarrow, and all workarounds for the behaviour of these libraries.

For each workaround, docs/code/workarounds.md lists the reason, and the test that fails when the workaround is no longer
necessary. Each function imports the modules that it needs when it runs, because the command `spec` loads this module
too.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
import warnings
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


# --- The JVM's launch and its gateway --------------------------------------------------------------------------------


GATEWAY_CLASS = "org.apache.spark.api.python.PythonGatewayServer"
"""The main class of the JVM to which PySpark connects."""

GATEWAY_FILE = "_PYSPARK_DRIVER_CONN_INFO_PATH"
"""The environment variable that contains the path of the gateway file. The JVM's gateway writes its port and its secret
to this file."""

_OPENED_PACKAGES = (
    *("java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util"),
    *("java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref", "sun.nio.ch", "sun.nio.cs"),
    *("sun.security.action", "sun.util.calendar"),
)
MODULE_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED_PACKAGES),
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
)
"""The options that Spark passes to every JVM (its JavaModuleOptions), without the modules that only MLlib uses."""


WITHOUT_LOGGING = (
    "-Dslf4j.provider=org.slf4j.helpers.NOP_FallbackServiceProvider",
    "-Dslf4j.internal.verbosity=ERROR",
    "-Dlog4j.provider=org.apache.logging.log4j.simple.internal.SimpleProvider",
    "-Dorg.apache.logging.log4j.simplelog.level=OFF",
)
"""Options that disable the JVM's logging. The connector does not need the logs, because Spark reports failures as
exceptions. Loading Log4j would take a tenth of the JVM's start-up time."""

_JARS = (
    *("spark-common-utils", "spark-config", "spark-core", "spark-kvstore", "spark-launcher", "spark-network-"),
    *("spark-tags", "spark-udf-worker-core", "spark-unsafe", "scala-library", "scala-reflect", "hadoop-client-"),
    *("avro-1", "chill", "commons-", "compress-lzf", "failureaccess", "guava", "ivy", "jackson-", "jakarta."),
    *("javax.servlet", "jersey-", "json4s-", "kryo-", "log4j-api", "log4j-core", "lz4-", "metrics-", "minlog"),
    *("netty-", "objenesis", "paranamer", "py4j", "RoaringBitmap", "slf4j-api", "snappy-", "stream-", "xbean-"),
    "zstd-",
)
"""Name prefixes of the jars of Spark's core and its dependencies."""


def spark_home() -> Path:
    """Return the folder of the installed PySpark, without importing PySpark."""
    package = find_spec("pyspark")
    assert package is not None
    assert package.origin is not None
    return Path(package.origin).parent


def spark_jars() -> str:
    """Return the class path of Spark's core. With all of Spark's 280 jars, Java would start more slowly."""
    jars = sorted((spark_home() / "jars").iterdir())
    return os.pathsep.join(str(jar) for jar in jars if jar.name.startswith(_JARS))


def connected_gateway(process: subprocess.Popen[bytes], file: Path) -> JavaGateway:
    """Wait until the JVM has written `file`, then return a gateway to the JVM, like PySpark's `launch_gateway`.

    The file contains the gateway's port and secret. Raises PySparkRuntimeError if the JVM ends first.
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
"""Java classes that PySpark's SparkContext and RDDs refer to by their short names."""


def launch_gateway(properties_file: Path, output: int, environment: Mapping[str, str]) -> JavaGateway:
    """Launch Spark's JVM in its own process group. Return a gateway to the JVM. Raises PySpark's errors.

    The JVM writes its output to the file descriptor `output`. This function adds the variables in `environment` to the
    environment of this process, because PySpark passes this environment to the JVM. PySpark also reads the arguments of
    `spark-submit` from this environment.
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
        # Never remove a variable, even if it is new. A removal would cause errors in threads that iterate over the
        # environment, as urllib does for each of boto3's clients.
        os.environ["PYSPARK_SUBMIT_ARGS"] = submit_args


def available_processors(gateway: JavaGateway) -> int:
    """Return the number of processors that the JVM can use. A container can limit this number."""
    return int(gateway.jvm.java.lang.Runtime.getRuntime().availableProcessors())


def log_in(user: str, gateway: JavaGateway) -> None:
    """Set the name of Hadoop's user, if the operating system has no name for the user.

    Spark stores the secret of `spark.authenticate` in the credentials of Hadoop's user. Hadoop gets the user's name
    from the operating system, even if HADOOP_USER_NAME is set (Hadoop: `UserGroupInformation`).
    """
    users = gateway.jvm.org.apache.hadoop.security.UserGroupInformation
    users.setLoginUser(users.createRemoteUser(user))


def drop_sql_converters() -> None:
    """Remove py4j's converters for SQL values, which the connector does not use. Call this after importing PySpark.

    Importing PySpark registers these converters. When one of them converts its first value, it imports pyspark.testing
    and therefore pandas, which takes half of Spark's start-up time.
    """
    from py4j import protocol  # type: ignore[import-untyped]

    protocol.INPUT_CONVERTER[:] = [c for c in protocol.INPUT_CONVERTER if type(c).__module__.startswith("py4j.")]


# --- The running context ---------------------------------------------------------------------------------------------


def hand_over_without_files(context: SparkContext) -> None:
    """Make PySpark send tasks to the JVM over an authenticated connection, because tasks contain credentials.

    By default, PySpark writes the tasks to a file. If Spark encrypts its files, PySpark itself uses such a connection,
    but does not close it.
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
    """Return whether Spark's context in the JVM has stopped. Raises py4j's errors if the JVM does not respond."""
    return bool(context._jsc.sc().isStopped())


def count_executors(context: SparkContext) -> int:
    """Return the number of registered executors, without the driver.

    Raises py4j's errors if the JVM does not respond.
    """
    # PySpark's status tracker does not have this method of the Java class.
    return len(context._jsc.sc().statusTracker().getExecutorInfos()) - 1


def seconds_property(context: SparkContext, name: str) -> float | None:
    """Return the value of a Spark property in seconds, or None if the property is not set.

    Spark itself parses the value, such as "2min".
    """
    conf = context._jsc.sc().conf()
    return float(conf.getTimeAsSeconds(name)) if conf.contains(name) else None


def is_java_exception(error: BaseException) -> bool:
    """Return whether the JVM raised the error, which means that the JVM is still running."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

    return isinstance(error, Py4JJavaError)


def java_exception_text(error: BaseException | None) -> str | None:
    """Return the text of the JVM's exception with its stack trace, or None if the error did not come from the JVM."""
    thrown = getattr(error, "java_exception", None)
    return None if thrown is None else str(thrown)


# --- Silence after the JVM's end -------------------------------------------------------------------------------------


def silence_accumulator_server(context: SparkContext) -> None:
    """Prevent PySpark's accumulator server from printing a stack trace when the JVM ends.

    The next job reports that the JVM has ended.
    """
    context._accumulatorServer.handle_error = _ignore  # type: ignore[method-assign, assignment]


def silence_py4j() -> None:
    """Suppress py4j's log messages, and PySpark's warning about a JVM that has ended, from now on.

    py4j calls the JVM on a thread of its own to release objects, and logs the errors of these calls after the JVM has
    ended. Calls of the connector still raise their errors. py4j logs some messages through the root logger, so this
    function also adds a filter to the root logger. The connector kills the JVM if it needs no job, even during the
    start. PySpark then warns of a possible crash.
    """
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_not_of_py4j)
    warnings.filterwarnings("ignore", "Unable to cleanly shutdown Spark JVM process", RuntimeWarning)


def _ignore(*_: object) -> None:
    """Do nothing. Replaces a method of PySpark's accumulator server that prints a stack trace."""


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return f"{os.sep}py4j{os.sep}" not in record.pathname


# --- Imports that take time and memory -------------------------------------------------------------------------------


def import_arrow() -> None:
    """Import Arrow without pandas, which the connector does not use. Importing pandas takes a second and 60 MB.

    Arrow tries to import pandas only once, when it converts the first value.
    """
    with hide_pandas():
        import pyarrow as pa

        pa.array([])


@contextmanager
def hide_pandas() -> Iterator[None]:
    """Make imports of pandas on the current thread fail during the `with` block.

    Imports on other threads still succeed, because Spark Connect may import pandas on another thread.
    """
    finder = _PandasHider()
    # First in the list, before the finders that would find pandas.
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _PandasHider:
    """A finder for `sys.meta_path` that raises ModuleNotFoundError for pandas on the thread that created it.

    The class has no base class, because importing the usual base class takes a tenth of the run time of `spec`.
    """

    def __init__(self) -> None:
        self._thread = threading.get_ident()

    def find_spec(self, name: str, _path: Sequence[str] | None, _target: ModuleType | None = None) -> None:
        if name.partition(".")[0] == "pandas" and threading.get_ident() == self._thread:
            raise ModuleNotFoundError(f"{name} is hidden", name=name)


def prefer_installed_packages() -> None:
    """Make workers import PySpark from the installed package, not from Spark's zip files.

    Spark puts these zip files first in `sys.path`. The zip files contain no bytecode, so every worker would compile the
    modules in them again.
    """
    sys.path[:] = sorted(sys.path, key=_is_zip_of_installed_package)


def _is_zip_of_installed_package(entry: str) -> bool:
    path = Path(entry)
    return path.match("pyspark/python/lib/*.zip") and str(path.parents[3]) in sys.path
