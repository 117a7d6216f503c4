"""Changes of one Iceberg table: each in one metadata commit, planned anew when another writer was faster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, TableAlreadyExistsError
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties, Transaction

from destination_datalake.aws.retries import attempts
from destination_datalake.tables.iceberg.catalog import KeepingGlueCatalog
from destination_datalake.tables.table import CommitStateUnknown, TableBusy

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.tables.table import TableName

_Result = TypeVar("_Result")


class IcebergCommits:
    """The table in the catalog, as PyIceberg has it."""

    def __init__(self, name: TableName, access: AwsAccess) -> None:
        self._name = name
        self._access = access

    def load(self) -> Table:
        """Return the table as it is now. Raises NoSuchTableError, or what PyIceberg raises of other kinds of table."""
        return self._catalog().load_table(self._name)

    def create(self, schema: Schema, location: str, properties: Mapping[str, str]) -> Table:
        """Create the table. One that is there already stays as it is."""
        try:
            return self._catalog().create_table(self._name, schema, location=location, properties=dict(properties))
        except TableAlreadyExistsError:
            return self.load()

    def change(
        self, change: Callable[[Table, Transaction], _Result], table: Table | None = None
    ) -> tuple[Table, _Result]:
        """Make changes in one metadata commit, or in none if there are none.

        Return the table as it then is, and what `change` returned, which is called again, on the table that they left,
        whenever another writer was faster. `table` is what to begin with, if it was just loaded. Raises
        TableBusy if that does not end, and CommitStateUnknown.
        """
        for last in attempts():
            table = table if table is not None else self.load()
            # PyIceberg's own retries would add the files to whatever schema another writer has made of ours.
            once = {**table.metadata.properties, TableProperties.COMMIT_NUM_RETRIES: "0"}
            table.metadata = table.metadata.model_copy(update={"properties": once})
            transaction = table.transaction()
            result = change(table, transaction)
            try:
                return transaction.commit_transaction(), result
            except CommitFailedException as error:
                if last:
                    raise TableBusy(
                        f"Cannot commit to table {self._name}: other writers were faster every time it was tried. "
                        "Nothing was changed. Run the sync again when they are less busy."
                    ) from error
                table = None
            except CommitStateUnknownException as error:
                raise CommitStateUnknown(
                    f"Table {self._name}: AWS's answer to a commit was lost, and others have changed the table so "
                    "often since that nobody can tell whether it was made. Its files are left where they are. Run the "
                    "sync again: rows of this commit may then be there twice."
                ) from error
        raise AssertionError("every attempt returns or raises")

    def _catalog(self) -> KeepingGlueCatalog:
        return KeepingGlueCatalog(self._access)
