"""The rejects of one sync: where they are written, their counts and limit, their registration in the catalog."""

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
"""The Glue table over that folder, in the database for streams without a namespace."""


class Partition(NamedTuple):
    """What the objects of one folder have in common: the values of the table's partition keys."""

    reason: str
    stream: str
    dt: str


@dataclass(frozen=True, slots=True)
class RejectLocation:
    """Where the rejects of one stream and sync are written.

    `root` is the S3 URI of the folder for all rejects, without a slash at the end. `run` names the sync, `day` is the
    day on which it began, YYYY-MM-DD in UTC. Keys have the name of the stream's table, which is safe in a key.
    """

    root: str
    run: str
    day: str
    database: str
    table: str

    def partition(self, reason: str) -> Partition:
        """Return the partition for this reason."""
        return Partition(reason, f"{self.database}.{self.table}", self.day)

    def uri(self, reason: str, attempt: str) -> str:
        """Return the URI of the object for the rejects of this reason that an attempt at a unit writes."""
        partition = self.partition(reason)
        return f"{self.root}/{reason}/{partition.stream}/dt={partition.dt}/{attempt}.jsonl.gz"


@dataclass(frozen=True, slots=True)
class RejectFile:
    """An object: gzipped JSON lines, in the order of the records. Nobody sees it before its upload is published."""

    partition: Partition
    uri: str
    pending_upload: PendingUpload

    @property
    def folder(self) -> str:
        """The S3 URI of the partition's folder, with a slash at the end."""
        return f"{self.uri.rpartition('/')[0]}/"


@dataclass(frozen=True, slots=True)
class RejectCounts:
    """Counts of one stream, or of a part of it.

    `records` were received: each was either written as a row or refused. `refused` of them are no rows. `affected` have
    at least one reject, the refused ones included. `reasons` counts rejects by column (under its source name; None for
    whole records) and reason, also the values that have no line of their own among the rejects.
    """

    records: int = 0
    refused: int = 0
    affected: int = 0
    reasons: Mapping[tuple[str | None, str], int] = field(default_factory=dict)

    @property
    def values(self) -> int:
        """How many values are rejected in records that were written."""
        return sum(count for (column, _), count in self.reasons.items() if column is not None)

    def most_frequent(self) -> list[tuple[tuple[str | None, str], int]]:
        """Return columns and reasons with their numbers, the largest first."""
        return sorted(self.reasons.items(), key=lambda each: (-each[1], each[0][0] or "", each[0][1]))

    @classmethod
    def refusing(cls, reason: str, records: int) -> Self:
        """Return the counts of records that a rule refuses. No limit counts them: the data are not at fault."""
        return cls(records, records, 0, {(None, reason): records} if records else {})

    @classmethod
    def total(cls, parts: Iterable[Self]) -> Self:
        """Return the sum."""
        reasons: Counter[tuple[str | None, str]] = Counter()
        records = refused = affected = 0
        for part in parts:
            records += part.records
            refused += part.refused
            affected += part.affected
            reasons.update(part.reasons)
        return cls(records, refused, affected, dict(reasons))


_NAMED_REASONS = 10


@dataclass(frozen=True, slots=True)
class RejectLimit:
    """How many records of a stream may have rejects: a share of those received and, optionally, a number."""

    max_ratio: float = 1.0
    max_count: int | None = None

    def exceeded(self, counts: RejectCounts) -> str | None:
        """Return which limit the counts exceed and why, with the reasons per column; None if they exceed none."""
        if self.max_count is not None and counts.affected > self.max_count:
            allowed = f"rejects.max_count {self.max_count} allows"
        elif counts.records and counts.affected / counts.records > self.max_ratio:
            allowed = f"rejects.max_ratio {self.max_ratio} allows"
        else:
            return None
        affected = f"{counts.affected} of {counts.records} records have rejects"
        return f"{affected}, which is more than {allowed}: {describe_reasons(counts)}"


def describe_reasons(counts: RejectCounts) -> str:
    """Return the most frequent reasons per column: `price DESTINATION_SERIALIZATION_ERROR 12 times; …`."""
    ranked = counts.most_frequent()
    named = [
        f"{'whole records' if column is None else column} {reason} {count} time{'' if count == 1 else 's'}"
        for (column, reason), count in ranked[:_NAMED_REASONS]
    ]
    more = len(ranked) - len(named)
    return "; ".join([*named, *([f"and {more} more"] if more else [])])


_logger = logging.getLogger(__name__)


class RejectCatalog(Protocol):
    """A catalog's table over all rejects."""

    def register(self, files: Sequence[RejectFile]) -> None:
        """Make the files readable through the table. Not thread-safe; raises what the catalog's client raises."""


class RejectLedger:
    """Counts, limits and registers rejects. Thread-safe; `root`, `run` and `day` as in RejectLocation.

    Without a catalog they are objects in S3 alone.
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
        """Return where the rejects of the stream with this table are written."""
        return RejectLocation(self._root, self._run, self._day, database, table)

    def add(self, stream: StreamId, counts: RejectCounts) -> str | None:
        """Count a batch before it is committed.

        Returns a message for the user if the stream now exceeds the limit, so that the batch must not be committed.
        """
        with self._lock:
            total = self._counts[stream] = RejectCounts.total([self._counts.get(stream, RejectCounts()), counts])
        exceeded = self._limit.exceeded(total)
        if exceeded is None:
            return None
        return (
            f"Stream {stream}: {exceeded}. The batch was not committed; its rejects are kept under {self._root}/. "
            "Correct the source or the stream's schema, or raise the limit."
        )

    def publish(self, files: Sequence[RejectFile]) -> None:
        """Make the rejects of a batch visible, before the batch is committed. Raises what S3's client raises.

        They are registered in the catalog, too. They can be read without it, so its failures are logged as warnings.
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
                    "Rejects were written under %s/ but their table in the Glue Data Catalog could not be updated.",
                    self._root,
                    exc_info=True,
                )

    def delete_uncommitted(self, files: Sequence[RejectFile]) -> None:
        """Remove the rejects of a batch that is not committed, whether or not they are published."""
        delete_uncommitted(files, self._access.client("s3"))
