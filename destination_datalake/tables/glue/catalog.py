"""The Glue Data Catalog: tables for streams, and the connector's own tables over JSON Lines files."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from destination_datalake.rejects.ledger import REJECTS_TABLE, Partition, RejectFile
from destination_datalake.tables.catalog import ListedDatabase, ListedTable
from destination_datalake.tables.glue.glue_table import STORAGE_FORMATS
from destination_datalake.tables.table import TableConflict, TableName

if TYPE_CHECKING:
    from mypy_boto3_glue import GlueClient
    from mypy_boto3_glue.type_defs import PartitionInputTypeDef, StorageDescriptorTypeDef, TableTypeDef
    from pyiceberg.catalog import Catalog

    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.lake_formation.governance import Governance
    from destination_datalake.tables.catalog import TableCatalog


# --- Tables of streams ------------------------------------------------------------------------------------------------
# The `TableCatalog` for the Glue Data Catalog.

DATABASE_DESCRIPTION = "Created by destination-datalake"
"""The description of each database that this connector creates. The connector recognises its databases by this text."""

_MAX_PAGE_SIZE = 100
"""Maximum number of databases or tables per response of Glue."""


class GlueTableCatalog:
    """The `TableCatalog` for the Glue Data Catalog."""

    compares_metadata = True

    def __init__(self, access: AwsAccess, governance: Governance) -> None:
        self.governance = governance
        self._access = access
        self._existing: set[str] = set()
        self._lock = threading.Lock()

    def pyiceberg(self) -> Catalog:
        """Return a new PyIceberg catalog for one commit to one table."""
        # Import PyIceberg only here: Hive tables and `check` do not need it, and the import takes a second.
        from destination_datalake.tables.glue.compare_and_set import CompareAndSetGlueCatalog

        return CompareAndSetGlueCatalog(self._access)

    def access_of(self, table: TableName) -> AwsAccess:  # noqa: ARG002
        """Return the configured access, because Glue does not vend credentials."""
        return self._access

    def ensure(self, database: str) -> None:
        """Create the database if it does not exist, and apply the configured Lake Formation permissions to it.

        Only the first call for each database sends requests. Raises errors from Glue, and raises ConnectorError or
        errors from AWS in the same cases as `govern`.
        """
        # One thread creates the database. The threads of other streams wait for it.
        with self._lock:
            if database not in self._existing:
                ensure_database(self._access.client("glue"), database, self.governance.database_settings)
                self._existing.add(database)
        self.govern(database)

    def govern(self, database: str) -> None:
        """Apply the configured Lake Formation permissions to an existing database, once per database.

        Raises ConnectorError if the permissions cannot be applied, and errors from AWS.
        """
        self.governance.govern_database(database, lambda: self._is_created_by_connector(database))

    def find(self, table: TableName) -> TableTypeDef | None:
        """Return the table, which may have any type. Return None if the table or its database does not exist."""
        glue = self._access.client("glue")
        try:
            return glue.get_table(DatabaseName=table.database, Name=table.table)["Table"]
        except glue.exceptions.EntityNotFoundException:
            return None

    def databases(self) -> Iterator[ListedDatabase]:
        """Yield all databases that Glue lists for the connector's AWS identity."""
        pages = self._access.client("glue").get_paginator("get_databases")
        for page in pages.paginate(PaginationConfig={"PageSize": _MAX_PAGE_SIZE}):
            for database in page["DatabaseList"]:
                is_created_by_connector = database.get("Description") == DATABASE_DESCRIPTION
                yield ListedDatabase(database["Name"], is_created_by_connector, database.get("CreateTime"))

    def tables(self, database: str) -> Iterator[ListedTable]:
        """Yield all tables of a database, of any type, that Glue lists for the connector's AWS identity."""
        pages = self._access.client("glue").get_paginator("get_tables")
        for page in pages.paginate(DatabaseName=database, PaginationConfig={"PageSize": _MAX_PAGE_SIZE}):
            for table in page["TableList"]:
                yield ListedTable(database, table)

    def _is_created_by_connector(self, database: str) -> bool:
        answer = self._access.client("glue").get_database(Name=database)
        return answer["Database"].get("Description") == DATABASE_DESCRIPTION


def ensure_database(glue: GlueClient, name: str, settings: Mapping[str, Any] | None = None) -> None:
    """Create the database if it does not exist. Concurrent syncs may call this function for the same database.

    `settings` are additional members of DatabaseInput (Glue API) for a new database.
    """
    try:
        glue.get_database(Name=name)
    except glue.exceptions.EntityNotFoundException:
        try:
            glue.create_database(DatabaseInput={"Name": name, "Description": DATABASE_DESCRIPTION, **(settings or {})})  # type: ignore[typeddict-item]
        # Another sync has created the database between the two requests.
        except glue.exceptions.AlreadyExistsException:
            return


# --- Tables over JSON Lines -------------------------------------------------------------------------------------------
# The connector's own Glue tables over JSON Lines files: rejected records and sync reports.
#
# The connector creates such a table when it writes the table's first object. Each folder that contains objects is a
# partition.


_MAX_PARTITIONS = 100
"""Maximum number of partitions per request (Glue API: BatchCreatePartition)."""


@dataclass(frozen=True, slots=True)
class LinesTableKind:
    """The definition of a table over JSON Lines files.

    `columns` maps column names to types. `keys` contains the names of the partition keys, which have the type string.
    `content` completes the clause "not a table of …" in messages. The table's parameters record `compression` for the
    few readers that use them. Most readers derive the compression from the object names.
    """

    name: str
    content: str
    description: str
    columns: Mapping[str, str]
    keys: tuple[str, ...]
    compression: Literal["gzip", "none"]

    @property
    def parameters(self) -> Mapping[str, str]:
        """The parameters of the table and of each of its partitions."""
        return {"classification": "json", "compressionType": self.compression, "typeOfData": "file"}


class LinesTable:
    """A Glue table over the JSON Lines files below the S3 URI `root`. Not thread-safe.

    `database` is the database for streams that have no namespace. It also contains this table.
    """

    def __init__(
        self, kind: LinesTableKind, database: str, root: str, access: AwsAccess, catalog: TableCatalog
    ) -> None:
        self._kind = kind
        self._name = TableName(database, kind.name)
        self._root = root
        self._access = access
        self._catalog = catalog
        self._registered: set[tuple[str, ...]] = set()

    def has(self, values: tuple[str, ...]) -> bool:
        """Return whether the table has a partition with these values. Sends one request. Raises errors from Glue."""
        glue = self._access.client("glue")
        try:
            glue.get_partition(DatabaseName=self._name.database, TableName=self._name.table, PartitionValues=[*values])
        except glue.exceptions.EntityNotFoundException:
            return False
        return True

    def register_folders(self, folders: Mapping[tuple[str, ...], str]) -> None:
        """Register folders as partitions. Create the table if it does not exist.

        `folders` maps the values of each partition to the S3 URI of its folder. Concurrent and later syncs may register
        the same folders again. Raises TableConflict if a different table already has the name, and errors from Glue.
        """
        new = {values: folder for values, folder in folders.items() if values not in self._registered}
        if not new:
            return
        if not self._registered:
            self._ensure_table()
            # Apply permissions before the first partition is created, so that no reader sees unprotected lines.
            self._catalog.governance.govern_table(*self._name, [*self._kind.columns, *self._kind.keys])
        inputs: list[PartitionInputTypeDef] = [
            {"Values": [*values], "StorageDescriptor": self._storage(folder), "Parameters": self._kind.parameters}
            for values, folder in new.items()
        ]
        for start in range(0, len(inputs), _MAX_PARTITIONS):
            self._create_partitions(inputs[start : start + _MAX_PARTITIONS])
        # Only after all requests: after an error, the next call registers all of them again, which does no harm.
        self._registered |= new.keys()

    def _create_partitions(self, inputs: Sequence[PartitionInputTypeDef]) -> None:
        answer = self._access.client("glue").batch_create_partition(
            DatabaseName=self._name.database, TableName=self._name.table, PartitionInputList=inputs
        )
        for error in answer.get("Errors", []):
            detail = error.get("ErrorDetail", {})
            # BatchCreatePartition responds with status 200 even if it could not create some partitions.
            if detail.get("ErrorCode") != "AlreadyExistsException":
                raise RuntimeError(
                    f"Glue did not create a partition of table {self._name} (error code {detail.get('ErrorCode')}). "
                    "Run the sync again."
                )

    def _ensure_table(self) -> None:
        self._catalog.ensure(self._name.database)
        existing: Mapping[str, Any] = self._catalog.find(self._name) or {}
        if not existing:
            self._create()
            # Read the table, because another program may have created it first.
            existing = self._catalog.find(self._name) or {}
        if tuple(key["Name"] for key in existing.get("PartitionKeys", [])) != self._kind.keys:
            raise TableConflict(
                f"Cannot write {self._kind.content} to table {self._name}: the partition keys of the table differ "
                "from those of this connector. Rename or drop the table."
            )

    def _create(self) -> None:
        """Create the table, unless another program has just created it."""
        glue = self._access.client("glue")
        with contextlib.suppress(glue.exceptions.AlreadyExistsException):
            glue.create_table(
                DatabaseName=self._name.database,
                TableInput={
                    "Name": self._name.table,
                    "Description": self._kind.description,
                    "TableType": "EXTERNAL_TABLE",
                    "PartitionKeys": [{"Name": key, "Type": "string"} for key in self._kind.keys],
                    "Parameters": self._kind.parameters,
                    "StorageDescriptor": self._storage(f"{self._root}/"),
                },
            )

    def _storage(self, location: str) -> StorageDescriptorTypeDef:
        storage = STORAGE_FORMATS["jsonl"]
        return {
            "Columns": [{"Name": name, "Type": type_} for name, type_ in self._kind.columns.items()],
            "Location": location,
            "InputFormat": storage.input_format,
            "OutputFormat": storage.output_format,
            "Compressed": self._kind.compression != "none",
            "NumberOfBuckets": -1,
            "SerdeInfo": {
                "SerializationLibrary": storage.serialization_library,
                "Parameters": {"case.insensitive": "true"},
            },
            "StoredAsSubDirectories": False,
            "Parameters": self._kind.parameters,
        }


REJECTS = LinesTableKind(
    REJECTS_TABLE,
    "rejects",
    "Records and values that destination-datalake rejected or changed",
    {
        "attemptsmade": "int",
        "arrivaltimestamp": "bigint",
        "errorcode": "string",
        "errormessage": "string",
        "attemptendingtimestamp": "bigint",
        "rawdata": "string",
        "sequencenumber": "string",
        "subsequencenumber": "int",
        "datacatalogtable": "struct<databasename:string,tablename:string>",
        "table_name": "string",
        "row_id": "string",
        "column_name": "string",
        "column_value": "string",
        "values_not_listed": "int",
        "change": "string",
        "received_at": "timestamp",
        "loaded_at": "timestamp",
        "run_id": "string",
        "stream_namespace": "string",
        "stream_name": "string",
    },
    Partition._fields,
    "gzip",
)
"""The definition of the table of rejects.

The columns are the keys of a reject's JSON line in lower case. The key `reason` is a partition key instead.
"""


class RejectsTable(LinesTable):
    """The table of rejected records. This class creates the table with awswrangler."""

    def __init__(self, database: str, root: str, access: AwsAccess, catalog: TableCatalog) -> None:
        super().__init__(REJECTS, database, root, access, catalog)

    def register(self, files: Iterable[RejectFile]) -> None:
        """Register the folders of reject files as partitions. Raises errors in the same cases as `register_folders`."""
        self.register_folders({file.partition: file.folder for file in files})

    def _create(self) -> None:
        # Import awswrangler only here: only the first rejects of a data lake need it. The import loads pandas and takes
        # a second.
        import awswrangler as wr

        wr.config.glue_endpoint_url = self._access.endpoint_url
        wr.catalog.create_json_table(
            self._name.database,
            self._name.table,
            f"{self._root}/",
            dict(self._kind.columns),
            partitions_types=dict.fromkeys(self._kind.keys, "string"),
            compression=self._kind.compression,
            description=self._kind.description,
            mode="append",
            serde_library=STORAGE_FORMATS["jsonl"].serialization_library,
            serde_parameters={"case.insensitive": "true"},
            boto3_session=self._access.session(),
        )
