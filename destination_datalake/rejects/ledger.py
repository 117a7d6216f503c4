"""The rejects of one sync, as the driver keeps them: how many each stream has, and the catalog's view of them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from destination_datalake.aws.withdrawal import withdraw_all
from destination_datalake.rejects.counts import RejectCounts
from destination_datalake.rejects.location import RejectFile, RejectLocation

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.protocol.catalog import StreamId
    from destination_datalake.rejects.limit import RejectLimit
    from destination_datalake.tables.glue.rejects_table import RejectsTable
    from destination_datalake.tables.table import TableName

_logger = logging.getLogger(__name__)


class RejectLedger:
    """Counts, judges, registers and withdraws. For any thread; `root`, `run` and `day` as in RejectLocation."""

    def __init__(
        self, root: str, run: str, day: str, limit: RejectLimit, table: RejectsTable, access: AwsAccess
    ) -> None:
        self._root = root
        self._run = run
        self._day = day
        self._limit = limit
        self._table = table
        self._access = access
        self._lock = threading.Lock()
        self._counts: dict[StreamId, RejectCounts] = {}

    def location(self, table: TableName) -> RejectLocation:
        """Where the rejects of a table's stream go."""
        return RejectLocation(self._root, self._run, self._day, table.database, table.table)

    def add(self, stream: StreamId, counts: RejectCounts) -> str | None:
        """Count a batch that is about to be committed; say why the stream must stop, if its rejects are too many."""
        with self._lock:
            total = self._counts[stream] = RejectCounts.total([self._counts.get(stream, RejectCounts()), counts])
        exceeded = self._limit.exceeded(total)
        if exceeded is None:
            return None
        return (
            f"Stream {stream}: {exceeded}. The batch was not committed; its rejects are kept under {self._root}/. "
            "Correct the source or the stream's schema, or raise the limit."
        )

    def register(self, files: Sequence[RejectFile]) -> None:
        """Show the files in the catalog. They are safe without it, so whatever goes wrong is only a warning."""
        with self._lock:
            try:
                self._table.register(files)
            except Exception:
                _logger.warning(
                    "Rejects were written under %s/ but their table in the Glue Data Catalog could not be updated.",
                    self._root,
                    exc_info=True,
                )

    def withdraw(self, files: Sequence[RejectFile]) -> None:
        """Remove the rejects of a batch that is not committed."""
        withdraw_all(files, self._access.client("s3"))
