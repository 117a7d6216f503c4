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

    - `cpu_seconds`: the larger of the kernel's count for reaped processes and the sum of the samples.
    - `cpu_by_process`: the sampled CPU seconds of the first process, of JVMs, and of all other processes.
    - `peak_bytes`: the maximum of all processes' proportional set sizes together, in two samples per second. Shared
      memory counts once.
    - `load`: the number of other processes that wanted a core in the minute before. Above 0, the machine was shared.
    - `growth`: ratios between the end and the start of a run, or between two runs.
    """

    seconds: float
    cpu_seconds: float
    cpu_by_process: Mapping[str, float]
    peak_bytes: int
    exit_code: int
    load: float  # processes that wanted a core in the minute before: above zero, the machine was not ours alone
    cloud_cpu_seconds: float = 0.0  # of the moto server, which is not among the processes above
    file_bytes: tuple[int, ...] = ()  # sizes of the data files that were written
    growth: Mapping[str, float] = field(default_factory=dict)  # ratios: a run's end to its begin, or to another run
    worker_peak_bytes: int = 0  # the largest proportional set size of one process that is neither the first nor a JVM


def measure(command: Sequence[str], *, stdin: Path | None, stdout: Path, stderr: Path, env: Mapping[str, str]) -> Cost:
    """Run `command` to its end, and return its cost. Kills processes that it leaves behind.

    The command reads its input from a file, not a pipe, because on the platform the source of the data runs elsewhere.
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
    """The figures of a process in /proc/PID/stat. `started` distinguishes it from a later process with the same ID."""

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
            with suppress(ProcessLookupError):  # The process has ended since it was listed.
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
