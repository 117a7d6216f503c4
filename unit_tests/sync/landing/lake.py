"""The tables of two streams, and a landing for them, with fakes of Spark and of the tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from destination_datalake.buffer.batching import Batch
from destination_datalake.buffer.staging import LocalStaging, Segment, Staging
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.rejects.ledger import RejectLimit
from destination_datalake.sync.landing import Encoding, Landing, StreamTables
from destination_datalake.sync.outcome import BatchOutcome
from destination_datalake.sync.progress import ActiveStages
from destination_datalake.tables.table import TableName
from unit_tests.sync.fakes.executors import FakeExecutors
from unit_tests.sync.fakes.messages import record
from unit_tests.sync.fakes.sync import ACCESS, new_rejects
from unit_tests.sync.fakes.table import FakeTable

A, B = StreamId(None, "a"), StreamId(None, "b")


@dataclass
class Lake:
    """The tables of the streams a and b, and a landing for them."""

    directory: Path
    executors: FakeExecutors = field(default_factory=FakeExecutors)
    staging: Staging = field(default_factory=LocalStaging)
    limit: RejectLimit = field(default_factory=RejectLimit)
    can_acknowledge: Callable[[Batch], bool] = lambda _: True
    on_settle: Callable[[BatchOutcome], None] = lambda _: None
    outcomes: list[BatchOutcome] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.a, self.b = (FakeTable(TableName("raw", name)) for name in ("a", "b"))
        self._segments = 0
        self._landings: list[Landing] = []

    def landing(self) -> Landing:
        landing = Landing(
            StreamTables({A: partial(_same, self.a), B: partial(_same, self.b)}, ACCESS),
            Encoding(self.executors, self.staging, ACCESS, "sync"),
            new_rejects(self.limit),
            self._settle,
            lambda batch: self.can_acknowledge(batch),
            ActiveStages(),
        )
        self._landings.append(landing)
        return landing

    def land(self, *batches: Batch) -> list[BatchOutcome]:
        """Land the batches in one job; return what became of each."""
        self.landing().land(batches)
        return self.outcomes

    def batch(self, stream: StreamId, records: int = 1, segments: int = 1, first: int = 0) -> Batch:
        """Return a batch of segments with so many records each; the first is number `first` of the stream."""
        made = []
        for number in range(segments):
            self._segments += 1
            path = self.directory / str(self._segments)
            lines = (record(stream.name) + b"\n") * records
            path.write_bytes(lines)
            made.append(Segment(stream, path, first + number * records, records, len(lines), 0.0))
        return Batch(stream, self._segments, tuple(made))

    def close(self) -> None:
        """End all threads."""
        for landing in self._landings:
            landing.close(lambda: False)

    def _settle(self, outcome: BatchOutcome) -> None:
        self.on_settle(outcome)
        self.outcomes.append(outcome)


def _same(table: FakeTable) -> FakeTable:
    return table
