"""Start runs of the connector quickly, in processes that are forked from one with all modules imported.

Tests are about syncs, not about the start of Python and a JVM. A run is therefore a fork of a process that has imported
the connector (multiprocessing's forkserver). It attaches to the JVM of the test session, which serves any number of
drivers. A run has its own process ID, arguments, environment, pipes, signals and exit code.
"""

import faulthandler
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from types import TracebackType
from typing import IO, TYPE_CHECKING, Self

from destination_datalake.spark.classic.backend import ClassicBackend
from destination_datalake.spark.classic.pyspark_internals import drop_sql_converters, hand_over_without_files
from destination_datalake.spark.classic.settings import ClassicSettings
from destination_datalake.sync import conductor
from integration_tests.harness.runs.kill_points import KillPoint, arm

if TYPE_CHECKING:
    from pyspark import SparkContext

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["integration_tests.harness.runs.preloaded"])


@dataclass(frozen=True)
class Gateway:
    """The address and secret of the test session's JVM, as the environment variables of PySpark."""

    port: int
    secret: str

    def environment(self) -> dict[str, str]:
        return {"PYSPARK_GATEWAY_PORT": str(self.port), "PYSPARK_GATEWAY_SECRET": self.secret}


_DAEMON = {"spark.python.daemon.module": "integration_tests.harness.runs.worker_daemon"}


class SharedSpark(AbstractContextManager["SharedSpark"]):
    """A local Spark with the connector's settings, which runs within a `with` block."""

    gateway: Gateway
    context: "SparkContext"

    def __enter__(self) -> Self:
        # Any SQL property makes Spark's launcher add the jars of Spark SQL, with which tests read tables.
        self._backend = ClassicBackend(ClassicSettings("local[2]", {**_DAEMON, "spark.sql.session.timeZone": "UTC"}))
        submit_args = os.environ.get("PYSPARK_SUBMIT_ARGS")
        self._backend.start()
        if submit_args is None:
            # Remove the variable that the launcher sets, because connectors in other tests would take it for a user's
            # setting.
            os.environ.pop("PYSPARK_SUBMIT_ARGS", None)
        self.context = self._backend.context
        assert self.context._gateway is not None
        parameters = self.context._gateway.gateway_parameters
        self.gateway = Gateway(parameters.port, parameters.auth_token)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._backend.stop(orderly=False)


@dataclass(frozen=True)
class WarmLaunch:
    """Starts runs of the connector in forked processes (a `Launch`).

    - `kill_point`: where runs kill themselves, or None.
    - `file_bytes`: the maximum size of a file that runs write (setrlimit(2): RLIMIT_FSIZE). Larger writes fail with
      EFBIG, as an approximation of a full disk, which takes root to make.
    - `stdout`: a descriptor for the output of runs. Their pipe `stdout` is then empty.
    - `descriptors`: the soft and hard limit of open files (RLIMIT_NOFILE). The JVM is not affected.
    - `shared_disk`: if False, runs treat Spark's executors as those of a cluster, which cannot see the connector's
      disk.
    - `patience`: the seconds after SIGTERM at which runs end, instead of the connector's `TERMINATION_SECONDS`.
    - `folder`: the working directory of runs.
    """

    gateway: Gateway
    kill_point: KillPoint | None = None
    file_bytes: int | None = None
    descriptors: tuple[int, int] | None = None
    stdout: int | None = None
    shared_disk: bool = True
    patience: float | None = None
    folder: str = "."

    def killed_at(self, point: KillPoint) -> "WarmLaunch":
        return replace(self, kill_point=point)

    def with_files_of(self, file_bytes: int) -> "WarmLaunch":
        return replace(self, file_bytes=file_bytes)

    def with_descriptors(self, soft: int, hard: int) -> "WarmLaunch":
        return replace(self, descriptors=(soft, hard))

    def without_shared_disk(self) -> "WarmLaunch":
        return replace(self, shared_disk=False)

    def with_patience(self, seconds: float) -> "WarmLaunch":
        return replace(self, patience=seconds)

    def with_stdout(self, descriptor: int) -> "WarmLaunch":
        return replace(self, stdout=descriptor)

    def in_folder(self, folder: str) -> "WarmLaunch":
        return replace(self, folder=folder)

    def __call__(self, arguments: Sequence[str], environment: Mapping[str, str], stderr: IO[bytes]) -> "WarmProcess":
        stdin, to_stdin = _context.Pipe(duplex=False)
        from_stdout, pipe = _context.Pipe(duplex=False)
        stdout = pipe if self.stdout is None else Connection(os.dup(self.stdout), readable=False)
        errors = Connection(os.dup(stderr.fileno()), readable=False)
        settings = {**environment, **self.gateway.environment()}
        process = _context.Process(
            target=_run,
            args=(replace(self, stdout=None), list(arguments), settings, stdin, stdout, errors),
            daemon=True,
        )
        with stdin, pipe, stdout, errors, to_stdin, from_stdout:
            process.start()
            return WarmProcess(process, os.dup(to_stdin.fileno()), os.dup(from_stdout.fileno()))


class WarmProcess:
    """A run that `WarmLaunch` started (a `Process`). Leaving the `with` block kills it and closes its pipes."""

    def __init__(self, process: ForkServerProcess, stdin: int, stdout: int) -> None:
        assert process.pid is not None
        self.pid: int = process.pid
        self.stdin: IO[bytes] = os.fdopen(stdin, "wb")
        self.stdout: IO[bytes] = os.fdopen(stdout, "rb")
        self._process = process

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        self._process.join()
        self.stdout.close()
        with suppress(BrokenPipeError):
            self.stdin.close()

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, sig: int) -> None:
        if self._process.exitcode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, sig)

    def kill(self) -> None:
        self._process.kill()

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("write", timeout or 0.0)
        return self._process.exitcode


def _run(
    launch: WarmLaunch,
    arguments: list[str],
    environment: dict[str, str],
    stdin: Connection,
    stdout: Connection,
    stderr: Connection,
) -> None:
    """Run the console script in the forked process, and exit with its code."""
    for descriptor, pipe in enumerate((stdin, stdout, stderr)):
        os.dup2(pipe.fileno(), descriptor)
        pipe.close()
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(fd, mode, closefd=False) for fd, mode in enumerate("rww"))
    sys.argv = ["destination-datalake", *arguments]
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(launch.folder)
    faulthandler.enable(2)
    tempfile.tempdir = None
    ClassicBackend.launch = lambda _: None  # type: ignore[assignment,method-assign]
    ClassicBackend._new_context = _attach  # type: ignore[assignment,method-assign]
    if not launch.shared_disk:
        ClassicSettings.is_local = property(lambda _: False)  # type: ignore[assignment,method-assign]
    if launch.patience is not None:
        conductor.TERMINATION_SECONDS = launch.patience  # type: ignore[assignment]
    if launch.kill_point is not None:
        arm(launch.kill_point)
    if launch.file_bytes is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (launch.file_bytes, launch.file_bytes))
    if launch.descriptors is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, launch.descriptors)

    from destination_datalake.cli import run

    try:
        code = run()
    except SystemExit:
        raise
    except BaseException:
        # Without this, multiprocessing would print the exception instead of calling the hook.
        sys.excepthook(*sys.exc_info())
        code = 1
    sys.exit(code)


def _attach(_backend: ClassicBackend) -> "SparkContext":
    """Attach to the Spark of the running JVM, instead of starting one."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    drop_sql_converters()
    gateway = launch_gateway()  # type: ignore[no-untyped-call]
    java = gateway.jvm.org.apache.spark
    context = java.api.java.JavaSparkContext(java.SparkContext.getOrCreate())
    conf = SparkConf(loadDefaults=False, _jvm=gateway.jvm, _jconf=context.getConf())
    # Pass the run's AWS variables and home folder to the workers, because a Spark of the run's own would inherit them.
    variables = {name: value for name, value in os.environ.items() if name.startswith("AWS_") or name == "HOME"}
    attached = SparkContext(conf=conf, gateway=gateway, jsc=context, environment=variables)
    hand_over_without_files(attached)
    # Stopping the context would stop it for all other runs.
    attached.stop = lambda: None  # type: ignore[method-assign]
    # Python workers find credentials in the environment. Workers with other variables are started separately, so only
    # runs with such credentials get workers of their own.
    if "AWS_ACCESS_KEY_ID" in os.environ:
        attached.environment.update({name: value for name, value in os.environ.items() if name.startswith("AWS_")})
    return attached
