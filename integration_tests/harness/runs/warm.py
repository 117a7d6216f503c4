"""Runs of the connector that cost little: each a process of its own, forked from one that has everything imported.

A scenario is about what a sync does, not about how Python and a JVM start. So the connector's console entry runs in a
fork of a process in which its imports are done (multiprocessing's forkserver), and it finds a Spark that is already
up: the JVM of the test session, to which any number of drivers can attach. All else is as ever: its own process id,
arguments, environment, pipes, signals and exit code.
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
    """Where drivers reach the JVM of the test session; PySpark's own names for its environment."""

    port: int
    secret: str

    def environment(self) -> dict[str, str]:
        return {"PYSPARK_GATEWAY_PORT": str(self.port), "PYSPARK_GATEWAY_SECRET": self.secret}


_DAEMON = {"spark.python.daemon.module": "integration_tests.harness.runs.worker_daemon"}


class SharedSpark(AbstractContextManager["SharedSpark"]):
    """A local Spark with the connector's own settings, up from entering to leaving."""

    gateway: Gateway
    context: "SparkContext"

    def __enter__(self) -> Self:
        # Spark's launcher, which any property of SQL asks for, has the jars of SQL: tests read with it.
        self._backend = ClassicBackend(ClassicSettings("local[2]", {**_DAEMON, "spark.sql.session.timeZone": "UTC"}))
        submit_args = os.environ.get("PYSPARK_SUBMIT_ARGS")
        self._backend.start()
        if submit_args is None:
            # The launcher sets it, and other tests' connectors would take it for a user's.
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
    """Starts runs of the connector (a `platform.Launch`), which kill themselves at `kill_point` if there is one.

    With `file_bytes` the kernel lets no file that they write grow beyond it (setrlimit(2): RLIMIT_FSIZE): a write stops
    short and the next one fails, as on a full disk, but with EFBIG. A disk that is really full takes root to make.
    With `stdout` they write to this descriptor, and their `stdout` is an empty pipe.
    With `descriptors` they begin with this soft and hard limit of open files (RLIMIT_NOFILE); the JVM is not theirs.
    With `shared_disk` False they take Spark's executors for those of a cluster, which do not see their disk.
    With `patience` they end so many seconds after SIGTERM, instead of the connector's own `TERMINATION_SECONDS`.
    With `folder` they work in this folder.
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
    """A run that was started so; a `Process`. Leaving the `with` block kills it and closes its pipes."""

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
    """Be the console script: what follows happens in the forked process."""
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
        # multiprocessing would print the exception, where the interpreter asks this hook.
        sys.excepthook(*sys.exc_info())
        code = 1
    sys.exit(code)


def _attach(_backend: ClassicBackend) -> "SparkContext":
    """Take the running JVM's Spark instead of starting one."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    drop_sql_converters()
    gateway = launch_gateway()  # type: ignore[no-untyped-call]
    java = gateway.jvm.org.apache.spark
    context = java.api.java.JavaSparkContext(java.SparkContext.getOrCreate())
    conf = SparkConf(loadDefaults=False, _jvm=gateway.jvm, _jconf=context.getConf())
    # Workers of a Spark of its own find what the run's environment says of credentials, and the user's files of them.
    variables = {name: value for name, value in os.environ.items() if name.startswith("AWS_") or name == "HOME"}
    attached = SparkContext(conf=conf, gateway=gateway, jsc=context, environment=variables)
    hand_over_without_files(attached)
    # An orderly end would stop it for all other runs.
    attached.stop = lambda: None  # type: ignore[method-assign]
    # In a container, workers find the environment's credentials; this JVM's workers have to be told of the run's. They
    # are started for it, so only runs that need them get their own.
    if "AWS_ACCESS_KEY_ID" in os.environ:
        attached.environment.update({name: value for name, value in os.environ.items() if name.startswith("AWS_")})
    return attached
