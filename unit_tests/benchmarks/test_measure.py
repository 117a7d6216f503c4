"""The benchmark's process tree: it kills processes that outlive a command."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from benchmarks import measure
from benchmarks.measure import _processes, _ProcessTree


def test_process_that_ends_between_listing_and_kill_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    command = [sys.executable, "-c", "input()"]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as ended,
        subprocess.Popen(command, stdin=subprocess.PIPE) as running,
    ):
        tree = _ProcessTree(ended.pid)

        def listed() -> Iterator[measure._Process]:
            listing = {process.pid: process for process in _processes()}
            ended.kill()
            ended.wait()
            return iter([listing[ended.pid], replace(listing[running.pid], session=ended.pid)])

        monkeypatch.setattr(measure, "_processes", listed)
        tree.kill()

        assert running.wait(10) == -9
