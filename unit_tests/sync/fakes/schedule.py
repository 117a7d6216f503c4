"""Fakes of Spark and of tables whose operations wait until a seed lets them continue, or fail."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from random import Random

from destination_datalake.files.plan import DataFile, Encoded, EncodeTask, EncodeUnit, NotEncoded, UnitResult
from destination_datalake.files.segments import SegmentGone
from destination_datalake.spark.backend import SparkFailed
from destination_datalake.sync.landing import MAX_ENCODINGS
from destination_datalake.tables.table import (
    CommitStateUnknown,
    Committed,
    Reencode,
    Rewrite,
    TableBusy,
    TableConflict,
    TableName,
)
from unit_tests.sync.fakes.executors import FakeExecutors, not_encoded
from unit_tests.sync.fakes.table import FakeTable

FAULTS = (
    "prepare fails",
    "upload fails",
    "upload's answer is lost",
    "segment vanishes",
    "spark ends",
    "job fails",
    "unit fails",
    "unit loses a record",
    "unit refuses records",
    "commit succeeds and spark ends",
    "commit fails",
    "commit state unknown",
    "commit reencodes",
    "publish fails",
)


class Schedule:
    """Blocks operations until their turn has come. How each ends depends on the seed and on its name alone."""

    def __init__(self, seed: int, faults: Sequence[str]) -> None:
        self._seed = seed
        self._faults = faults
        self._counts: Counter[str] = Counter()
        self._waiting: list[threading.Event] = []
        self._changed = threading.Condition()
        self._open = False

    def wait_for_turn(self, operation: str, *possible: str) -> str | None:
        """Block until the operation's turn. Return which of the possible faults it is to have, or None."""
        with self._changed:
            self._counts[operation] += 1
            random = Random(f"{self._seed} {operation} {self._counts[operation]}")
            faults = [fault for fault in possible if fault in self._faults]
            fault = random.choice(faults) if faults and random.random() < 0.25 else None
            if self._open:
                return fault
            turn = threading.Event()
            self._waiting.append(turn)
            self._changed.notify_all()
        turn.wait()
        return fault

    def is_any_waiting(self, seconds: float) -> bool:
        """Return whether an operation waits for its turn, now or within so many seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: bool(self._waiting), seconds)

    def release_one(self, random: Random) -> None:
        """Let one of the waiting operations continue."""
        with self._changed:
            self._waiting.pop(random.randrange(len(self._waiting))).set()

    def release_all(self) -> None:
        """Let all operations continue, and block no further one."""
        with self._changed:
            self._open = True
            while self._waiting:
                self._waiting.pop().set()


class Journal:
    """What happened, in order: states as the platform reads them, records that became durable, and violations."""

    def __init__(self, stdout: int) -> None:
        os.set_blocking(stdout, False)
        self._stdout = stdout
        self._unfinished = b""
        self._lock = threading.Lock()
        self.durable: set[int] = set()
        self.states: list[tuple[bytes, frozenset[int]]] = []
        """STATE lines, each with the ids of the records that were durable before it was written."""
        self.traces: list[bytes] = []
        self.faulty: set[str] = set()
        """The streams of which an operation failed."""
        self.violations: list[str] = []

    def read_stdout(self) -> None:
        """Read what the connector has written so far."""
        with self._lock:
            self._read()

    def make_durable(self, ids: Iterable[int]) -> None:
        """Note that these records are durable from now on. All states that were written before are read first."""
        with self._lock:
            self._read()
            self.durable.update(ids)

    def _read(self) -> None:
        while True:
            try:
                came = os.read(self._stdout, 1 << 16)
            except BlockingIOError:
                return
            if not came:
                return
            *lines, self._unfinished = (self._unfinished + came).split(b"\n")
            for line in lines:
                if line.startswith(b'{"type":"STATE"'):
                    self.states.append((line, frozenset(self.durable)))
                elif line.startswith(b'{"type":"TRACE"'):
                    self.traces.append(line)


class ScheduledExecutors(FakeExecutors):
    """Executors whose jobs wait for their turn."""

    def __init__(self, schedule: Schedule, journal: Journal) -> None:
        super().__init__()
        self._schedule = schedule
        self._journal = journal

    def encode(self, tasks: Sequence[EncodeTask]) -> Sequence[UnitResult]:
        units = [unit for task in tasks for unit in task.units]
        fault = self._schedule.wait_for_turn(
            f"encode {units[0].name}",
            "spark ends",
            "job fails",
            "unit fails",
            "unit loses a record",
            "unit refuses records",
        )
        self.ended |= fault == "spark ends"
        if self.ended:
            raise SparkFailed("Spark has ended.")
        if fault == "job fails":
            self._journal.faulty |= {unit.stream.name for unit in units}
            raise RuntimeError("the job failed")
        self.jobs += 1
        results = [self._encode(unit, 2 if fault == "unit refuses records" else 0) for unit in units]
        *preceding, last = results
        if fault not in ("unit fails", "unit loses a record") or isinstance(last, NotEncoded):
            return results
        self._journal.faulty.add(last.stream.name)
        if fault == "unit fails":
            del self.ids[last.files[0].uri]
            return [*preceding, not_encoded(last.stream)]
        self.ids[last.files[0].uri].pop()
        return [*preceding, replace(last, files=(replace(last.files[0], rows=last.files[0].rows - 1),))]

    def _encode(self, unit: EncodeUnit, refused: int) -> Encoded | NotEncoded:
        try:
            return self.encode_unit(unit, refused)
        except SegmentGone:
            return not_encoded(unit.stream)


class ScheduledTable(FakeTable):
    """A table whose operations wait for their turn."""

    def __init__(self, stream: str, executors: ScheduledExecutors, schedule: Schedule, journal: Journal) -> None:
        super().__init__(TableName("raw", stream))
        self._stream = stream
        self._executors = executors
        self._schedule = schedule
        self._journal = journal
        self._commits = threading.Lock()
        self._commit_failed = False
        self._encodings = 0

    def prepare(self) -> None:
        if self._next_fault("prepare", "prepare fails"):
            raise TableConflict("The table is another stream's.")

    def commit(self, files: Sequence[DataFile], _rewrite: Rewrite) -> Committed | Reencode:
        if not self._commits.acquire(blocking=False):
            self._journal.violations.append(f"two commits to {self._stream} at the same time")
        try:
            if self._commit_failed:
                self._journal.violations.append(f"a commit to {self._stream} after one that failed")
            return self._commit([file.uri for file in files])
        finally:
            self._commits.release()

    def merge_is_due(self) -> bool:
        return False

    def merge(self) -> None:
        pass

    def publish(self, _rewrite: Rewrite) -> None:
        if self.published:
            self._journal.violations.append(f"{self._stream} was published twice")
        if self._next_fault("publish", "publish fails"):
            raise TableBusy("Other writers have changed the table each time.")
        self.published = True

    def _commit(self, uris: list[str]) -> Committed | Reencode:
        fault = self._next_fault("commit", *(fault for fault in FAULTS if fault.startswith("commit ")))
        self._commit_failed = fault in ("commit fails", "commit state unknown")
        match fault:
            case "commit fails":
                self.discarded += uris
                raise TableBusy("Other writers have changed the table each time.")
            case "commit state unknown":
                self.committed += uris
                raise CommitStateUnknown("The answer was lost.")
            case "commit reencodes":
                self.discarded += uris
                self._encodings += 1
                if self._encodings == MAX_ENCODINGS:
                    self._journal.faulty.add(self._stream)
                return Reencode("its columns have changed")
            case "commit succeeds and spark ends":
                self._executors.ended = True
        self._encodings = 0
        self.committed += uris
        self._journal.make_durable(id for uri in uris for id in self._executors.ids[uri])
        return Committed()

    def _next_fault(self, operation: str, *possible: str) -> str | None:
        fault = self._schedule.wait_for_turn(f"{operation} {self._stream}", *possible)
        if fault not in (None, "commit reencodes", "commit succeeds and spark ends"):
            self._journal.faulty.add(self._stream)
        return fault
