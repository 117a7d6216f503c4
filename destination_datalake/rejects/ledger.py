"""Count the rejects of a sync, enforce the reject limits, and publish and register the files that contain rejects."""

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
    """A partition of the table of rejects.

    The members are the values of the partition keys. They determine the partition's folder in S3.
    """

    reason: str
    stream: str
    dt: str


@dataclass(frozen=True, slots=True)
class RejectLocation:
    """The location in S3 for the rejects of one stream in one sync.

    `root` is the S3 URI of the folder for all rejects, without a trailing slash. `run` is the ID of the sync. `day` is
    the day on which the sync started, as YYYY-MM-DD in UTC. S3 keys contain the name of the stream's table instead of
    the stream's name, because stream names can contain characters that are not safe in keys.
    """

    root: str
    run: str
    day: str
    database: str
    table: str

    def partition(self, reason: str) -> Partition:
        """Return the partition that contains the rejects with this reason."""
        return Partition(reason, f"{self.database}.{self.table}", self.day)

    def uri(self, reason: str, attempt: str) -> str:
        """Return the S3 URI of the object to which one attempt of a task writes the rejects with this reason."""
        partition = self.partition(reason)
        return f"{self.root}/{reason}/{partition.stream}/dt={partition.dt}/{attempt}.jsonl.gz"


@dataclass(frozen=True, slots=True)
class RejectFile:
    """A gzipped JSON Lines file of rejects, in the order of the records.

    Readers do not see the file until `pending_upload` is published.
    """

    partition: Partition
    uri: str
    pending_upload: PendingUpload

    @property
    def folder(self) -> str:
        """Return the S3 URI of the folder that contains the file, with a trailing slash."""
        return f"{self.uri.rpartition('/')[0]}/"


@dataclass(frozen=True, slots=True)
class RejectCounts:
    """Numbers of records and rejects, for a stream, a batch, or the part of a batch that one task encodes.

    - `records`: the number of received records.
    - `refused`: the number of records that the sync did not write as rows.
    - `affected`: the number of records with at least one reject, including refused records.
    - `reasons`: the number of rejects for each pair of column and reason, including rejected values without a line of
      their own. The column is the column's name in the source, or None for whole records.
    """

    records: int = 0
    refused: int = 0
    affected: int = 0
    reasons: Mapping[tuple[str | None, str], int] = field(default_factory=dict)

    @property
    def values(self) -> int:
        """Return the number of rejected values in records that the sync wrote as rows."""
        return sum(count for (column, _), count in self.reasons.items() if column is not None)

    def most_frequent(self) -> list[tuple[tuple[str | None, str], int]]:
        """Return each pair of column and reason with its count, in descending order of the counts."""
        return sorted(self.reasons.items(), key=lambda item: (-item[1], item[0][0] or "", item[0][1]))

    @classmethod
    def refusing(cls, reason: str, records: int) -> Self:
        """Return the counts for records that a rule refuses. These records do not count towards the reject limits."""
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
    """The limits for a stream: the maximum ratio and the maximum number of records with rejects.

    `max_count` is None if there is no maximum number.
    """

    max_ratio: float = 1.0
    max_count: int | None = None

    def exceeded(self, counts: RejectCounts) -> str | None:
        """Return a clause with the limit that the counts exceed and the most frequent reasons, or None."""
        if self.max_count is not None and counts.affected > self.max_count:
            limit = f"rejects.max_count {self.max_count}"
        elif counts.records and counts.affected / counts.records > self.max_ratio:
            limit = f"rejects.max_ratio {self.max_ratio}"
        else:
            return None
        affected = f"{counts.affected} of {counts.records} records contain rejects"
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
    """The interface of a catalog that `RejectLedger` uses to register files in the table of rejects."""

    def register(self, files: Sequence[RejectFile]) -> None:
        """Register files in the table of rejects. Not thread-safe. Raises the errors of the catalog's client."""


class RejectLedger:
    """Counts the rejects of one sync, enforces the limits, and publishes the files with rejects. Thread-safe.

    Before the sync commits a batch, it calls `publish` with the batch's reject files, and then `add` with the batch's
    counts. If `add` returns a message, the stream exceeds a limit. The sync then does not commit the batch, but keeps
    the published rejects, because they show the cause. If the batch fails for another reason, the sync calls
    `delete_uncommitted`.

    `root`, `run` and `day` have the same meaning as in RejectLocation. If `catalog` is None, the ledger stores rejects
    in S3, but does not register them in a table.
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
        """Return the location in S3 for the rejects of the stream whose records the sync writes to this table."""
        return RejectLocation(self._root, self._run, self._day, database, table)

    def add(self, stream: StreamId, counts: RejectCounts) -> str | None:
        """Add the counts of a batch to the counts of the stream. Call this method before you commit the batch.

        If the stream now exceeds a limit, returns a user-facing message, otherwise None. If this method returns a
        message, do not commit the batch.
        """
        # The lock covers reading and writing, so that batches of a stream on two threads do not lose counts.
        with self._lock:
            total = self._counts[stream] = RejectCounts.total([self._counts.get(stream, RejectCounts()), counts])
        if (excess := self._limit.exceeded(total)) is None:
            return None
        return (
            f"Stream {stream}: {excess}. The connector did not commit the batch. The rejects of the batch are under "
            f"{self._root}/. Correct the source or the schema of the stream, or raise the limit."
        )

    def publish(self, files: Sequence[RejectFile]) -> None:
        """Make the rejects of a batch visible to readers, and register them in the catalog.

        Call this method before you commit the batch. Raises S3's errors. Logs errors of the catalog as warnings,
        because users can read the objects without the catalog.
        """
        if not files:
            return
        # First the objects: a kill between the two steps leaves readable objects without a partition.
        publish_all([file.pending_upload for file in files], self._access.client("s3"))
        if self._catalog is None:
            return
        # Catalogs are not thread-safe (see `RejectCatalog`).
        with self._lock:
            try:
                self._catalog.register(files)
            # Rejects must not stop a sync because of the catalog. Their objects are published already.
            except Exception:
                _logger.warning(
                    "Cannot register rejects in table airbyte_rejects of the Glue Data Catalog. Read the objects under "
                    "%s/ instead.",
                    self._root,
                    exc_info=True,
                )

    def delete_uncommitted(self, files: Sequence[RejectFile]) -> None:
        """Delete the rejects of a batch that the sync did not commit, even if `publish` has published them."""
        delete_uncommitted(files, self._access.client("s3"))
