"""Landing: one batch from staging to its outcome, with fakes of Spark and of the tables."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from destination_datalake.aws.objects import DeferredUpload, PendingUpload
from destination_datalake.buffer.batching import Batch
from destination_datalake.buffer.staging import LocalStaging, Segment, Staging
from destination_datalake.errors import ConfigError
from destination_datalake.files.plan import Encoded, EncodeTask, UnitResult
from destination_datalake.files.segments import StagedSegment
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.rejects.ledger import Partition, RejectFile, RejectLimit
from destination_datalake.sync.landing import MAX_ENCODINGS, MAX_TASKS, Encoding, Landing, StreamTables, TableFilters
from destination_datalake.sync.outcome import (
    BatchCommitted,
    BatchFailed,
    BatchOutcome,
    BatchSkipped,
)
from destination_datalake.sync.progress import ActiveStages
from destination_datalake.tables.table import Committed, Reencode, TableBusy, TableConflict, TableName
from unit_tests.cloud import BUCKET, cloud
from unit_tests.sync.fakes.executors import FakeExecutors, not_encoded
from unit_tests.sync.fakes.messages import record
from unit_tests.sync.fakes.sync import ACCESS, new_rejects
from unit_tests.sync.fakes.table import FakeTable, raising

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
    filters: Callable[[], TableFilters] = dict

    def __post_init__(self) -> None:
        self.a, self.b = (FakeTable(TableName("raw", name)) for name in ("a", "b"))
        self._segments = 0
        self._landings: list[Landing] = []

    def landing(self) -> Landing:
        landing = Landing(
            StreamTables({A: lambda: self.a, B: lambda: self.b}, ACCESS),
            Encoding(self.executors, self.staging, ACCESS, "sync", self.filters),
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


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    lake = Lake(tmp_path)
    yield lake
    lake.close()


def failure_of(outcome: BatchOutcome) -> tuple[str, str]:
    assert isinstance(outcome, BatchFailed)
    return outcome.failure.type, outcome.failure.message


def test_batches_of_one_job_are_committed_each_to_its_table(lake: Lake) -> None:
    outcomes = lake.land(lake.batch(A, records=2), lake.batch(B, records=3))

    assert all(isinstance(outcome, BatchCommitted) for outcome in outcomes)
    assert (lake.a.rows, lake.b.rows, lake.executors.jobs) == (2, 3, 1)


def test_tasks_that_a_cluster_has_gained_are_counted_after_each_job(lake: Lake) -> None:
    landing = lake.landing()
    before = landing.encoding.slots()
    lake.executors.tasks = 8
    landing.land([lake.batch(A)])
    assert (before, landing.encoding.slots()) == (1, 8)


def test_of_a_large_cluster_no_more_tasks_are_used_than_encode_what_one_input_brings(lake: Lake) -> None:
    lake.executors.tasks = 1000

    assert lake.landing().encoding.slots() == MAX_TASKS


# --- Staging


@pytest.mark.parametrize("moment", ["on_prepare", "on_plan"])
def test_a_batch_that_cannot_be_staged_fails_alone(lake: Lake, moment: str) -> None:
    setattr(lake.a, moment, raising(TableConflict("The table is another stream's.")))

    outcomes = lake.land(lake.batch(A), lake.batch(B))

    assert failure_of(outcomes[0]) == ("config_error", "The table is another stream's.")
    assert isinstance(outcomes[1], BatchCommitted)
    assert lake.b.rows == 1


def test_a_bucket_that_cannot_be_read_is_blamed_before_a_table_that_is_in_another(lake: Lake) -> None:
    lake.a.on_prepare = raising(TableConflict("Its location is s3://another/."))
    lake.filters = raising(ConfigError("The bucket does not exist."))
    landing = lake.landing()

    failures = [landing.preparation_failure(stream) for stream in (A, B)]

    assert [failure and failure.message for failure in failures] == ["The bucket does not exist.", None]


class BrokenStaging(LocalStaging):
    """A staging that cannot stage the first stream's segments."""

    def stage(self, segment: Segment) -> StagedSegment:
        if segment.stream == A:
            raise ClientError({"Error": {"Code": "SlowDown", "Message": "Reduce your request rate."}}, "PutObject")
        return super().stage(segment)


def test_a_batch_whose_segments_cannot_be_uploaded_fails_alone_and_says_why(lake: Lake) -> None:
    lake.staging = BrokenStaging()

    outcomes = lake.land(lake.batch(A, segments=2), lake.batch(B))

    kind, message = failure_of(outcomes[0])
    assert (kind, isinstance(outcomes[1], BatchCommitted)) == ("transient_error", True)
    assert message.startswith("Cannot stage records of stream a (S3, PutObject)")


# --- Encoding


class FaultyExecutors(FakeExecutors):
    """Executors that change the results of a job."""

    def __init__(self, change: Callable[[list[Encoded]], Sequence[UnitResult]]) -> None:
        super().__init__()
        self._change = change

    def encode(self, tasks: Sequence[EncodeTask]) -> Sequence[UnitResult]:
        return self._change([self.encode_unit(unit) for task in tasks for unit in task.units])


def test_a_file_that_is_held_where_no_task_writes_is_neither_published_nor_deleted(lake: Lake, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"of this machine")

    def name(results: list[Encoded]) -> list[Encoded]:
        held = DeferredUpload(BUCKET, "key", str(secret))
        return [
            replace(result, files=tuple(replace(file, pending_upload=held) for file in result.files))
            for result in results
        ]

    lake.executors = FaultyExecutors(name)

    (outcome,) = lake.land(lake.batch(A))

    assert failure_of(outcome)[0] == "system_error"
    assert (lake.a.committed, secret.read_bytes()) == ([], b"of this machine")


def test_a_job_that_fails_fails_all_its_batches(lake: Lake) -> None:
    lake.executors.ended = True

    outcomes = lake.land(lake.batch(A), lake.batch(B))

    assert [failure_of(outcome)[0] for outcome in outcomes] == ["transient_error"] * 2


def test_a_unit_that_is_not_encoded_fails_its_batch_and_deletes_the_files_of_its_others(lake: Lake) -> None:
    lake.executors = FaultyExecutors(lambda results: [*results, not_encoded(A)])

    outcomes = lake.land(lake.batch(A), lake.batch(B))

    (failed,) = [outcome for outcome in outcomes if isinstance(outcome, BatchFailed)]
    assert failed.failure == not_encoded(A).failure
    assert (lake.a.committed, len(lake.a.discarded), lake.b.rows) == ([], 1, 1)


def test_a_batch_with_fewer_rows_than_records_fails_and_its_files_are_deleted(lake: Lake) -> None:
    lake.executors = FaultyExecutors(lambda results: results[:0])

    (outcome,) = lake.land(lake.batch(A, records=2))

    assert failure_of(outcome) == (
        "system_error",
        "Stream a: the connector received 2 records, but encoded 0 and rejected 0. The batch was not committed. Run "
        "the sync again. If the error recurs, report it to the maintainers of the connector.",
    )
    assert lake.a.rows == 0


# --- Rejects


def refuse_one(results: list[Encoded]) -> list[Encoded]:
    (encoded,) = results
    (file,) = encoded.files
    counts = replace(encoded.counts, refused=1, affected=1)
    return [replace(encoded, files=(replace(file, rows=file.rows - 1),), counts=counts)]


def test_refused_records_count_as_settled(lake: Lake) -> None:
    lake.executors = FaultyExecutors(refuse_one)

    (outcome,) = lake.land(lake.batch(A, records=3))

    assert isinstance(outcome, BatchCommitted)
    assert (outcome.counts.refused, lake.a.rows) == (1, 2)


def test_a_batch_that_exceeds_the_limit_of_rejects_is_not_committed(lake: Lake) -> None:
    lake.executors = FaultyExecutors(refuse_one)
    lake.limit = RejectLimit(1.0, 0)

    (outcome,) = lake.land(lake.batch(A, records=3))

    kind, message = failure_of(outcome)
    assert kind == "config_error"
    assert "rejects.max_count" in message
    assert (lake.a.committed, len(lake.a.discarded)) == ([], 1)


def test_the_rejects_of_a_failed_batch_are_deleted_even_if_its_files_cannot_be(lake: Lake) -> None:
    upload = PendingUpload(BUCKET, "_errors/reject.jsonl.gz", "id", ())
    reject = RejectFile(Partition("REASON", "raw.a", "2026-01-01"), f"s3://{BUCKET}/{upload.key}", upload)
    lake.executors = FaultyExecutors(lambda results: [replace(results[0], files=(), rejects=(reject,))])
    lake.a.on_discard = raising(PermissionError())
    with cloud() as account:
        account.access.client("s3").put_object(Bucket=BUCKET, Key="_errors/reject.jsonl.gz", Body=b"")

        (outcome,) = lake.land(lake.batch(A))

        assert (isinstance(outcome, BatchFailed), account.objects()) == (True, {})


# --- Commit


def test_a_batch_is_encoded_again_when_its_table_asks_for_it(lake: Lake) -> None:
    answers: list[Committed | Reencode] = [Committed(), Reencode("its columns have changed")]
    lake.a.on_commit = answers.pop

    (outcome,) = lake.land(lake.batch(A, records=2))

    assert isinstance(outcome, BatchCommitted)
    assert (lake.a.rows, lake.executors.jobs) == (2, 2)


def test_a_table_that_asks_for_every_encoding_again_fails_its_stream(lake: Lake) -> None:
    lake.a.on_commit = lambda: Reencode("its columns have changed")

    (outcome,) = lake.land(lake.batch(A))

    kind, message = failure_of(outcome)
    assert kind == "transient_error"
    assert "table raw.a" in message
    assert "its columns have changed" in message
    assert lake.executors.jobs == MAX_ENCODINGS


def test_a_batch_that_no_state_can_acknowledge_is_skipped_and_its_files_are_deleted(lake: Lake) -> None:
    lake.can_acknowledge = lambda batch: batch.stream == B

    outcomes = lake.land(lake.batch(A), lake.batch(B))

    assert {type(outcome) for outcome in outcomes if outcome.batch.stream == A} == {BatchSkipped}
    assert (lake.a.committed, len(lake.a.discarded), lake.b.rows) == ([], 1, 1)


def test_files_of_a_commit_that_failed_are_left_to_the_table(lake: Lake) -> None:
    lake.a.on_commit = raising(TableBusy("Other writers have changed the table each time."))

    (outcome,) = lake.land(lake.batch(A))

    assert failure_of(outcome)[0] == "transient_error"
    assert lake.a.discarded == [], "the commit may have been made"


def test_the_next_batch_of_a_stream_is_not_looked_at_before_the_last_one_is_settled(lake: Lake) -> None:
    """Or else it could be committed after one that failed."""
    first, second = lake.batch(A), lake.batch(A)
    settling, asked = threading.Event(), threading.Event()
    order = []

    def settle(outcome: BatchOutcome) -> None:
        if outcome.batch is first:
            settling.set()
            asked.wait(0.2)
        order.append(("settled", outcome.batch.number))

    def can_acknowledge(batch: Batch) -> bool:
        if batch is second:
            asked.set()
        order.append(("asked", batch.number))
        return True

    lake.on_settle, lake.can_acknowledge = settle, can_acknowledge
    landing = lake.landing()
    job = threading.Thread(target=landing.land, args=([first],))
    job.start()
    settling.wait()

    landing.land([second])

    job.join()
    assert order == [(event, batch.number) for batch in (first, second) for event in ("asked", "settled")]


# --- Publishing


def test_publishing_returns_the_failures_and_publishes_the_others(lake: Lake) -> None:
    lake.a.on_publish = raising(TableBusy("Other writers have changed the table each time."))

    failures = lake.landing().publish([A, B])

    assert {stream: failure.type for stream, failure in failures.items()} == {A: "transient_error"}
    assert (lake.a.published, lake.b.published) == (False, True)


# --- Undeclared fields


def test_undeclared_fields_are_warned_of_once_per_stream(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    lake.executors = FaultyExecutors(lambda results: [replace(result, undeclared=("extra",)) for result in results])
    landing = lake.landing()

    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            landing.land([lake.batch(A), lake.batch(B)])

    warned: Iterator[str] = (entry.getMessage() for entry in caplog.records)
    assert sorted("stream a" in message.lower() for message in warned) == [False, True]


# --- Merging: when many rows wait for their deduplication, and before their stream is published


def test_a_batch_is_settled_before_a_merge_that_is_due_begins(lake: Lake) -> None:
    happened: list[str] = []
    lake.on_settle = lambda _: happened.append("settled")
    lake.a.is_due, lake.a.on_merge = True, lambda: happened.append("merged")

    lake.land(lake.batch(A), lake.batch(B))

    assert happened.index("settled") < happened.index("merged")
    assert happened.count("merged") == 1


def test_nothing_is_merged_while_an_earlier_batch_is_not_committed(lake: Lake) -> None:
    """A deletion in the later one would be merged and forgotten, and a row in the earlier one come back."""
    merges: list[int] = []
    lake.a.is_due, lake.a.on_merge = True, lambda: merges.append(lake.a.rows)
    landing = lake.landing()

    landing.land([lake.batch(A, records=2)])
    landing.land([lake.batch(A, records=4, first=3)])
    assert merges == [2]

    landing.land([lake.batch(A, first=2)])
    landing.land([lake.batch(A, first=7)])
    assert merges == [2, 7, 8]


def test_a_merge_that_fails_in_the_middle_of_a_stream_fails_nothing(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    lake.a.is_due, lake.a.on_merge = True, raising(TableConflict("The table has equality deletes."))

    outcomes = lake.land(lake.batch(A))

    assert all(isinstance(outcome, BatchCommitted) for outcome in outcomes)
    assert "The table has equality deletes. The connector deduplicates these records in the next merge." in caplog.text


def test_nothing_is_merged_after_a_commit_that_failed(lake: Lake) -> None:
    lake.a.is_due, lake.a.on_merge = True, raising(AssertionError("merged"))
    lake.a.on_commit = raising(TableConflict("The table is another stream's."))

    [outcome] = lake.land(lake.batch(A))

    assert not isinstance(outcome, BatchCommitted)


def test_a_stream_whose_rows_cannot_be_merged_is_not_published(lake: Lake) -> None:
    lake.a.on_merge = raising(TableBusy("Other writers have changed the table each time."))

    failures = lake.landing().publish([A, B])

    assert ([*failures], lake.a.published, lake.b.published) == ([A], False, True)
