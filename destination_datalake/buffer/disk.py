"""The local disk that records wait on, and the errors of one that is full or broken."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from destination_datalake.unforeseen import exhaustion


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


class DiskReserve:
    """Disk space that is allocated in advance, to be released when the disk is full: landing needs a little."""

    def __init__(self, directory: Path, size: int) -> None:
        """Allocate `size` bytes. Raises DiskFailed if the disk has less."""
        self._path = directory / "reserve"
        with disk_errors(directory), self._path.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, size)

    def release(self) -> None:
        """Free the space. Idempotent."""
        self._path.unlink(missing_ok=True)
