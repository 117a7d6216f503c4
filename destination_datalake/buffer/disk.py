"""The local disk that records wait on, the errors of one that is full or broken, and the limit of open files."""

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
    """The disk cannot be written or read. The text is for the user: the reason and the remedy."""


@contextlib.contextmanager
def disk_errors(directory: Path) -> Iterator[None]:
    """Raise OSErrors of the body as DiskFailed; `directory` is the one being written or read."""
    try:
        yield
    except OSError as error:
        raise DiskFailed(_message(directory, error)) from error


@contextlib.contextmanager
def buffer_directory() -> Iterator[Path]:
    """Make a temporary directory under TMPDIR, deleted with its content at the end. Raises DiskFailed."""
    try:
        directory = tempfile.TemporaryDirectory(prefix="destination-datalake-", ignore_cleanup_errors=True)
    except OSError as error:
        if (exhausted := exhaustion(error)) is not None:
            raise DiskFailed(f"Records cannot wait on disk. {exhausted}") from error
        raise DiskFailed(
            f"Records cannot wait on disk: {error}. Set TMPDIR to a folder that can be written."
        ) from error
    with directory as path:
        yield Path(path)


def _message(directory: Path, error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            f"The disk on which records wait ({directory.parent}) is full. Give it as much room as buffer_size_mb, "
            "set TMPDIR to a folder on a larger disk, or lower buffer_size_mb."
        )
    if (exhausted := exhaustion(error)) is not None:
        return f"Records cannot wait on disk. {exhausted}"
    return (
        f"The disk on which records wait ({directory.parent}) failed: {os.strerror(error.errno or 0)}. "
        "Set TMPDIR to a folder that can be written."
    )


# --- File descriptors -----------------------------------------------------------------------------------------------

MAX_DESCRIPTORS = 65_536
"""With a higher limit, programs that close every possible descriptor before an exec become slow."""


def raise_limit() -> None:
    """Raise the soft limit, often 1,024, to the hard one: the connections and files of each stream take some."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def share_of_limit(wanted: int) -> int:
    """Return `wanted`, or a quarter of the process's limit if that is less: connections and Spark need the rest."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if soft == resource.RLIM_INFINITY else max(1, min(wanted, soft // 4))
