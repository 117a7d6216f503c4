"""PySpark's worker daemon, which forks Python workers that already have all their modules imported.

The daemon is a fork of the driver, because the driver imports most of these modules anyway. The driver forks the daemon
while Spark's JVM starts. The JVM then starts this module in a new process (Spark property
`spark.python.daemon.module`). The new process passes its pipes to the forked daemon. If there is no forked daemon, the
new process becomes the daemon itself. The first job waits for the new process, so this module imports few other
modules.
"""

from __future__ import annotations

import os
import socket
import sys
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

ADDRESS = "DESTINATION_DATALAKE_WORKER_DAEMON"
"""The environment variable that contains the path of the socket on which the forked daemon listens."""

_MALLOC_PARAMETERS = {"MALLOC_TRIM_THRESHOLD_": -1, "MALLOC_MMAP_THRESHOLD_": -3}
"""Maps environment variables, which the C library reads when a program starts, to the corresponding parameter numbers
of mallopt(3)."""


# --- In the driver ---------------------------------------------------------------------------------------------------


def fork_daemon(path: Path) -> int:
    """Fork a daemon, which waits at the socket `path` for the process that the JVM starts. Return its process ID.

    `path` must be in a private folder of this user. The daemon ends when the JVM ends or, if no JVM has connected, when
    this process ends. This process must have only one thread. Raises OSError.
    """
    from destination_datalake.spark.executors.python import WORKER_ENVIRONMENT

    # Arrow's allocator reads these variables when Arrow is imported.
    for name, value in WORKER_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    _import_all()
    with socket.socket(socket.AF_UNIX) as listener:
        _at(str(path), listener.bind)
        listener.listen(1)
        # The write end of this pipe stays open until this process ends, so that the daemon can detect this end.
        driver, _ = os.pipe()
        if (pid := os.fork()) == 0:
            _run(listener, driver)
        os.close(driver)
    return pid


def _at(path: str, use: Callable[[str], None]) -> None:
    """Bind or connect a socket at `path`. Uses a short alias, because socket paths have at most 107 characters.

    `use` is the socket's method `bind` or `connect`. Raises OSError.
    """
    folder, name = os.path.split(path)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        use(f"/proc/self/fd/{descriptor}/{name}")
    finally:
        os.close(descriptor)


# --- The daemon ------------------------------------------------------------------------------------------------------


def _import_all() -> None:
    """Import all modules that a Python worker needs at its start or to encode its first file."""
    import gc

    from destination_datalake.spark.classic.pyspark_internals import hide_pandas

    with hide_pandas():
        import boto3  # noqa: F401
        import pyspark.daemon
        import pyspark.worker  # noqa: F401

        import destination_datalake.files.encode  # noqa: F401
    # Freeze before the fork, so that garbage collection does not modify copy-on-write pages.
    gc.freeze()


def _manage() -> NoReturn:
    """Run PySpark's daemon on the standard input and output of this process. Does not return."""
    from pyspark import daemon

    from destination_datalake.spark.classic.pyspark_internals import hide_pandas

    with hide_pandas():
        daemon.manager()
    sys.exit(0)


def _run(listener: socket.socket, driver: int) -> NoReturn:
    """Wait in the forked process until a JVM connects, then run the daemon. Does not return."""
    code = 1
    try:
        _forget_driver({listener.fileno(), driver})
        if _is_asked_for(listener, driver):
            os.close(driver)
            _take_over(listener)
            _manage()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    finally:
        # Exit without the driver's exit handlers and without flushing its buffers. The fork has inherited both.
        os._exit(code)


def _forget_driver(kept: Collection[int]) -> None:
    """Close the driver's files, pipes and connections except `kept`, and reset its signal handlers and hooks."""
    import logging
    import signal
    from contextlib import suppress
    from pathlib import Path

    # Leave the driver's process group, so that a signal to the group does not stop a sync that is still committing.
    os.setpgid(0, 0)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(nothing, descriptor)
    for descriptor in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
        if descriptor > 2 and descriptor not in kept:
            with suppress(OSError):  # The descriptor of the listed folder is already closed.
                os.close(descriptor)
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(fd, mode, closefd=False) for fd, mode in enumerate("rww"))
    sys.excepthook = sys.__excepthook__
    sys.setswitchinterval(0.005)
    logging.getLogger().handlers.clear()


def _is_asked_for(listener: socket.socket, driver: int) -> bool:
    """Wait until a JVM connects, and return True. Return False if the driver ends first."""
    import select

    waiting = select.poll()
    waiting.register(listener, select.POLLIN)
    waiting.register(driver, select.POLLIN)
    return any(descriptor == listener.fileno() for descriptor, _ in waiting.poll())


def _take_over(listener: socket.socket) -> None:
    """Take over the pipes, arguments and environment of the process that the JVM has started."""
    connection, _ = listener.accept()
    # If this daemon ends, the JVM starts another process, which must not connect to this address.
    listener.close()
    # The process that the JVM has started ends when this connection closes, so workers must not keep the connection
    # open.
    os.register_at_fork(after_in_child=connection.close)
    _, descriptors, _, _ = socket.recv_fds(connection, 1, 3)
    for target, descriptor in enumerate(descriptors):
        os.dup2(descriptor, target)
        os.close(descriptor)
    with connection.makefile("rb") as state:
        count, *words = os.fsdecode(state.read()).split("\0")
    sys.argv[:] = words[: int(count)]
    os.environ.clear()
    os.environ.update(word.partition("=")[::2] for word in words[int(count) :])
    _set_limits()


def _set_limits() -> None:
    """Apply the memory and file limits that a new process would get from its environment and from the JVM."""
    import ctypes
    import resource

    library = ctypes.CDLL(None)
    for name, parameter in _MALLOC_PARAMETERS.items():
        if hasattr(library, "mallopt") and (value := os.environ.get(name, "")).isdecimal():
            library.mallopt(parameter, int(value))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


# --- The process that the JVM starts ---------------------------------------------------------------------------------


def _hand_over(path: str) -> bool:
    """Pass the pipes of this process to the daemon at `path`, wait until the daemon ends, and return True.

    Return False if no daemon listens at `path`.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            _at(path, connection.connect)
        except OSError:
            return False
        socket.send_fds(connection, [b"\0"], [0, 1, 2])
        variables = (f"{name}={value}" for name, value in os.environ.items())
        connection.sendall(os.fsencode("\0".join([str(len(sys.argv)), *sys.argv, *variables])))
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1)  # The daemon sends nothing, so this call returns when the daemon ends.
    return True


if __name__ == "__main__" and not (ADDRESS in os.environ and _hand_over(os.environ[ADDRESS])):
    # There is no forked daemon on the executors of clusters, or after the forked daemon has ended.
    from destination_datalake.spark.classic.pyspark_internals import prefer_installed_packages

    prefer_installed_packages()
    _import_all()
    _manage()
