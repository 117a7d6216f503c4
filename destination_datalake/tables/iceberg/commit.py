"""Commits to one Iceberg table: load, build, govern what is new, retry.

Concurrency is optimistic: a commit is made only on the metadata that it was planned on. Columns that are new have their
LF-Tags and grants before rows in them become visible.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    TableAlreadyExistsError,
    ValidationError,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.sorting import SortOrder

from destination_datalake.aws.objects import Uncommitted, delete_uncommitted
from destination_datalake.aws.retries import retry_on
from destination_datalake.tables.iceberg.catalog import CompareAndSetGlueCatalog, SharingTransaction
from destination_datalake.tables.iceberg.compatibility import UNREADABLE
from destination_datalake.tables.iceberg.schema import column_types
from destination_datalake.tables.table import CommitStateUnknown, TableBusy, TableConflict

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.lake_formation.governance import Governance
    from destination_datalake.tables.table import TableName

_logger = logging.getLogger(__name__)

_Result = TypeVar("_Result")

_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Ungoverned:
    """No row may be committed yet: the table, or columns that are new to this sync, are not governed."""

    new: frozenset[str]


def set_property(name: str, value: str | None, transaction: Transaction) -> None:
    """Set a table property, or remove it for None, unless it is so already."""
    present = transaction.table_metadata.properties.get(name)
    if value is None and present is not None:
        transaction.remove_properties(name)
    elif value is not None and value != present:
        transaction.set_properties({name: value})


class TableOperations:
    """Load, create and commit to one table (Iceberg's `TableOperations`).

    Without `governance`, nothing is governed: as where no column can be new.
    """

    def __init__(self, name: TableName, access: AwsAccess, governance: Governance | None = None) -> None:
        self._name = name
        self._access = access
        self._governance = governance
        self._governed_fields: frozenset[int] = frozenset()

    def load(self) -> Table:
        """Return the table's present state.

        Raises NoSuchTableError, PyIceberg's errors for other table types, and TableConflict for metadata of a kind that
        PyIceberg does not know.
        """
        try:
            return self._catalog().load_table(self._name)
        except ValidationError as error:
            problem = f"{UNREADABLE}, or choose another lakeformation_database_name."
            raise TableConflict(f"Cannot write to table {self._name}: {problem}") from error

    def create(
        self, schema: Schema, location: str, spec: PartitionSpec, order: SortOrder, properties: Mapping[str, str]
    ) -> Table:
        """Create the table, or load it if another writer has created it meanwhile."""
        try:
            return self._catalog().create_table(self._name, schema, location, spec, order, dict(properties))
        except TableAlreadyExistsError:
            return self.load()

    def commit(
        self, build: Callable[[Table, Transaction], _Result | Ungoverned], table: Table | None = None
    ) -> tuple[Table, _Result]:
        """Commit a transaction; return the table after it, and the result of `build`.

        `build` fills the transaction; an empty one is not committed. If it returns Ungoverned, that is committed and
        governed alone, and `build` called again. Retries on optimistic-concurrency conflicts with exponential backoff
        and jitter: the table is loaded again and `build` called again, as what it decided may no longer hold. `table`
        saves loading a table that was just loaded. Raises TableBusy when the retries are exhausted, and
        CommitStateUnknown.
        """
        while True:
            table, result = self._commit(build, table)
            if not isinstance(result, Ungoverned):
                return table, result
            self._govern(table.metadata, result.new)

    def ungoverned(self, metadata: TableMetadata) -> Ungoverned | None:
        """Return what `build` answers if the schema is to be committed alone; None if it need not be."""
        if self._governance is None:
            return None
        # A column that was dropped and added again, by anyone, has another field id.
        new = frozenset(each.name for each in metadata.schema().fields if each.field_id not in self._governed_fields)
        governed = self._governance.is_governed(*self._name, column_types(metadata), new, metadata.table_uuid)
        return None if governed else Ungoverned(new)

    @contextmanager
    def planning_on(self, table: Table) -> Iterator[None]:
        """Raise CommitFailedException in place of FileNotFoundError if the table has changed since it was loaded.

        A snapshot may have expired that it had then: as good as a conflict.
        """
        location = table.metadata_location
        try:
            yield
        except FileNotFoundError as error:
            if self.load().metadata_location == location:
                raise
            raise CommitFailedException("Another writer has removed what this commit was planned on") from error

    def with_latest(self, act: Callable[[Table], _Result]) -> _Result:
        """Return what `act` returns for the table's present state, which it reads while others remove snapshots.

        If a file that the table refers to does not exist, and the table has changed meanwhile, `act` is called again
        for the new state. Raises FileNotFoundError if it has not changed.
        """
        for _ in range(_ATTEMPTS - 1):
            table = self.load()
            with suppress(CommitFailedException), self.planning_on(table):
                return act(table)
        return act(self.load())

    def delete_uncommitted(self, files: Iterable[Uncommitted]) -> None:
        """Delete files that the table does not refer to. A failure is logged and changes no outcome."""
        with self.logging_leftovers():
            delete_uncommitted(files, self._access.client("s3"))

    @contextmanager
    def logging_leftovers(self) -> Iterator[None]:
        """Log a failure to delete what nobody needs, and suppress it."""
        try:
            yield
        except Exception:
            _logger.warning("Unused files of table %s could not be deleted.", self._name, exc_info=True)

    def _commit(self, build: Callable[[Table, Transaction], _Result], table: Table | None) -> tuple[Table, _Result]:
        def attempt() -> tuple[Table, _Result]:
            nonlocal table
            base, table = table or self.load(), None
            # PyIceberg's own retries would commit the same files to a schema that another writer has changed.
            no_retries = {**base.metadata.properties, TableProperties.COMMIT_NUM_RETRIES: "0"}
            base.metadata = base.metadata.model_copy(update={"properties": no_retries})
            transaction = SharingTransaction(base)
            with self.planning_on(base):
                result = build(base, transaction)
            return transaction.commit_transaction(), result

        try:
            return retry_on(CommitFailedException, attempt)
        except CommitFailedException as error:
            raise TableBusy(
                f"Cannot commit to table {self._name}: other writers committed first at every attempt. "
                "Nothing was changed. Run the sync again when there are fewer of them."
            ) from error
        except CommitStateUnknownException as error:
            raise CommitStateUnknown(
                f"Table {self._name}: the response to a commit was lost, and other writers have changed the table "
                "so often since that it cannot be determined whether the commit was made. Its files are kept. Run "
                "the sync again: rows of this commit may then be in the table twice."
            ) from error

    def _govern(self, metadata: TableMetadata, new: frozenset[str]) -> None:
        assert self._governance is not None, "nothing is ungoverned"
        self._governance.govern_table(*self._name, column_types(metadata), new, metadata.table_uuid)
        self._governed_fields = frozenset(field.field_id for field in metadata.schema().fields)

    def _catalog(self) -> CompareAndSetGlueCatalog:
        return CompareAndSetGlueCatalog(self._access)
