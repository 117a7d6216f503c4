"""The conductor, with everything around it in memory: what lands, what is acknowledged, and when it stops."""

from __future__ import annotations

import json
import os
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from destination_datalake.aws.access import AccessKeys, AwsAccess
from destination_datalake.buffer.segments import Segment
from destination_datalake.buffer.staging import LocalStaging, Staging
from destination_datalake.config.options import Config
from destination_datalake.files.plan import DataFile, FilePlan
from destination_datalake.files.tasks import Encoded, EncodeTask, UnitResult
from destination_datalake.protocol.catalog import Stream, StreamId
from destination_datalake.protocol.stdout import Stdout
from destination_datalake.rejects.counts import RejectCounts
from destination_datalake.rejects.ledger import RejectLedger
from destination_datalake.rejects.limit import RejectLimit
from destination_datalake.rejects.location import Partition, RejectFile
from destination_datalake.spark.engine import Engine
from destination_datalake.spark.failure import SparkFailed
from destination_datalake.sync.conductor import EXIT_TERMINATED, _Sync
from destination_datalake.sync.landing import ENCODINGS, Landing
from destination_datalake.sync.termination import Termination
from destination_datalake.tables.glue.rejects_table import RejectsTable
from destination_datalake.tables.table import Committed, Reencode, Rewrite, TableName
from unit_tests.cloud import BUCKET, cloud

ACCESS = AwsAccess("us-east-1", AccessKeys("AKIAIOSFODNN7EXAMPLE", "not-a-secret"))
OPTIONS = {
    "credentials": {"credentials_title": "IAM User", "aws_access_key_id": "AKIA1", "aws_secret_access_key": "x"},
    "region": "us-east-1",
    "bucket_name": "lake",
    "lakeformation_database_name": "raw",
}


class CountingSpark(Engine):
    """A Spark that counts the lines of segments instead of encoding them."""

    def __init__(self) -> None:
        self.died = False
        self.jobs = 0

    @property
    def local(self) -> bool:
        return True

    def parallelism(self) -> int:
        return 1

    def is_starting(self) -> bool:
        return False

    @property
    def error(self) -> SparkFailed | None:
        return SparkFailed("Spark has gone.") if self.died else None

    def encode(self, tasks: Sequence[EncodeTask]) -> list[UnitResult]:
        self.jobs += 1
        if self.died:
            raise SparkFailed("Spark could not run a job.")
        return [
            Encoded(unit.stream, (_file(unit.name, unit.segments),), RejectCounts(), ())
            for task in tasks
            for unit in task.units
        ]


def _file(name: str, segments: Iterable[str]) -> DataFile:
    rows = sum(Path(segment).read_bytes().count(b"\n") for segment in segments)
    return DataFile(f"s3://lake/{name}", rows, rows, (), b"", None)


@dataclass
class MemoryTable:
    """A table that counts its rows. What is asked of it may raise, or wait."""

    name: TableName
    on_prepare: Callable[[], None] = lambda: None
    on_plan: Callable[[], None] = lambda: None
    on_commit: Callable[[], Committed | Reencode] = Committed
    on_discard: Callable[[], None] = lambda: None
    rows: int = 0
    published: bool = False
    discarded: int = 0

    def prepare(self) -> None:
        self.on_prepare()

    def plan(self) -> FilePlan:
        self.on_plan()
        return FilePlan("parquet", "ZSTD", (), {}, "s3://lake", False, 1, None, None)

    def commit(self, files: Sequence[DataFile], _rewrite: Rewrite) -> Committed | Reencode:
        answer = self.on_commit()
        self.rows += sum(file.rows for file in files) if answer == Committed() else 0
        return answer

    def publish(self, _rewrite: Rewrite) -> None:
        self.published = True

    def discard(self, files: Sequence[DataFile]) -> None:
        self.on_discard()
        self.discarded += len(files)


@dataclass
class Stage:
    """A sync of the streams `a` and `b`, and what is around it."""

    directory: Path
    termination: Termination
    spark: CountingSpark = field(default_factory=CountingSpark)
    patience: float = 30.0
    options: dict[str, Any] = field(default_factory=dict)
    staging: Staging = field(default_factory=LocalStaging)

    def __post_init__(self) -> None:
        self.streams = [Stream(StreamId(None, name), {}, False, None, None, None) for name in ("a", "b")]
        self.a, self.b = (MemoryTable(TableName("raw", name)) for name in ("a", "b"))

    def run(self, lines: Iterable[bytes]) -> tuple[int, list[dict[str, Any]]]:
        """Run the sync on these lines; return its exit code and what it wrote."""
        read_end, write_end = os.pipe()
        written: list[bytes] = []
        reader = threading.Thread(target=lambda: written.append(_all(read_end)))
        reader.start()
        code = self.run_to(Stdout(write_end), lines)
        os.close(write_end)
        reader.join()
        return code, [json.loads(line) for line in written[0].splitlines()]

    def run_to(self, out: Stdout, lines: Iterable[bytes]) -> int:
        """Run the sync on these lines; whatever of them it does not read is lost."""
        read_end, write_end = os.pipe()
        writer = threading.Thread(target=_send, args=(write_end, lines))
        writer.start()
        try:
            return self.run_on(out, read_end)
        finally:
            os.close(read_end)
            writer.join()

    def run_on(self, out: Stdout, stdin: int) -> int:
        tables = {stream.id: table for stream, table in zip(self.streams, (self.a, self.b), strict=True)}
        openers = {stream: partial(_same, table) for stream, table in tables.items()}
        book = RejectLedger(
            "s3://lake/_errors", "sync", "2026-01-01", RejectLimit(1.0, None), RejectsTable("raw", "", ACCESS), ACCESS
        )
        new_landing = partial(Landing, openers, self.spark, self.staging, ACCESS, "sync", book)
        config = Config.parse({**OPTIONS, **self.options})
        self.termination.tell(partial(out.give_up_after, self.patience))
        sync = _Sync(config, self.streams, new_landing, self.directory, out, self.termination, self.patience)
        return sync.run(stdin)


@dataclass
class SmallStaging:
    """A place for so many segments."""

    room: int
    places: set[str] = field(default_factory=set)

    def stage(self, segment: Segment) -> str:
        if len(self.places) == self.room:
            raise OSError("full")
        self.places.add(str(segment.path))
        return str(segment.path)

    def delete(self, locations: Iterable[str]) -> None:
        self.places.difference_update(locations)


def _same(table: MemoryTable) -> MemoryTable:
    return table


def _all(descriptor: int) -> bytes:
    with open(descriptor, "rb") as reader:
        return reader.read()


def _send(descriptor: int, lines: Iterable[bytes]) -> None:
    try:
        with open(descriptor, "wb", buffering=0) as writer:
            for line in lines:
                writer.write(line + b"\n")
    except BrokenPipeError:
        return


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    termination = Termination()
    yield Stage(tmp_path, termination)
    termination.close()


def record(stream: str, padding: int = 0) -> bytes:
    return b'{"type":"RECORD","record":{"stream":"%b","data":{"x":"%b"},"emitted_at":1}}' % (
        stream.encode(),
        b"x" * padding,
    )


def state(number: int, stream: str | None) -> bytes:
    body: dict[str, Any] = {"type": "GLOBAL", "global": {"shared_state": {}}}
    if stream is not None:
        body = {"type": "STREAM", "stream": {"stream_descriptor": {"name": stream}}}
    return json.dumps({"type": "STATE", "state": {**body, "id": number}}).encode()


def states(messages: Iterable[dict[str, Any]]) -> list[int]:
    return [message["state"]["id"] for message in messages if message["type"] == "STATE"]


def failures(messages: Iterable[dict[str, Any]]) -> dict[str | None, tuple[str, str]]:
    """Type and sentence of each failure, by stream; the whole sync's is None's."""
    errors = [message["trace"]["error"] for message in messages if message["type"] == "TRACE"]
    return {
        error.get("stream_descriptor", {}).get("name"): (error["failure_type"], error["message"]) for error in errors
    }


def raising(error: Exception) -> Callable[[], Any]:
    def call() -> Any:
        raise error

    return call


def test_what_is_read_lands_is_acknowledged_and_published(stage: Stage) -> None:
    code, said = stage.run([record("a"), state(1, "a"), record("b"), record("b"), state(2, "b"), state(3, None)])

    assert (code, failures(said)) == (0, {})
    assert sorted(states(said)) == [1, 2, 3]
    assert (stage.a.rows, stage.b.rows, stage.a.published, stage.b.published) == (1, 2, True, True)


# --- One stream's failure


@pytest.mark.parametrize("moment", ["on_prepare", "on_plan", "on_commit"])
def test_whatever_is_raised_for_one_stream_leaves_the_other_alone(stage: Stage, moment: str) -> None:
    setattr(stage.a, moment, raising(RuntimeError("can't start new thread")))

    code, said = stage.run([record("a"), state(1, "a"), record("b"), state(2, "b")])

    assert (code, list(failures(said)), states(said)) == (1, ["a"], [2])
    assert (stage.a.rows, stage.b.rows, stage.a.published, stage.b.published) == (0, 1, False, True)


def test_a_stream_that_has_failed_commits_nothing_more(stage: Stage) -> None:
    stage.options = {"batch_size_mb": 1}
    commits = []

    def commit() -> Committed:
        commits.append(1)
        raise ValueError("no")

    stage.a.on_commit = commit

    code, said = stage.run(record("a", 1000) for _ in range(20_000))

    assert (code, list(failures(said))) == (1, ["a"])
    assert len(commits) <= 2, "one for each job that was running"


def test_where_states_speak_for_all_streams_nothing_lands_that_they_cannot_acknowledge(stage: Stage) -> None:
    stage.a.on_commit = raising(ValueError("no"))
    stage.options = {"batch_size_mb": 1}

    def lines() -> Iterator[bytes]:
        for number in range(100):
            yield from [record("a", 1000), record("b", 1000)] * 1000
            yield state(number, None)

    code, said = stage.run(lines())

    assert (code, states(said)) == (1, [])
    assert failures(said)["a"][0] == "system_error"
    # What of the other had not landed, if anything, is told of.
    assert all("stream a has failed" in sentence for name, (_, sentence) in failures(said).items() if name == "b")
    assert stage.b.rows < 100_000
    assert not stage.b.published


def test_a_table_that_changes_under_every_encoding_is_given_up_without_loss(stage: Stage) -> None:
    stage.a.on_commit = lambda: Reencode("its columns have changed")

    code, said = stage.run([record("a"), state(1, "a"), record("b"), state(2, "b")])

    assert (code, states(said), stage.b.rows) == (1, [2], 1)
    kind, sentence = failures(said)["a"]
    assert kind == "transient_error"
    assert "table raw.a" in sentence
    assert "its columns have changed" in sentence
    assert stage.spark.jobs == ENCODINGS


@pytest.mark.parametrize("room", [1, 2])
def test_of_a_batch_that_cannot_be_handed_over_nothing_stays_for_executors(stage: Stage, room: int) -> None:
    stage.staging = staging = SmallStaging(room)
    if room == 2:
        stage.a.on_plan = raising(RuntimeError())

    code, said = stage.run([record("a", 1024 * 1024)] * 20)  # Two segments.

    assert (code, [*failures(said)], staging.places) == (1, ["a"], set())


def test_rejects_of_a_failed_batch_go_also_where_its_files_cannot(stage: Stage) -> None:
    reject = RejectFile(Partition("REASON", "raw.a", "2026-01-01"), f"s3://{BUCKET}/_errors/reject.jsonl.gz")

    class MiscountingSpark(CountingSpark):
        def encode(self, tasks: Sequence[EncodeTask]) -> list[UnitResult]:
            return [Encoded(unit.stream, (), RejectCounts(), (reject,)) for task in tasks for unit in task.units]

    stage.spark = MiscountingSpark()
    stage.a.on_discard = raising(PermissionError())
    with cloud() as account:
        account.access.client("s3").put_object(Bucket=BUCKET, Key="_errors/reject.jsonl.gz", Body=b"")

        code, said = stage.run([record("a")])

        assert (code, [*failures(said)], account.objects()) == (1, ["a"], {})


# --- Spark


@pytest.mark.parametrize("streams", [("a",), ("a", "b")])
def test_with_spark_gone_reading_stops(stage: Stage, streams: tuple[str, ...]) -> None:
    stage.spark.died = True
    stage.options = {"batch_size_mb": 1}
    sent = []

    def lines() -> Iterator[bytes]:
        for number in range(200_000):
            sent.append(number)
            yield record(streams[number % len(streams)], 1000)

    code, said = stage.run(lines())

    assert (code, stage.a.published) == (1, False)
    assert {kind for kind, _ in failures(said).values()} == {"transient_error"}
    assert len(sent) < 200_000
    assert stage.spark.jobs <= 3


@pytest.mark.parametrize("more", [0, 1, 100_000])
def test_with_spark_gone_between_two_batches_nothing_succeeds_that_was_not_published(stage: Stage, more: int) -> None:
    stage.options = {"flush_interval_seconds": 1}

    def commit() -> Committed:
        stage.spark.died = True
        return Committed()

    def lines() -> Iterator[bytes]:
        yield record("a")
        while not stage.a.rows:
            time.sleep(0.01)
        time.sleep(0.1)  # Whatever follows from that does.
        yield from [record("a")] * more

    stage.a.on_commit = commit

    code, said = stage.run(lines())

    # All records may have been committed before; then the tables that need no Spark are published.
    assert stage.a.rows == 1
    assert (code == 0) == stage.a.published == (not failures(said))
    assert {kind for kind, _ in failures(said).values()} <= {"transient_error"}
    assert code == 1 or not more


# --- Standard output


def test_a_state_that_cannot_be_written_fails_the_sync(stage: Stage) -> None:
    """A platform that keeps stdout in a file, on a disk that is full."""
    full = os.open("/dev/full", os.O_WRONLY)

    code = stage.run_to(Stdout(full), [record("a"), state(1, "a")])

    os.close(full)
    assert code == 1


def test_a_platform_that_has_gone_fails_the_sync(stage: Stage) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)

    code = stage.run_to(Stdout(write_end), [record("a"), state(1, "a")])

    os.close(write_end)
    assert (code, stage.a.rows) == (1, 1)


def test_a_platform_that_does_not_read_keeps_neither_records_from_landing_nor_sigterm_from_ending_it(
    stage: Stage,
) -> None:
    stage.patience = 0.5
    stage.options = {"flush_interval_seconds": 1}

    def lines() -> Iterator[bytes]:
        yield from (state(number, "b") for number in range(5000))  # More than a pipe holds.
        yield from [record("a")] * 50
        while stage.a.rows < 50:
            time.sleep(0.01)
        threading.Thread(target=stage.termination._note, args=(signal.SIGTERM, None)).start()
        while not stage.termination.requested:
            time.sleep(0.01)

    read_end, write_end = os.pipe()

    assert stage.run_to(Stdout(write_end), lines()) == EXIT_TERMINATED

    assert stage.a.rows == 50
    os.close(read_end)
    os.close(write_end)


def test_sigterm_does_not_wait_for_an_aws_that_does_not_answer(stage: Stage) -> None:
    answered = threading.Event()

    def wait() -> None:
        answered.wait()

    def lines() -> Iterator[bytes]:
        yield state(1, "a")
        threading.Timer(0.3, stage.termination._note, (signal.SIGTERM, None)).start()
        while not stage.termination.requested:
            time.sleep(0.01)

    stage.a.on_prepare = stage.b.on_prepare = wait

    code, said = stage.run(lines())

    assert (code, failures(said)) == (EXIT_TERMINATED, {})
    answered.set()


# --- The disk


def test_a_disk_that_is_full_ends_the_reading_and_what_was_read_lands(stage: Stage) -> None:
    def lines() -> Iterator[bytes]:
        yield record("b")
        yield state(1, "b")
        yield from [record("a", 1000)] * 8000
        yield state(2, "a")

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5 * 1024 * 1024, before[1]))
    try:
        code, said = stage.run(lines())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)

    assert (code, states(said), stage.b.rows) == (1, [1], 1)
    assert 3000 < stage.a.rows < 8000
    assert list(failures(said)) == [None]
    kind, sentence = failures(said)[None]
    assert kind == "transient_error"
    assert "TMPDIR" in sentence
    assert not stage.a.published


# --- States


def test_states_that_wait_take_disk_which_counts_as_what_is_buffered(stage: Stage) -> None:
    """Far more states than the buffer has room for: records are landed early so that their states can leave."""
    stage.options = {"buffer_size_mb": 16, "batch_size_mb": 16, "flush_interval_seconds": 3600}
    padding = json.dumps({"p": "x" * 1_000_000}).encode()[1:-1]

    def lines() -> Iterator[bytes]:
        for number in range(40):
            yield record("a")
            yield state(number, "a").replace(b'"id"', padding + b',"id"')

    code, said = stage.run(lines())

    assert (code, states(said)) == (0, list(range(40)))
    assert stage.spark.jobs > 1
