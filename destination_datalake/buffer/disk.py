"""The disk that records wait on, and what to tell somebody whose disk will take no more."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path


class DiskFailed(Exception):
    """The disk cannot take, or give back, what has to wait on it. The text says why and what to do."""


@contextlib.contextmanager
def disk_errors(directory: Path) -> Iterator[None]:
    """Turn a failure of the file system under `directory` into DiskFailed."""
    try:
        yield
    except OSError as error:
        raise DiskFailed(_sentence(directory, error)) from error


@contextlib.contextmanager
def buffer_directory() -> Iterator[Path]:
    """A folder of our own under TMPDIR, which goes with all that is in it. Raises DiskFailed."""
    try:
        folder = tempfile.TemporaryDirectory(prefix="destination-datalake-", ignore_cleanup_errors=True)
    except OSError as error:
        raise DiskFailed(
            f"Records cannot wait on disk: {error}. Set TMPDIR to a folder that can be written."
        ) from error
    with folder as path:
        yield Path(path)


def _sentence(directory: Path, error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            f"The disk on which records wait ({directory.parent}) is full. Give it as much room as buffer_size_mb, "
            "set TMPDIR to a folder on a larger disk, or lower buffer_size_mb."
        )
    return (
        f"The disk on which records wait ({directory.parent}) failed: {os.strerror(error.errno or 0)}. "
        "Set TMPDIR to a folder that can be written."
    )


class DiskReserve:
    """Room on the disk that is kept free for the moment when there is no other: landing needs a little of it."""

    def __init__(self, directory: Path, size: int) -> None:
        """Take `size` bytes. Raises DiskFailed if there are not as many."""
        self._path = directory / "reserve"
        with disk_errors(directory), self._path.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, size)

    def release(self) -> None:
        """Give the room back."""
        self._path.unlink(missing_ok=True)
