"""What must hold for a sync under any interleaving of its threads, of Spark, of the tables and of the platform.

A seed decides what the source sends and in which pieces, in which order blocked jobs, commits and publications go on,
which of them fail, and whether Spark ends or SIGTERM arrives. All other code is the connector's own.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from destination_datalake.buffer.batching import LearnedBatches
from destination_datalake.protocol.stdout import Stdout
from destination_datalake.sync.thread_pool import ThreadPool
from destination_datalake.termination import EXIT_TERMINATED, Termination
from unit_tests.sync.fakes.messages import state
from unit_tests.sync.fakes.schedule import FAULTS, Journal, Schedule, ScheduledExecutors, ScheduledTable
from unit_tests.sync.fakes.store import Store
from unit_tests.sync.fakes.sync import FakeSync

pytestmark = pytest.mark.share(2)

ROUNDS, SEEDS = 8, 50
STREAMS = ("a", "b", "c")
HANG_SECONDS = 30.0
_NUMBER = re.compile(rb'"id":(\d+)')
_STATISTICS = re.compile(rb',"destinationStats":{"recordCount":([\d.]+)(?:,"rejectedRecordCount":([\d.]+))?}')


@dataclass(frozen=True)
class SentState:
    """A STATE line, the stream it is for (None: all), and how many messages and records of each stream precede it."""

    line: bytes
    stream: str | None
    position: int
    records_before: dict[str, int]


class Source:
    """What the source sends. A record's id is its position among all messages."""

    def __init__(self, random: Random, streams: Sequence[str]) -> None:
        self.ids: dict[str, list[int]] = {stream: [] for stream in streams}
        self.states: list[SentState] = []
        self.scopes: list[str | None] = random.choice([[*streams], [None], [None, *streams]])
        lines = []
        sending = random.sample(streams, random.randint(1, len(streams)))
        for position in range(random.randint(0, 60)):
            stream = random.choice(sending)
            if random.random() < 0.7:
                self.ids[stream].append(position)
                record = f'{{"stream":"{stream}","data":{{"id":{position}}},"emitted_at":1}}'
                lines.append(f'{{"type":"RECORD","record":{record}}}'.encode())
            else:
                scope = random.choice(self.scopes)
                lines.append(state(len(self.states), scope))
                before = {name: len(ids) for name, ids in self.ids.items()}
                self.states.append(SentState(lines[-1], scope, position, before))
        self.bytes = b"".join(line + b"\n" for line in lines)

    def covered_by(self, sent: SentState) -> set[int]:
        """Return the ids of the records that the state acknowledges."""
        streams = self.ids if sent.stream is None else [sent.stream]
        return {id for stream in streams for id in self.ids[stream][: sent.records_before[stream]]}

    def states_of(self, scope: str | None) -> list[SentState]:
        """Return the states for a stream, or those for all streams."""
        return [sent for sent in self.states if sent.stream == scope]


class Run:
    """One sync, driven by one seed."""

    def __init__(self, seed: int, directory: Path) -> None:
        self._random = random = Random(seed)
        self.streams = STREAMS[: random.randint(1, len(STREAMS))]
        self.source = Source(random, self.streams)
        faults = random.choice([(), ("commit reencodes", "unit refuses records"), (random.choice(FAULTS),), FAULTS])
        self._schedule = Schedule(seed, faults)
        self._end_spark_at = random.choice([None, None, None, random.randint(0, 25)])
        self._terminate_at = random.choice([None, None, random.randint(0, 25)])
        self._eagerness = random.choice([0.1, 0.5, 0.9])
        self._started_at = random.choice([0, 0, random.randint(1, 25)])
        self._settle_seconds = random.choice([0.0, 0.0005])
        self._is_remote = random.random() < 0.4
        self._directory = directory
        directory.mkdir()
        self._sent = b""
        self._done = threading.Event()

    def run(self) -> None:
        """Run the sync; return when all its threads have nothing more to do."""
        stdin, stdin_writer = os.pipe()
        stdout_reader, stdout = os.pipe()
        self.journal = Journal(stdout_reader)
        self.executors = ScheduledExecutors(self._schedule, self.journal)
        termination = Termination()
        random = self._random
        sync = FakeSync(self._directory, termination, self.streams, self.executors)
        sync.batch_bytes = random.choice([100, 400, 2000])
        sync.buffer_bytes = random.choice([1000, 1_000_000])
        sync.flush_seconds = random.choice([0.0, 3600.0])
        if random.random() < 0.5:
            sync.policy = LearnedBatches(
                sync.batch_bytes, random.choice([50, 500]), sync.buffer_bytes, expected_yield=0.5
            )
        self.executors.tasks = random.choice([1, 2, 5])
        self.executors.starting = self._started_at > 0
        self.tables = {
            name: ScheduledTable(name, self.executors, self._schedule, self.journal) for name in self.streams
        }
        sync.tables.update(self.tables)
        driver = threading.Thread(target=self._drive, args=(stdin_writer, termination))
        driver.start()
        try:
            self.code = (
                self._run_remotely(sync, stdout, stdin) if self._is_remote else sync.run_on(Stdout(stdout), stdin)
            )
        finally:
            self._done.set()
            driver.join()
        self.journal.read_stdout()
        self.messages_read = self._sent[: len(self._sent) - _unread(stdin)].count(b"\n")
        self.terminated = termination.requested
        termination.close()
        for descriptor in (stdin, stdout_reader, stdout):
            os.close(descriptor)

    def _run_remotely(self, sync: FakeSync, stdout: int, stdin: int) -> int:
        """Run the sync with executors on another machine; nothing of it may be left in S3."""
        store, pool = Store(self._schedule, self.journal), ThreadPool(3, "staging")
        self.executors.read_staged = store.read
        try:
            with store.staging(pool) as sync.staging:
                code = sync.run_on(Stdout(stdout), stdin)
            if store.objects:
                self.journal.violations.append(f"{len(store.objects)} objects are left")
            return code
        finally:
            pool.close(lambda: False)

    def _drive(self, stdin: int, termination: Termination) -> None:
        """Feed stdin and let operations continue, in an order of the seed's, until the sync has ended."""
        random, remaining, is_open = self._random, self.source.bytes, True
        step, last_step = 0, time.monotonic()
        while not self._done.is_set():
            self.journal.read_stdout()
            if step == self._terminate_at:
                termination.request()
            if step == self._started_at:
                self.executors.starting = False
            if step == self._end_spark_at:
                self.executors.ended = True
            is_waiting = self._schedule.is_any_waiting(self._settle_seconds if is_open else 0.001)
            if is_waiting and not (is_open and random.random() < self._eagerness):
                self._schedule.release_one(random)
            elif remaining:
                size = random.choice([1, 100, 300, 1000, 10_000])
                os.write(stdin, remaining[:size])
                self._sent += remaining[:size]
                remaining = remaining[size:]
            elif is_open:
                os.close(stdin)
                is_open = False
            elif self.executors.starting:
                self.executors.starting = False
            elif time.monotonic() - last_step > HANG_SECONDS:
                self.journal.violations.append("the sync hangs")
                termination.request()
                self._schedule.release_all()
                break
            else:
                continue
            step, last_step = step + 1, time.monotonic()
        if is_open:
            os.close(stdin)
        self._schedule.release_all()


@pytest.mark.share(4)
@pytest.mark.parametrize("number", range(ROUNDS))
def test_the_invariants_of_a_sync_hold_under_any_interleaving(number: int, tmp_path: Path) -> None:
    for seed in range(number * SEEDS, (number + 1) * SEEDS):
        try:
            check(Run(seed, tmp_path / str(seed)))
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


def check(run: Run) -> None:
    run.run()

    assert run.journal.violations == []
    check_states(run)
    check_records(run)
    check_files(run)
    check_outcome(run)


def check_states(run: Run) -> None:
    """A state is written only once all its records are durable, in order, and every byte of it is echoed."""
    acknowledged: dict[str | None, list[SentState]] = {}
    total = 0.0
    for line, durable in run.journal.states:
        sent = run.source.states[_number(line)]
        assert _STATISTICS.sub(b"", line) == sent.line
        assert run.source.covered_by(sent) <= durable
        acknowledged.setdefault(sent.stream, []).append(sent)
        statistics = _STATISTICS.search(line)
        assert statistics is not None
        total += float(statistics[1]) + float(statistics[2] or 0)
    for scope, states in acknowledged.items():
        assert states == run.source.states_of(scope)[: len(states)], "no state is skipped"
    covered = set[int]().union(*(run.source.covered_by(sent) for states in acknowledged.values() for sent in states))
    assert total == len(covered), "the counts of all states together are those of the records they acknowledge"


def check_records(run: Run) -> None:
    """A record that was read is in its table, once, or its stream has failed; with one in no table the sync failed."""
    committed = Counter(id for table in run.tables.values() for uri in table.committed for id in run.executors.ids[uri])
    assert committed.keys() <= {id for ids in run.source.ids.values() for id in ids}
    assert set(committed.values()) <= {1}
    for stream, ids in run.source.ids.items():
        missing = {*ids} - committed.keys()
        assert not missing or run.code != 0
        if any(id < run.messages_read for id in missing):
            assert _failed(run, stream), "the stream's own failure is reported"


def check_files(run: Run) -> None:
    """Every file that was written is in a table or deleted."""
    kept_or_deleted = [uri for table in run.tables.values() for uri in (*table.committed, *table.discarded)]
    assert Counter(kept_or_deleted) == Counter([*run.executors.ids])


def check_outcome(run: Run) -> None:
    """The exit code says whether all streams were published; one stream's failure does not affect the others."""
    published = [stream for stream in run.streams if run.tables[stream].published]
    assert run.code in (0, 1) or run.terminated
    assert (run.code == 1) == bool(run.journal.traces) or run.code == EXIT_TERMINATED
    if run.code == 0:
        assert published == [*run.streams]
        assert len(run.journal.states) == len(run.source.states)
    if run.executors.ended:
        return
    assert all(b'"stream_descriptor"' in trace for trace in run.journal.traces), "no failure is the whole sync's"
    if run.terminated:
        if not run.journal.faulty:
            check_nothing_read_was_left(run)
        return
    for stream in set(run.streams) - run.journal.faulty:
        if None in run.source.scopes and run.journal.faulty:
            continue  # States for all streams can acknowledge nothing more of this one either.
        assert run.journal.durable >= {*run.source.ids[stream]}
        assert run.tables[stream].published
        assert not _failed(run, stream)
        acknowledged = {_number(line) for line, _ in run.journal.states}
        assert all(_number(sent.line) in acknowledged for sent in run.source.states_of(stream))


def check_nothing_read_was_left(run: Run) -> None:
    """After SIGTERM what was read is committed, and its states are released."""
    assert run.journal.durable == {id for ids in run.source.ids.values() for id in ids if id < run.messages_read}
    acknowledged = {_number(line) for line, _ in run.journal.states}
    assert acknowledged == {n for n, sent in enumerate(run.source.states) if sent.position < run.messages_read}


def _unread(stdin: int) -> int:
    os.set_blocking(stdin, False)
    try:
        return len(os.read(stdin, 1 << 16))
    except BlockingIOError:
        return 0


def _number(line: bytes) -> int:
    match = _NUMBER.search(line)
    assert match is not None
    return int(match[1])


def _failed(run: Run, stream: str) -> bool:
    return any(f'"name":"{stream}"'.encode() in trace for trace in run.journal.traces)
