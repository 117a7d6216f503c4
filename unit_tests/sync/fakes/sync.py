"""A sync from stdin to stdout with fakes in place of Spark and of the tables."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from destination_datalake.aws.access import AccessKeys, AwsAccess
from destination_datalake.buffer.backlog import Backlog
from destination_datalake.buffer.batching import BatchPolicy
from destination_datalake.buffer.buffer import SEGMENT_BYTES, Buffer
from destination_datalake.buffer.disk import MiB
from destination_datalake.buffer.staging import LocalStaging, Staging
from destination_datalake.protocol.catalog import Stream, StreamId
from destination_datalake.protocol.stdout import Stdout
from destination_datalake.rejects.ledger import RejectFile, RejectLedger, RejectLimit
from destination_datalake.sync.conductor import Conductor
from destination_datalake.sync.landing import Encoding, StreamTables
from destination_datalake.tables.table import TableName
from destination_datalake.termination import Termination
from unit_tests.sync.fakes.executors import FakeExecutors
from unit_tests.sync.fakes.messages import parsed
from unit_tests.sync.fakes.table import FakeTable

ACCESS = AwsAccess("us-east-1", AccessKeys("AKIAIOSFODNN7EXAMPLE", "not-a-secret"))


class NoCatalog:
    """A catalog that shows no rejects."""

    def register(self, files: Sequence[RejectFile]) -> None:
        """Do nothing."""


_NO_LIMIT = RejectLimit()


def new_rejects(limit: RejectLimit = _NO_LIMIT) -> RejectLedger:
    return RejectLedger("s3://lake/_errors", "sync", "2026-01-01", limit, NoCatalog(), ACCESS)


@dataclass
class FakeSync:
    """A sync of the streams `a` and `b`, all of whose code is the connector's own but Spark's and the tables'."""

    directory: Path
    termination: Termination
    names: Sequence[str] = ("a", "b")
    executors: FakeExecutors = field(default_factory=FakeExecutors)
    batch_bytes: int = 256 * MiB
    buffer_bytes: int = 4096 * MiB
    flush_seconds: float = 300.0
    patience: float = 30.0
    policy: BatchPolicy | None = None
    staging: Staging = field(default_factory=LocalStaging)

    def __post_init__(self) -> None:
        self.tables: dict[str, FakeTable] = {name: FakeTable(TableName("raw", name)) for name in self.names}

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
        return code, parsed(written[0])

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
        tables = StreamTables(factories, ACCESS)
        encoding = Encoding(self.executors, self.staging, ACCESS, "sync")
        self.termination.on_request(partial(out.give_up_after, self.patience))
        segment_bytes = min(SEGMENT_BYTES, self.batch_bytes)
        buffer = Buffer(self.directory, segment_bytes, self.buffer_bytes, time.monotonic, self.staging)
        backlog = Backlog(buffer, self.policy or BatchPolicy(self.batch_bytes), self.flush_seconds)
        conductor = Conductor(streams, backlog, tables, encoding, new_rejects(), out, self.termination, self.patience)
        return conductor.run(stdin)


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
