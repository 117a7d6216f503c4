"""The rejects of one sync, on the driver: counts per stream, their limit, and their registration in the catalog."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from destination_datalake.aws.objects import delete_uncommitted, publish_all
from destination_datalake.rejects.counts import RejectCounts
from destination_datalake.rejects.location import RejectFile, RejectLocation

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.protocol.catalog import StreamId
    from destination_datalake.rejects.limit import RejectLimit

_logger = logging.getLogger(__name__)


class RejectCatalog(Protocol):
    """A catalog's table over all rejects."""

    def register(self, files: Sequence[RejectFile]) -> None:
        """Make the files readable through the table. Not thread-safe; raises what the catalog's client raises."""


class RejectLedger:
    """Counts, limits and registers rejects. Thread-safe; `root`, `run` and `day` as in RejectLocation."""

    def __init__(
        self, root: str, run: str, day: str, limit: RejectLimit, catalog: RejectCatalog, access: AwsAccess
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
