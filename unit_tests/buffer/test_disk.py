"""The temporary directory, the errors of a disk that is full, and the limit of open files."""

from __future__ import annotations

import errno
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from destination_datalake.buffer.disk import (
    MAX_DESCRIPTORS,
    DiskFailed,
    buffer_directory,
    disk_errors,
    raise_limit,
    share_of_limit,
)


def test_the_buffer_directory_is_deleted_with_its_content() -> None:
    with buffer_directory() as directory:
        (directory / "00000001.jsonl").touch()

    assert not directory.exists()


def test_the_error_of_a_disk_that_cannot_be_written_names_the_remedy() -> None:
    """RLIMIT_FSIZE 0 keeps files from growing, as a full disk does."""
    program = """
import resource
from destination_datalake.buffer.disk import DiskFailed, buffer_directory
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
try:
    with buffer_directory():
        pass
except DiskFailed as error:
    raise SystemExit("TMPDIR" not in str(error))
raise SystemExit(2)
"""
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_descriptors_that_have_run_out_are_no_failure_of_the_disk(tmp_path: Path) -> None:
    with pytest.raises(DiskFailed, match="has run out of file descriptors") as raised, disk_errors(tmp_path):
        raise OSError(errno.EMFILE, "Too many open files")

    assert "TMPDIR" not in str(raised.value)


# --- File descriptors


def test_the_soft_limit_is_raised_to_the_hard_one_up_to_a_maximum() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MAX_DESCRIPTORS if before[1] == resource.RLIM_INFINITY else min(before[1], MAX_DESCRIPTORS)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
    try:
        raise_limit()

        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (most, before[1])
        raise_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (most, before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_share_is_a_quarter_of_the_limit_at_most() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (2048, before[1]))
        assert share_of_limit(256) == 256
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, before[1]))
        assert share_of_limit(256) == 32
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
