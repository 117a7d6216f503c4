"""The ledger of one sync's rejects, which counts, limits, publishes and registers them."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

from destination_datalake.aws.objects import PendingUpload, delete_uncommitted, publish_all

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.protocol.catalog import StreamId


REJECTS_FOLDER = "_errors"
REJECTS_TABLE = "airbyte_rejects"
"""The name of the Glue table of rejects, in the database of streams without a namespace."""


class Partition(NamedTuple):
    """The partition keys of the table of rejects. All objects in a folder have the same values for these keys."""

    reason: str
    stream: str
    dt: str


@dataclass(frozen=True, slots=True)
class RejectLocation:
    """The location in S3 for the rejects of one stream in one sync.

    `root` is the S3 URI of the folder for all rejects, without a trailing slash. `run` is the ID of the sync. `day` is
    the day on which the sync started, as YYYY-MM-DD in UTC. S3 keys contain the name of the stream's table instead of
    the stream's name, because only table names are safe in keys.
    """

    root: str
    run: str
    day: str
    database: str
    table: str

    def partition(self, reason: str) -> Partition:
        """Return the partition of the rejects with this reason."""
        return Partition(reason, f"{self.database}.{self.table}", self.day)

    def uri(self, reason: str, attempt: str) -> str:
        """Return the URI of the object to which `attempt` (at a unit) writes the rejects with this reason."""
        partition = self.partition(reason)
        return f"{self.root}/{reason}/{partition.stream}/dt={partition.dt}/{attempt}.jsonl.gz"


@dataclass(frozen=True, slots=True)
class RejectFile:
    """A file of rejects: gzipped JSON lines in the order of the records. Invisible until its upload is published."""

    partition: Partition
    uri: str
    pending_upload: PendingUpload

    @property
    def folder(self) -> str:
        """Return the S3 URI of the folder that contains the file, with a trailing slash."""
        return f"{self.uri.rpartition('/')[0]}/"


@dataclass(frozen=True, slots=True)
class RejectCounts:
    """The numbers of received records and of rejects of a stream, a batch or a unit.

    `records` is the number of received records, `refused` is the number of records that were not written as rows, and
    `affected` is the number of records with a reject, including refused records. `reasons` counts the rejects by the
    source name of the column (None for whole records) and by reason. The counts include rejected values that are not
    written as a line of their own.
    """

    records: int = 0
    refused: int = 0
    affected: int = 0
    reasons: Mapping[tuple[str | None, str], int] = field(default_factory=dict)

    @property
    def values(self) -> int:
        """Return the number of rejected values in records that were written."""
        return sum(count for (column, _), count in self.reasons.items() if column is not None)

    def most_frequent(self) -> list[tuple[tuple[str | None, str], int]]:
        """Return each pair of column and reason with its count, in descending order of the counts."""
        return sorted(self.reasons.items(), key=lambda item: (-item[1], item[0][0] or "", item[0][1]))

    @classmethod
    def refusing(cls, reason: str, records: int) -> Self:
        """Return the counts for records that a rule refuses. The reject limits do not apply to such records."""
        return cls(records, records, 0, {(None, reason): records} if records else {})

    @classmethod
    def total(cls, parts: Iterable[Self]) -> Self:
        """Return the sum of several counts."""
        reasons: Counter[tuple[str | None, str]] = Counter()
        records = refused = affected = 0
        for part in parts:
            records += part.records
            refused += part.refused
            affected += part.affected
            reasons.update(part.reasons)
        return cls(records, refused, affected, dict(reasons))


_MAX_REASONS = 10


@dataclass(frozen=True, slots=True)
class RejectLimit:
    """The maximum ratio and, optionally, the maximum number of records with rejects in a stream."""

    max_ratio: float = 1.0
    max_count: int | None = None

    def exceeded(self, counts: RejectCounts) -> str | None:
        """Return a clause about the exceeded limit and the most frequent reasons, or None if none is exceeded."""
        if self.max_count is not None and counts.affected > self.max_count:
            limit = f"rejects.max_count {self.max_count}"
        elif counts.records and counts.affected / counts.records > self.max_ratio:
            limit = f"rejects.max_ratio {self.max_ratio}"
        else:
            return None
        affected = f"{counts.affected} of {counts.records} records have rejects"
        return f"{affected}, which exceeds {limit}: {describe_reasons(counts)}"


def describe_reasons(counts: RejectCounts) -> str:
    """Return the most frequent reasons by column, such as `price DESTINATION_SERIALIZATION_ERROR 12 times; …`."""
    ranked = counts.most_frequent()
    clauses = [
        f"{'whole records' if column is None else column} {reason} {count} time{'' if count == 1 else 's'}"
        for (column, reason), count in ranked[:_MAX_REASONS]
    ]
    if len(ranked) > _MAX_REASONS:
        clauses.append(f"and {len(ranked) - _MAX_REASONS} more")
    return "; ".join(clauses)


_logger = logging.getLogger(__name__)


class RejectCatalog(Protocol):
    """A catalog with a table of all rejects."""

    def register(self, files: Sequence[RejectFile]) -> None:
        """Register files of rejects in the table. Not thread-safe. Raises the errors of the catalog's client."""


class RejectLedger:
    """The ledger of one sync's rejects, which counts, limits, publishes and registers them. Thread-safe.

    Before the commit of each batch, the sync calls `publish` with the batch's rejects, and then `add` with its counts.
    If `add` returns a message, the batch is not committed, but its rejects remain, because they show the cause. If the
    batch fails for another reason, the sync calls `delete_uncommitted`.

    `root`, `run` and `day` have the same meaning as in RejectLocation. If `catalog` is None, rejects are stored in S3,
    but are not registered in a table.
    """

    def __init__(
        self, root: str, run: str, day: str, limit: RejectLimit, catalog: RejectCatalog | None, access: AwsAccess
    ) -> None:
        self._root = root
        self._run = run
        self._day = day
        self._limit = limit
        self._catalog = catalog
        self._access = access
        self._lock = threading.Lock()
        self._counts: dict[StreamId, RejectCounts] = {}

    def location(self, database: str, table: str) -> RejectLocation:
        """Return the location for the rejects of the stream that is written to this table."""
        return RejectLocation(self._root, self._run, self._day, database, table)

    def add(self, stream: StreamId, counts: RejectCounts) -> str | None:
        """Add the counts of a batch to those of the stream. Call `add` before the batch is committed.

        Returns a message for the user if the stream now exceeds a limit. In this case, do not commit the batch.
        """
        with self._lock:
            total = self._counts[stream] = RejectCounts.total([self._counts.get(stream, RejectCounts()), counts])
        if (excess := self._limit.exceeded(total)) is None:
            return None
        return (
            f"Stream {stream}: {excess}. The batch was not committed. Its rejects are under {self._root}/. "
            "Correct the source or the stream's schema, or raise the limit."
        )

    def publish(self, files: Sequence[RejectFile]) -> None:
        """Publish the rejects of a batch, and register them in the catalog. Call this method before the commit.

        Raises the errors of S3. Errors of the catalog are only logged as warnings, because the objects in S3 can be
        read without a catalog.
        """
        if not files:
            return
        publish_all([file.pending_upload for file in files], self._access.client("s3"))
        if self._catalog is None:
            return
        with self._lock:
            try:
                self._catalog.register(files)
            except Exception:
                _logger.warning(
                    "Cannot register rejects in their table in the Glue Data Catalog. Read their objects under %s/.",
                    self._root,
                    exc_info=True,
                )

    def delete_uncommitted(self, files: Sequence[RejectFile]) -> None:
        """Delete the rejects of a batch that was not committed, whether or not they were published."""
        delete_uncommitted(files, self._access.client("s3"))
