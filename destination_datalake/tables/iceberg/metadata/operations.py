"""Reading and changing one Iceberg table in the catalog, with optimistic concurrency."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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

from destination_datalake.aws.retries import retry_on
from destination_datalake.tables.iceberg.compatibility import UNREADABLE
from destination_datalake.tables.iceberg.metadata.catalog import CompareAndSetGlueCatalog
from destination_datalake.tables.iceberg.metadata.transaction import SharingTransaction
from destination_datalake.tables.table import CommitStateUnknown, TableBusy, TableConflict

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.tables.table import TableName

_Result = TypeVar("_Result")


class TableOperations:
    """Load, create and commit to one table (Iceberg's `TableOperations`)."""

    def __init__(self, name: TableName, access: AwsAccess) -> None:
        self._name = name
        self._access = access

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
        self, build: Callable[[Table, Transaction], _Result], table: Table | None = None
    ) -> tuple[Table, _Result]:
        """Commit a transaction; return the table after it, and the result of `build`.

        `build` fills the transaction; an empty one is not committed. Retries on optimistic-concurrency conflicts with
        exponential backoff and jitter: the table is loaded again and `build` called again, as what it decided may no
        longer hold. `table` saves loading a table that was just loaded. Raises TableBusy when the retries are
        exhausted, and CommitStateUnknown.
        """

        def attempt() -> tuple[Table, _Result]:
            nonlocal table
            base, table = table or self.load(), None
            # PyIceberg's own retries would commit the same files to a schema that another writer has changed.
            no_retries = {**base.metadata.properties, TableProperties.COMMIT_NUM_RETRIES: "0"}
            base.metadata = base.metadata.model_copy(update={"properties": no_retries})
            transaction = SharingTransaction(base)
            try:
                result = build(base, transaction)
            except FileNotFoundError as error:
                # A snapshot may have expired that the table had when it was loaded: also a conflict.
                if self.load().metadata_location == base.metadata_location:
                    raise
                raise CommitFailedException("Another writer has removed what this commit was planned on") from error
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

    def _catalog(self) -> CompareAndSetGlueCatalog:
        return CompareAndSetGlueCatalog(self._access)
