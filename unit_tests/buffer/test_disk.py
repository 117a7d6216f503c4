"""The disk that records wait on: what is said when there is none, and the room that is kept free."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from destination_datalake.buffer.disk import DiskFailed, DiskReserve, buffer_directory


def test_a_folder_of_our_own_goes_with_what_is_in_it() -> None:
    with buffer_directory() as folder:
        (folder / "00000001.jsonl").touch()

    assert not folder.exists()


def test_where_no_folder_can_be_written_the_remedy_is_named() -> None:
    """No file may grow: so it is on a full disk."""
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


def test_the_reserve_takes_room_until_it_is_released(tmp_path: Path) -> None:
    reserve = DiskReserve(tmp_path, 4096)
    assert [path.stat().st_size for path in tmp_path.iterdir()] == [4096]

    reserve.release()

    assert list(tmp_path.iterdir()) == []
    with pytest.raises(DiskFailed, match=f"{tmp_path.parent}.*TMPDIR"):
        DiskReserve(tmp_path / "gone", 4096)
