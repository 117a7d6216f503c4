"""PySpark's worker daemon, from which workers are forked, with all modules imported that they need.

It is a fork of the driver, which needs most of these modules as well, made while Spark's JVM starts. What the JVM runs
as its daemon (Spark property `spark.python.daemon.module`) is this module: it hands its place over to the fork, or
becomes the daemon itself if there is none. The first job waits for that, so the module imports little.
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
"""The variable with the path of the socket at which the daemon waits."""

_MALLOC_PARAMETERS = {"MALLOC_TRIM_THRESHOLD_": -1, "MALLOC_MMAP_THRESHOLD_": -3}
"""Variables that the C library reads when a program starts, and what mallopt(3) calls them."""


# --- in the driver ---------------------------------------------------------------------------------------------------


def fork_daemon(path: Path) -> int:
    """Fork a daemon that waits for a JVM at `path`, in a folder of this user's own; return its process id.

    It ends with that JVM, or with this process if none has come. To be called while this process has one thread. Raises
    OSError.
    """
    from destination_datalake.spark.executors.python import WORKER_ENVIRONMENT

    # Arrow's allocator reads them when it is loaded.
    for name, value in WORKER_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    _import_all()
    with socket.socket(socket.AF_UNIX) as listener:
        _at(str(path), listener.bind)
        listener.listen(1)
        # The other end stays open as long as this process lives.
        driver, _ = os.pipe()
        if (pid := os.fork()) == 0:
            _run(listener, driver)
        os.close(driver)
    return pid


def _at(path: str, use: Callable[[str], None]) -> None:
    """Bind or connect a socket at this path, by a short name: a socket's may have 107 characters. Raises OSError."""
    folder, name = os.path.split(path)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        use(f"/proc/self/fd/{descriptor}/{name}")
    finally:
        os.close(descriptor)


# --- the daemon ------------------------------------------------------------------------------------------------------


def _import_all() -> None:
    """Import what each worker would import at its start, or for its first file."""
    import gc

    from destination_datalake.spark.classic.pyspark_internals import hide_pandas

    with hide_pandas():
        import boto3  # noqa: F401
        import pyspark.daemon
        import pyspark.worker  # noqa: F401

        import destination_datalake.files.encode  # noqa: F401
    # Freeze before the fork, so that garbage collection does not dirty copy-on-write pages.
    gc.freeze()


def _manage() -> NoReturn:
    """Be the daemon, with this process's standard input and output."""
    from pyspark import daemon

    from destination_datalake.spark.classic.pyspark_internals import hide_pandas

    with hide_pandas():
        daemon.manager()
    sys.exit(0)


def _run(listener: socket.socket, driver: int) -> NoReturn:
    """Be the daemon in the fork, once a JVM asks for it."""
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
        # Nothing of the driver's is to be flushed or finalised here.
        os._exit(code)


def _forget_driver(kept: Collection[int]) -> None:
    """Close the driver's files, pipes and connections except those in `kept`, and undo what it has set up."""
    import logging
    import signal
    from contextlib import suppress
    from pathlib import Path

    # A signal to the driver's group does not end a sync that still commits.
    os.setpgid(0, 0)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(nothing, descriptor)
    for descriptor in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
        if descriptor > 2 and descriptor not in kept:
            with suppress(OSError):  # that of the folder itself
                os.close(descriptor)
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(fd, mode, closefd=False) for fd, mode in enumerate("rww"))
    sys.excepthook = sys.__excepthook__
    sys.setswitchinterval(0.005)
    logging.getLogger().handlers.clear()


def _is_asked_for(listener: socket.socket, driver: int) -> bool:
    """Wait for a JVM; return False if the driver ends before."""
    import select

    waiting = select.poll()
    waiting.register(listener, select.POLLIN)
    waiting.register(driver, select.POLLIN)
    return any(descriptor == listener.fileno() for descriptor, _ in waiting.poll())


def _take_over(listener: socket.socket) -> None:
    """Take the place of the process that the JVM has started: its pipes, its arguments, its environment."""
    connection, _ = listener.accept()
    # The JVM starts another daemon when this one has ended, which is not to find its address.
    listener.close()
    # That process ends with this one, whatever workers do.
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
    """Set what a program takes from its environment, and from the JVM that starts it, when it starts."""
    import ctypes
    import resource

    library = ctypes.CDLL(None)
    for name, parameter in _MALLOC_PARAMETERS.items():
        if hasattr(library, "mallopt") and (value := os.environ.get(name, "")).isdecimal():
            library.mallopt(parameter, int(value))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


# --- what the JVM runs -----------------------------------------------------------------------------------------------


def _hand_over(path: str) -> bool:
    """Let the daemon at this path do the work of this process, until it ends; return False if there is none."""
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            _at(path, connection.connect)
        except OSError:
            return False
        socket.send_fds(connection, [b"\0"], [0, 1, 2])
        variables = (f"{name}={value}" for name, value in os.environ.items())
        connection.sendall(os.fsencode("\0".join([str(len(sys.argv)), *sys.argv, *variables])))
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1)  # Nothing is sent.
    return True


if __name__ == "__main__" and not (ADDRESS in os.environ and _hand_over(os.environ[ADDRESS])):
    # Executors of clusters have no driver beside them, and Spark starts another daemon when one has ended.
    from destination_datalake.spark.classic.pyspark_internals import prefer_installed_packages

    prefer_installed_packages()
    _import_all()
    _manage()
