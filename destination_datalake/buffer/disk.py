"""The disk of the buffer: its temporary directory, its errors, and the limit on open files."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import tempfile
from collections.abc import Iterator
from pathlib import Path

from destination_datalake.unforeseen import exhaustion

MiB = 1024 * 1024


class DiskFailed(Exception):
    """Raised if the disk of the buffer cannot be read or written.

    The text of the exception states the reason and the remedy.
    """


@contextlib.contextmanager
def disk_errors(directory: Path) -> Iterator[None]:
    """Convert an OSError from the `with` block to DiskFailed. The block reads or writes files in `directory`."""
    try:
        yield
    except OSError as error:
        raise DiskFailed(_message(directory, error)) from error


@contextlib.contextmanager
def buffer_directory() -> Iterator[Path]:
    """Create a temporary directory under TMPDIR, and delete it after the `with` block. Raises DiskFailed."""
    try:
        # After SIGTERM, job threads may still create files in the directory while it is deleted.
        directory = tempfile.TemporaryDirectory(prefix="destination-datalake-", ignore_cleanup_errors=True)
    except OSError as error:
        if (exhausted := exhaustion(error)) is not None:
            raise DiskFailed(f"Cannot buffer records on disk. {exhausted}") from error
        raise DiskFailed(f"Cannot buffer records on disk: {error}. Set TMPDIR to a writable folder.") from error
    with directory as path:
        yield Path(path)


def _message(directory: Path, error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            f"The buffer disk ({directory.parent}) is full. Provide at least buffer_size_mb of space, set TMPDIR to a "
            "folder on a larger disk, or lower buffer_size_mb."
        )
    if (exhausted := exhaustion(error)) is not None:
        return f"Cannot buffer records on disk. {exhausted}"
    return (
        f"The buffer disk ({directory.parent}) failed: {os.strerror(error.errno or 0)}. Set TMPDIR to a writable "
        "folder."
    )


def write_at(descriptor: int, data: bytes | memoryview, offset: int) -> int:
    """Write all bytes of `data` to a file at `offset`. Return the offset after these bytes. Raises OSError."""
    view = memoryview(data)
    while view:
        # A write can stop early, for example just before the disk is full. The next call then raises the error.
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written
    return offset


# --- File descriptors -----------------------------------------------------------------------------------------------

MAX_DESCRIPTORS = 65_536
"""The highest soft limit on open files that `raise_limit` sets. Some programs close every possible descriptor before an
exec, which takes long if the limit is higher."""


def raise_limit() -> None:
    """Raise this process's soft limit on open files to the hard limit, but at most to MAX_DESCRIPTORS.

    The soft limit is usually 1,024.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def share_of_limit(wanted: int) -> int:
    """Return `wanted`, but at most a quarter of the soft limit on open files. Connections and Spark need the rest."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if soft == resource.RLIM_INFINITY else max(1, min(wanted, soft // 4))
