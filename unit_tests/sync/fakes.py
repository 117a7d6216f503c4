"""A sync from stdin to stdout with fakes in place of Spark and of the tables, and the messages that it reads."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from destination_datalake.aws.access import AccessKeys, AwsAccess
from destination_datalake.buffer.backlog import Backlog
from destination_datalake.buffer.buffer import MiB
from destination_datalake.buffer.staging import LocalStaging, Staging
from destination_datalake.errors import Failure
from destination_datalake.files.plan import DataFile, FilePlan, RewriteTask, Rewritten
from destination_datalake.files.tasks import Encoded, EncodeTask, EncodeUnit, NotEncoded, UnitResult
from destination_datalake.protocol.catalog import Stream, StreamId
from destination_datalake.protocol.stdout import Stdout
from destination_datalake.rejects.counts import RejectCounts
from destination_datalake.rejects.ledger import RejectLedger
from destination_datalake.rejects.limit import RejectLimit
from destination_datalake.rejects.location import RejectFile
from destination_datalake.spark.failure import SparkFailed
from destination_datalake.sync.conductor import Conductor
from destination_datalake.sync.landing import Landing
from destination_datalake.tables.table import Committed, Reencode, Rewrite, TableName
from destination_datalake.termination import Termination

ACCESS = AwsAccess("us-east-1", AccessKeys("AKIAIOSFODNN7EXAMPLE", "not-a-secret"))
_ID = re.compile(rb'"id":(\d+)')


class NoCatalog:
    """A catalog that shows no rejects."""

    def register(self, files: Sequence[RejectFile]) -> None:
        """Do nothing."""


class FakeExecutors:
    """Executors whose data files are lists of the ids of the records in them."""

    def __init__(self) -> None:
        self.jobs = 0
        self.ended = False
        self.ids: dict[str, list[int]] = {}
        self.refused_ids: set[int] = set()

    @property
    def error(self) -> SparkFailed | None:
        return SparkFailed("Spark's Java process has ended.") if self.ended else None

    def is_starting(self) -> bool:
        return False

    def parallelism(self) -> int:
        return 1

    def encode(self, tasks: Sequence[EncodeTask]) -> Sequence[UnitResult]:
        self.jobs += 1
        if self.ended:
            raise SparkFailed("Spark could not run a job.")
        return [self.encode_unit(unit) for task in tasks for unit in task.units]

    def encode_unit(self, unit: EncodeUnit, refused: int = 0) -> Encoded:
        """Write one file of all records of the unit but the first `refused`."""
        lines = [line for segment in unit.segments for line in Path(segment).read_bytes().splitlines()]
        ids = [int(found[1]) for line in lines if (found := _ID.search(line))]
        refused = min(refused, len(lines))
        self.refused_ids |= {*ids[:refused]}
        counts = RejectCounts(len(lines), refused, refused)
        if refused == len(lines):
            return Encoded(unit.stream, (), counts, ())
        uri = f"s3://lake/{unit.name}-{self.jobs}"
        self.ids[uri] = ids[refused:]
        rows = len(lines) - refused
        return Encoded(unit.stream, (DataFile(uri, rows, rows, (), b"", None),), counts, ())

    def rewrite(self, _tasks: Sequence[RewriteTask]) -> Sequence[Rewritten]:
        raise AssertionError("no fake table asks for it")


def not_encoded(stream: StreamId) -> NotEncoded:
    return NotEncoded(stream, Failure(f"Stream {stream} could not be encoded.", "", "system_error"))


@dataclass
class FakeTable:
    """A table that counts its rows. What is asked of it may raise, or wait."""

    name: TableName
    on_prepare: Callable[[], None] = lambda: None
    on_plan: Callable[[], None] = lambda: None
    on_commit: Callable[[], Committed | Reencode] = Committed
    on_publish: Callable[[], None] = lambda: None
    on_discard: Callable[[], None] = lambda: None
    rows: int = 0
    published: bool = False
    committed: list[str] = field(default_factory=list)
    discarded: list[str] = field(default_factory=list)

    def prepare(self) -> None:
        self.on_prepare()

    def plan(self) -> FilePlan:
        self.on_plan()
        return FilePlan("parquet", "ZSTD", (), {}, "s3://lake", False, 1, None, None)

    def commit(self, files: Sequence[DataFile], _rewrite: Rewrite) -> Committed | Reencode:
        answer = self.on_commit()
        if isinstance(answer, Committed):
            self.rows += sum(file.rows for file in files)
            self.committed += [file.uri for file in files]
        else:
            self.discarded += [file.uri for file in files]
        return answer

    def publish(self, _rewrite: Rewrite) -> None:
        self.on_publish()
        self.published = True

    def discard(self, files: Sequence[DataFile]) -> None:
        self.on_discard()
        self.discarded += [file.uri for file in files]


def new_rejects() -> RejectLedger:
    return RejectLedger("s3://lake/_errors", "sync", "2026-01-01", RejectLimit(1.0, None), NoCatalog(), ACCESS)


@dataclass
class FakeSync:
    """A sync of the streams `a` and `b`, all of whose code is the connector's own but Spark's and the tables'."""

    directory: Path
    termination: Termination
    names: Sequence[str] = ("a", "b")
    executors: FakeExecutors = field(default_factory=FakeExecutors)
    staging: Staging = field(default_factory=LocalStaging)
    batch_bytes: int = 256 * MiB
    buffer_bytes: int = 4096 * MiB
    flush_seconds: float = 300.0
    patience: float = 30.0

    def __post_init__(self) -> None:
        self.tables = {name: FakeTable(TableName("raw", name)) for name in self.names}

    @property
    def a(self) -> FakeTable:
        return self.tables["a"]

    @property
    def b(self) -> FakeTable:
        return self.tables["b"]

    def run(self, lines: Iterable[bytes]) -> tuple[int, list[dict[str, Any]]]:
        """Run the sync on these lines; return its exit code and what it wrote."""
        read_end, write_end = os.pipe()
        written: list[bytes] = []
        reader = threading.Thread(target=lambda: written.append(_read_all(read_end)))
        reader.start()
        code = self.run_to(Stdout(write_end), lines)
        os.close(write_end)
        reader.join()
        return code, [json.loads(line) for line in written[0].splitlines()]

    def run_to(self, out: Stdout, lines: Iterable[bytes]) -> int:
        """Run the sync on these lines, of which it need not read all; return its exit code."""
        read_end, write_end = os.pipe()
        writer = threading.Thread(target=_write_lines, args=(write_end, lines))
        writer.start()
        try:
            return self.run_on(out, read_end)
        finally:
            os.close(read_end)
            writer.join()

    def run_on(self, out: Stdout, stdin: int) -> int:
        """Run the sync on a file descriptor; return its exit code."""
        streams = [Stream(StreamId(None, name), {}, False, None, None, None) for name in self.names]
        factories = {stream.id: partial(self.tables.__getitem__, stream.id.name) for stream in streams}
        new_landing = partial(Landing, factories, self.executors, self.staging, ACCESS, "sync", new_rejects())
        self.termination.on_request(partial(out.give_up_after, self.patience))
        backlog = Backlog(self.directory, self.batch_bytes, self.buffer_bytes, self.flush_seconds)
        return Conductor(streams, backlog, new_landing, out, self.termination, self.patience).run(stdin)


def _read_all(descriptor: int) -> bytes:
    with open(descriptor, "rb") as reader:
        return reader.read()


def _write_lines(descriptor: int, lines: Iterable[bytes]) -> None:
    try:
        with open(descriptor, "wb", buffering=0) as writer:
            for line in lines:
                writer.write(line + b"\n")
    except BrokenPipeError:
        return


def record(stream: str, padding: int = 0) -> bytes:
    data = json.dumps({"x": "x" * padding})
    return f'{{"type":"RECORD","record":{{"stream":"{stream}","data":{data},"emitted_at":1}}}}'.encode()


def state(number: int, stream: str | None) -> bytes:
    body: dict[str, Any] = {"type": "GLOBAL", "global": {"shared_state": {}}}
    if stream is not None:
        body = {"type": "STREAM", "stream": {"stream_descriptor": {"name": stream}}}
    return json.dumps({"type": "STATE", "state": {**body, "id": number}}, separators=(",", ":")).encode()


def states(messages: Iterable[dict[str, Any]]) -> list[int]:
    """The numbers of the states among the messages."""
    return [message["state"]["id"] for message in messages if message["type"] == "STATE"]


def failures(messages: Iterable[dict[str, Any]]) -> dict[str | None, tuple[str, str]]:
    """The type and the message of each failure by stream; the whole sync's is None's."""
    errors = [message["trace"]["error"] for message in messages if message["type"] == "TRACE"]
    return {
        error.get("stream_descriptor", {}).get("name"): (error["failure_type"], error["message"]) for error in errors
    }


def raising(error: Exception) -> Callable[[], Any]:
    def call() -> Any:
        raise error

    return call
