"""The conductor with fakes of Spark and of the tables: what lands, what is acknowledged, and when it stops."""

from __future__ import annotations

import json
import os
import resource
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from destination_datalake.buffer.disk import MiB
from destination_datalake.buffer.staging import Segment
from destination_datalake.files.plan import EncodeTask, UnitResult
from destination_datalake.files.segments import LocalFile, StagedObject
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.protocol.stdout import Stdout
from destination_datalake.spark.engine import Engine
from destination_datalake.sync.conductor import staging_for
from destination_datalake.tables.table import Committed
from destination_datalake.termination import EXIT_TERMINATED, Termination
from unit_tests.cloud import BUCKET, Cloud
from unit_tests.sync.fakes.executors import FakeExecutors
from unit_tests.sync.fakes.messages import failures, record, state, states
from unit_tests.sync.fakes.sync import FakeSync
from unit_tests.sync.fakes.table import raising

pytestmark = pytest.mark.share(8)


@pytest.fixture
def sync(tmp_path: Path) -> Iterator[FakeSync]:
    termination = Termination()
    yield FakeSync(tmp_path, termination)
    termination.close()


def test_a_sync_commits_acknowledges_and_publishes_what_it_reads(sync: FakeSync) -> None:
    code, messages = sync.run([record("a"), state(1, "a"), record("b"), record("b"), state(2, "b"), state(3, None)])

    assert (code, failures(messages)) == (0, {})
    assert sorted(states(messages)) == [1, 2, 3]
    assert (sync.a.rows, sync.b.rows, sync.a.published, sync.b.published) == (1, 2, True, True)


# --- One stream's failure


@pytest.mark.parametrize("moment", ["on_prepare", "on_plan", "on_commit"])
def test_an_error_of_one_stream_fails_that_stream_alone(sync: FakeSync, moment: str) -> None:
    setattr(sync.a, moment, raising(RuntimeError("can't start new thread")))

    code, messages = sync.run([record("a"), state(1, "a"), record("b"), state(2, "b")])

    assert (code, list(failures(messages)), states(messages)) == (1, ["a"], [2])
    assert (sync.a.rows, sync.b.rows, sync.a.published, sync.b.published) == (0, 1, False, True)


def test_a_sync_whose_job_thread_was_ended_fails_and_does_not_hang(sync: FakeSync) -> None:
    class EndingExecutors(FakeExecutors):
        def encode(self, tasks: Sequence[EncodeTask]) -> list[UnitResult]:  # noqa: ARG002
            raise SystemExit

    sync.executors = EndingExecutors()

    code, messages = sync.run([record("a"), state(1, "a")])

    assert (code, list(failures(messages)), states(messages)) == (1, ["a"], [])


def test_a_failed_stream_commits_nothing_more(sync: FakeSync) -> None:
    sync.batch_bytes = MiB
    commits = []

    def commit() -> Committed:
        commits.append(1)
        raise ValueError("no")

    sync.a.on_commit = commit

    code, messages = sync.run(record("a", 1000) for _ in range(20_000))

    assert (code, list(failures(messages))) == (1, ["a"])
    assert len(commits) <= 2, "one for each job that was running"


def test_with_global_states_a_failed_stream_stops_the_others(sync: FakeSync) -> None:
    sync.a.on_commit = raising(ValueError("no"))
    sync.batch_bytes = MiB

    def lines() -> Iterator[bytes]:
        for number in range(100):
            yield from [record("a", 1000), record("b", 1000)] * 1000
            yield state(number, None)

    code, messages = sync.run(lines())

    assert (code, states(messages)) == (1, [])
    assert failures(messages)["a"][0] == "system_error"
    # The other fails too if some of its records were not committed.
    assert all("stream a has failed" in message for name, (_, message) in failures(messages).items() if name == "b")
    assert sync.b.rows < 100_000
    assert not sync.b.published


@pytest.mark.parametrize("descriptor", [{}, {"stream_descriptor": {"name": "a"}}])
def test_a_stream_with_an_error_of_the_source_is_committed_and_not_published(
    sync: FakeSync, descriptor: dict[str, Any]
) -> None:
    error = {"type": "TRACE", "trace": {"type": "ERROR", "error": {"message": "no", **descriptor}}}

    code, messages = sync.run([record("a"), state(1, "a"), json.dumps(error).encode()])

    assert (code, states(messages), sync.a.rows, sync.a.published) == (1, [1], 1, False)
    assert failures(messages)["a"][0] == "transient_error"


# --- Spark


@pytest.mark.parametrize("streams", [("a",), ("a", "b")])
def test_reading_stops_when_spark_has_ended(sync: FakeSync, streams: tuple[str, ...]) -> None:
    sync.executors.ended = True
    sync.batch_bytes = MiB
    sent = []

    def lines() -> Iterator[bytes]:
        for number in range(200_000):
            sent.append(number)
            yield record(streams[number % len(streams)], 1000)

    code, messages = sync.run(lines())

    assert (code, sync.a.published) == (1, False)
    assert {kind for kind, _ in failures(messages).values()} == {"transient_error"}
    assert len(sent) < 200_000
    assert sync.executors.jobs <= 3


@pytest.mark.parametrize("more", [0, 1, 100_000])
def test_a_sync_whose_spark_ends_between_two_batches_succeeds_only_if_it_published(sync: FakeSync, more: int) -> None:
    sync.flush_seconds = 1.0

    def commit() -> Committed:
        sync.executors.ended = True
        return Committed()

    def lines() -> Iterator[bytes]:
        yield record("a")
        while not sync.a.rows:
            time.sleep(0.01)
        time.sleep(0.1)  # Let the sync notice that Spark has ended.
        yield from [record("a")] * more

    sync.a.on_commit = commit

    code, messages = sync.run(lines())

    # If all records were committed before, the tables are published: that needs no Spark.
    assert sync.a.rows == 1
    assert (code == 0) == sync.a.published == (not failures(messages))
    assert {kind for kind, _ in failures(messages).values()} <= {"transient_error"}
    assert code == 1 or not more


# --- stdout


def test_a_state_that_cannot_be_written_fails_the_sync(sync: FakeSync) -> None:
    """As when stdout is a file and its disk is full."""
    full = os.open("/dev/full", os.O_WRONLY)

    code = sync.run_to(Stdout(full), [record("a"), state(1, "a")])

    os.close(full)
    assert code == 1


def test_a_closed_stdout_fails_the_sync_after_its_records_are_committed(sync: FakeSync) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)

    code = sync.run_to(Stdout(write_end), [record("a"), state(1, "a")])

    os.close(write_end)
    assert (code, sync.a.rows) == (1, 1)


def test_a_stdout_that_is_not_read_delays_neither_commits_nor_the_end_after_sigterm(
    sync: FakeSync,
) -> None:
    sync.patience = 0.5
    sync.flush_seconds = 1.0

    def lines() -> Iterator[bytes]:
        yield from (state(number, "b") for number in range(5000))  # More than a pipe holds.
        yield from [record("a")] * 50
        while sync.a.rows < 50:
            time.sleep(0.01)
        threading.Thread(target=sync.termination.request).start()
        while not sync.termination.requested:
            time.sleep(0.01)

    read_end, write_end = os.pipe()

    assert sync.run_to(Stdout(write_end), lines()) == EXIT_TERMINATED

    assert sync.a.rows == 50
    os.close(read_end)
    os.close(write_end)


@pytest.mark.share(1)
@pytest.mark.parametrize(
    ("count", "expected"),
    [pytest.param(1, 0, id="a pipe holds the state"), pytest.param(5000, EXIT_TERMINATED, id="states are missing")],
)
def test_a_sync_that_is_terminated_after_publication_succeeds_only_if_all_states_are_written(
    sync: FakeSync, count: int, expected: int
) -> None:
    class SlowlyRead(Stdout):
        """A stdout whose reader reads just enough that no write fails at the deadline."""

        def give_up_after(self, seconds: float) -> None:
            pass

    sync.patience = 0.3
    terminating = threading.Thread(target=terminate_after_publication, args=(sync,))
    terminating.start()
    read_end, write_end = os.pipe()
    reading = threading.Thread(target=read_slowly, args=(read_end,))
    reading.start()

    code = sync.run_to(SlowlyRead(write_end), [state(number, "a") for number in range(count)])

    assert (code, sync.a.published) == (expected, True)
    for thread in [terminating, *(thread for thread in threading.enumerate() if thread.name == "states")]:
        thread.join()
    os.close(write_end)
    reading.join()


def read_slowly(descriptor: int) -> None:
    with open(descriptor, "rb", buffering=0) as reader:
        while reader.read(4096):
            time.sleep(0.01)


def terminate_after_publication(sync: FakeSync) -> None:
    while not sync.a.published:
        time.sleep(0.01)
    sync.termination.request()


def test_sigterm_ends_a_sync_whose_tables_do_not_answer(sync: FakeSync) -> None:
    answered = threading.Event()

    def wait() -> None:
        answered.wait()

    def lines() -> Iterator[bytes]:
        yield state(1, "a")
        threading.Timer(0.3, sync.termination.request).start()
        while not sync.termination.requested:
            time.sleep(0.01)

    sync.a.on_prepare = sync.b.on_prepare = wait

    code, messages = sync.run(lines())

    assert (code, failures(messages)) == (EXIT_TERMINATED, {})
    answered.set()


# --- The disk


def test_a_full_disk_ends_the_reading_and_what_was_read_is_committed(sync: FakeSync) -> None:
    def lines() -> Iterator[bytes]:
        yield record("b")
        yield state(1, "b")
        yield from [record("a", 1000)] * 8000
        yield state(2, "a")

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5 * 1024 * 1024, before[1]))
    try:
        code, messages = sync.run(lines())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)

    assert (code, states(messages), sync.b.rows) == (1, [1], 1)
    assert 3000 < sync.a.rows < 8000
    assert list(failures(messages)) == [None]
    kind, message = failures(messages)[None]
    assert kind == "transient_error"
    assert "TMPDIR" in message
    assert not sync.a.published


def test_a_line_too_large_for_the_memory_ends_the_reading_and_what_was_read_is_committed(sync: FakeSync) -> None:
    before = resource.getrlimit(resource.RLIMIT_AS)
    padding = b"x" * (64 * MiB)
    sync.flush_seconds = 0.1

    def lines() -> Iterator[bytes]:
        yield record("a")
        yield state(1, "a")
        while not sync.a.rows:  # All threads run now: a thread needs more memory to start.
            time.sleep(0.01)
        yield record("a")
        yield state(2, "a")
        in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (in_use + 100 * MiB, before[1]))
        yield padding

    try:
        code, messages = sync.run(lines())
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)

    assert (code, states(messages), sync.a.rows, sync.a.published) == (1, [1, 2], 2, False)
    kind, message = failures(messages)[None]
    assert kind == "transient_error"
    assert "run out of memory" in message


# --- States


def test_held_states_count_as_buffered_bytes(sync: FakeSync) -> None:
    """With more states than the buffer has room for, records are committed early so that states can be released."""
    sync.buffer_bytes = sync.batch_bytes = 16 * MiB
    sync.flush_seconds = 3600.0
    padding = json.dumps({"p": "x" * 1_000_000}).encode()[1:-1]

    def lines() -> Iterator[bytes]:
        for number in range(40):
            yield record("a")
            yield state(number, "a").replace(b'"id"', padding + b',"id"')

    code, messages = sync.run(lines())

    assert (code, states(messages)) == (0, list(range(40)))
    assert sync.executors.jobs > 1


# --- Where executors read


@pytest.mark.parametrize(("is_local", "place"), [(True, LocalFile), (False, StagedObject)])
def test_what_only_this_machine_has_is_never_for_executors_on_another(
    cloud: Cloud, tmp_path: Path, is_local: bool, place: type
) -> None:
    backend: Any = SimpleNamespace(is_local=is_local)
    engine = Engine(backend)
    path = tmp_path / "1.jsonl"
    path.write_bytes(b"a\n")
    segment = Segment(StreamId(None, "a"), path, 0, 1, 2, 0.0)

    with staging_for(engine, tmp_path, f"s3://{BUCKET}/_staging", "0123456789ab", cloud.access) as staging:
        staging.begin(segment)

        assert isinstance(staging.stage(segment).location, place)
        assert staging.scratch().startswith(tmp_path.as_uri() if is_local else f"s3://{BUCKET}/_staging/0123456789ab/")
