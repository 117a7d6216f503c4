"""Iceberg tables as places where rows can be: their branches and snapshots, and files that nothing refers to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pyiceberg.exceptions import NoSuchTableError

from destination_datalake.config.tables import Retention
from destination_datalake.erasure.place import ErasedObject, ErasureStats, Outcome, Request
from destination_datalake.errors import ConfigError, ConnectorError, Failure
from destination_datalake.files.scan import distinct_rows
from destination_datalake.tables.iceberg.commit import TableOperations
from destination_datalake.tables.iceberg.erasure.column import IdColumn, NoSuchColumn, partition_fields
from destination_datalake.tables.iceberg.erasure.erase import ErasureRequest, TableErasure
from destination_datalake.tables.iceberg.erasure.strays import Strays
from destination_datalake.tables.iceberg.maintenance.deletion import MaintenanceSkipped
from destination_datalake.tables.iceberg.maintenance.second_reader import Disagreement
from destination_datalake.tables.iceberg.snapshots.branch_files import Incomplete
from destination_datalake.tables.table import CommitStateUnknown, TableBusy, TableConflict, TableName

if TYPE_CHECKING:
    from destination_datalake.erasure.ledger import Ledger

_FEW = 10_000
"""So many ids at most are values from which partitions are told."""


@dataclass(slots=True)
class IcebergTarget:
    """One table."""

    table: TableName
    request: Request
    ledger: Ledger
    may_lack_column: bool = False
    """Whether a table without the column has no such rows; else there is a mistake in its name."""
    figures: ErasureStats = field(default_factory=ErasureStats)
    _erasure: TableErasure | None = None

    @property
    def name(self) -> str:
        """What it is called in the report."""
        return self.request.of(f"Iceberg table {self.table}")

    def require(self) -> None:
        """Raise ConnectorError if rows cannot be erased from the table."""
        if self.request.catalog.find(self.table) is None:
            raise ConfigError(f"There is no table {self.table}. Nothing was changed.")
        with as_failures(self.table):
            if (erasure := self._begin()) is not None:
                erasure.require()
                self._update_stats(erasure)

    def find(self) -> Iterator[ErasedObject]:
        """Yield the files of all snapshots that have rows, and those that nothing refers to."""
        with as_failures(self.table):
            erasure = self._erasure or self._begin()
            if erasure is None or (found := erasure.find()) is None:
                return
            plan, dirty = found
            self._update_stats(erasure)
            branches = {path: name for name, head in plan.heads.items() for path in head}
            kept = erasure.kept(plan, dirty)
            for path, rows in sorted(dirty.items()):
                where = f"branch {branches[path]}" if path in branches else "former snapshots"
                outcome: Outcome = "kept" if path in kept else "found"
                yield ErasedObject(path, rows.count, outcome=outcome, reason=f"of {where}")
            for id_ in sorted(plan.telling - erasure.kept_snapshots(plan)):
                snapshot = plan.metadata.snapshot_by_id(id_)
                assert snapshot is not None
                yield ErasedObject(
                    snapshot.manifest_list, -1, reason="tells an id by entries of files that were removed"
                )
            for stray in self._strays(erasure).find(datetime.now(UTC)):
                yield ErasedObject(stray.uri, stray.rows, reason="no snapshot refers to it")

    def erase(self) -> Iterator[ErasedObject]:
        """Erase the rows from all snapshots in one commit, end their history, and delete what nothing refers to."""
        with as_failures(self.table):
            erasure = self._erasure or self._begin()
            self._erasure = None  # The second search reads everything again.
            if erasure is None:
                return
            files = erasure.run(self.ledger.doom)
            self.figures.distinct_rows = distinct_rows(each.raw_ids for each in files)
            for file in files:
                yield ErasedObject(
                    file.uri,
                    file.rows,
                    file.rows,
                    "removed" if file.new is None else "rewritten",
                    () if file.new is None else (file.new,),
                )
            self.figures.snapshots_expired += erasure.snapshots_expired
            self._update_stats(erasure)
            yield from self._erase_strays(erasure)

    def _erase_strays(self, erasure: TableErasure) -> Iterator[ErasedObject]:
        strays = self._strays(erasure)
        found = [*strays.find(datetime.now(UTC))]
        deleted = {each.uri for each in strays.delete(found)} if any(each.deletable for each in found) else set()
        for stray in found:
            if stray.uri in deleted:
                rows = max(stray.rows, 0)
                self.figures.distinct_rows = None  # Nothing tells whether its rows were in the table.
                yield ErasedObject(stray.uri, rows, rows, "removed")
            elif not stray.deletable:
                until = stray.since + strays.age
                reason = (
                    "no snapshot refers to it, and it is so young that a sync which still runs may be about to commit "
                    f"it. If it is still there after {until:%Y-%m-%d %H:%M} UTC, this command deletes it then"
                )
                yield ErasedObject(stray.uri, stray.rows, outcome="left", reason=reason)

    def _begin(self) -> TableErasure | None:
        """Return the erasure from the table as it is; None if there is no table."""
        try:
            self._erasure = table_erasure(self.table, self.request)
        except NoSuchTableError:
            return None
        except NoSuchColumn:
            if not self.may_lack_column:
                raise
            self.figures.note(f"{self.name} has no column {self.request.column}.")
            return None
        return self._erasure

    def _strays(self, erasure: TableErasure) -> Strays:
        options = self.request.config.maintenance
        days = (options if isinstance(options, Retention) else Retention()).orphan_retention_days
        return Strays(erasure, timedelta(days=days), self.ledger.are_doomed)

    def _update_stats(self, erasure: TableErasure) -> None:
        # The second search reads other objects, and fewer.
        self.figures.objects_read = max(self.figures.objects_read, erasure.files_searched)
        self.figures.objects = max(self.figures.objects, erasure.files)


def table_erasure(name: TableName, request: Request) -> TableErasure:
    """Return the erasure from a table as it is. Raises NoSuchTableError, NoSuchColumn, and ConfigError."""
    table = TableOperations(name, request.catalog).load()
    column = IdColumn.named(request.column, name, table.schema())
    if request.mask is not None:
        request.mask.fields |= partition_fields(column, table.metadata)
    ids = request.ids(column.type, name)
    few: Sequence[Any] | None = None
    if len(ids) <= _FEW and request.redirected_from is None:
        few = request.file.values(column.type, request.column)
    asked = ErasureRequest(
        request.id,
        ids,
        few,
        request.config.format.compression_codec,
        None if request.keep_history is None else timedelta(days=request.keep_history),
        request.drop_tags,
    )
    return TableErasure(name, request.catalog, request.executors, column, asked)


@contextmanager
def as_failures(table: TableName) -> Iterator[None]:
    """Raise ConnectorError in place of the errors of tables."""
    try:
        yield
    except TableConflict as error:
        raise ConnectorError(Failure(str(error), str(error), "config_error")) from error
    except (TableBusy, CommitStateUnknown) as error:
        raise ConnectorError(Failure(str(error), str(error), "transient_error")) from error
    except MaintenanceSkipped as error:
        message = f"Cannot erase rows from table {table}: {error}."
        raise ConnectorError(Failure(message, str(error), "config_error")) from error
    except (Incomplete, Disagreement) as error:
        message = (
            f"Rows of table {table} may be erased from its branches and snapshots, but the objects that had them were "
            f"not all deleted: {error}. This may be a mistake of the connector: report it with that file. If other "
            "engines can read the table, let them write its manifests again (Spark: the procedure rewrite_manifests), "
            "and run the command again."
        )
        raise ConnectorError(Failure(message, str(error), "system_error")) from error
