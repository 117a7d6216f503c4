"""Run a command and measure wall time, CPU time and peak memory, including child processes. Linux only."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

SAMPLE_EVERY_MS = 500
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Cost:
    """The cost of a command from its start to its exit.

    - `cpu_seconds`: the larger number of the kernel's count for reaped processes and the sum of the samples.
    - `cpu_by_process`: the sampled CPU seconds of the first process ("driver"), of JVMs ("jvm"), and of all other
      processes ("workers").
    - `peak_bytes`: the maximum, over two samples per second, of the sum of the processes' proportional set sizes. This
      sum counts shared memory once.
    - `load`: the average number of processes that needed a core in the minute before the start. If it is above 0, other
      processes used the machine.
    - `growth`: ratios between the end and the start of a run, or between two runs.
    """

    seconds: float
    cpu_seconds: float
    cpu_by_process: Mapping[str, float]
    peak_bytes: int
    exit_code: int
    load: float
    cloud_cpu_seconds: float = 0.0  # The CPU time of the moto server, which is not among the processes above.
    file_bytes: tuple[int, ...] = ()  # The sizes of the data files that the command has written.
    growth: Mapping[str, float] = field(default_factory=dict)
    worker_peak_bytes: int = 0  # The largest proportional set size of a single process of the kind "workers".


def measure(command: Sequence[str], *, stdin: Path | None, stdout: Path, stderr: Path, env: Mapping[str, str]) -> Cost:
    """Run `command` to its end, and return its cost. Kill the processes that the command has left running.

    The command reads its input from a file instead of a pipe, because on Airbyte's platform the source of the data does
    not use this machine's cores.
    """
    with stdout.open("wb") as out, stderr.open("wb") as err, (stdin or Path(os.devnull)).open("rb") as source:
        load = os.getloadavg()[0]
        started = time.perf_counter()
        process = subprocess.Popen(command, stdin=source, stdout=out, stderr=err, env=env, start_new_session=True)
        tree = _ProcessTree(process.pid)
        ended = os.pidfd_open(process.pid)
        try:
            waiting = select.poll()
            waiting.register(ended, select.POLLIN)
            while not waiting.poll(SAMPLE_EVERY_MS):
                tree.sample()
            seconds = time.perf_counter() - started
            _, status, reaped = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        finally:
            os.close(ended)
            tree.kill()
    by_process = tree.cpu_by_process()
    return Cost(
        seconds=seconds,
        cpu_seconds=max(reaped.ru_utime + reaped.ru_stime, sum(by_process.values())),
        cpu_by_process=by_process,
        peak_bytes=tree.peak_bytes,
        exit_code=process.returncode,
        load=load,
        worker_peak_bytes=tree.worker_peak_bytes,
    )


@dataclass(frozen=True)
class _Process:
    """The figures of a process in /proc/PID/stat.

    `started` distinguishes the process from a later process with the same ID.
    """

    pid: int
    name: str
    parent: int
    session: int
    cpu_seconds: float
    started: int


class _ProcessTree:
    """A process, its descendants, and all other processes in its session, including orphans."""

    def __init__(self, root: int) -> None:
        self.peak_bytes = self.worker_peak_bytes = 0
        self._root = root
        self._seen: dict[tuple[int, int], _Process] = {}

    def sample(self) -> None:
        members = self._members()
        for process in members:
            self._seen[process.pid, process.started] = process
        sizes = {process: _proportional_set_size(process.pid) for process in members}
        self.peak_bytes = max(self.peak_bytes, sum(sizes.values()))
        workers = (size for process, size in sizes.items() if self._kind(process) == "workers")
        self.worker_peak_bytes = max(self.worker_peak_bytes, *workers, 0)

    def cpu_by_process(self) -> dict[str, float]:
        totals: dict[str, float] = {}
        for process in self._seen.values():
            kind = self._kind(process)
            totals[kind] = totals.get(kind, 0.0) + process.cpu_seconds
        return totals

    def _kind(self, process: _Process) -> str:
        return "driver" if process.pid == self._root else "jvm" if process.name == "java" else "workers"

    def kill(self) -> None:
        for process in self._members():
            with suppress(ProcessLookupError):  # The process may have ended since the listing.
                os.kill(process.pid, signal.SIGKILL)

    def _members(self) -> list[_Process]:
        running = {process.pid: process for process in _processes()}

        def belongs(process: _Process | None) -> bool:
            while process is not None:
                if process.session == self._root or (process.pid, process.started) in self._seen:
                    return True
                process = running.get(process.parent)
            return False

        return [process for process in running.values() if belongs(process)]


def _processes() -> Iterator[_Process]:
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                text = Path(entry.path, "stat").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue
            name, fields = text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2 :].split()
            if fields[0] != "Z":
                cpu_seconds = (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND
                yield _Process(int(entry.name), name, int(fields[1]), int(fields[3]), cpu_seconds, int(fields[19]))


def _proportional_set_size(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except (FileNotFoundError, ProcessLookupError):
        pass
    return 0
