"""The Glue Data Catalog: the tables of streams, and tables over JSON lines of the connector."""

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
# The Glue Data Catalog as the catalog of a configuration's tables.

DATABASE_DESCRIPTION = "Created by destination-datalake"
"""The description of databases created by this connector, by which it recognises them."""

_PAGE = 100
"""The most that Glue returns at a time."""


class GlueTableCatalog:
    """The `TableCatalog` of databases and tables in Glue."""

    compares_metadata = True

    def __init__(self, access: AwsAccess, governance: Governance) -> None:
        self.governance = governance
        self._access = access
        self._existing: set[str] = set()
        self._lock = threading.Lock()

    def pyiceberg(self) -> Catalog:
        """Return PyIceberg's catalog for one change of one table."""
        # PyIceberg takes a second to import, which Hive tables and `check` need not spend.
        from destination_datalake.tables.glue.compare_and_set import CompareAndSetGlueCatalog

        return CompareAndSetGlueCatalog(self._access)

    def access_of(self, table: TableName) -> AwsAccess:  # noqa: ARG002
        """Return the configuration's own access: Glue lends none."""
        return self._access

    def ensure(self, database: str) -> None:
        """Create the database if it does not exist, and govern it; asks Glue once for each name.

        Raises what Glue raises, and as `govern`.
        """
        with self._lock:
            if database not in self._existing:
                ensure_database(self._access.client("glue"), database, self.governance.database_settings)
                self._existing.add(database)
        self.govern(database)

    def govern(self, database: str) -> None:
        """Have an existing database governed, once for each name. Raises ConnectorError, or what AWS raises."""
        self.governance.govern_database(database, lambda: self._is_ours(database))

    def find(self, table: TableName) -> TableTypeDef | None:
        """Return the table, of whatever kind; None if there is none."""
        glue = self._access.client("glue")
        try:
            return glue.get_table(DatabaseName=table.database, Name=table.table)["Table"]
        except glue.exceptions.EntityNotFoundException:
            return None

    def databases(self) -> Iterator[ListedDatabase]:
        """Yield all databases that Glue shows."""
        pages = self._access.client("glue").get_paginator("get_databases")
        for page in pages.paginate(PaginationConfig={"PageSize": _PAGE}):
            for each in page["DatabaseList"]:
                ours = each.get("Description") == DATABASE_DESCRIPTION
                yield ListedDatabase(each["Name"], ours, each.get("CreateTime"))

    def tables(self, database: str) -> Iterator[ListedTable]:
        """Yield all tables of a database that Glue shows, of whatever kind."""
        pages = self._access.client("glue").get_paginator("get_tables")
        for page in pages.paginate(DatabaseName=database, PaginationConfig={"PageSize": _PAGE}):
            for each in page["TableList"]:
                yield ListedTable(database, each)

    def _is_ours(self, database: str) -> bool:
        found = self._access.client("glue").get_database(Name=database)["Database"]
        return found.get("Description") == DATABASE_DESCRIPTION


def ensure_database(glue: GlueClient, name: str, settings: Mapping[str, Any] | None = None) -> None:
    """Create the database if it does not exist. Idempotent, also if several syncs do it concurrently.

    `settings` are further members of DatabaseInput (Glue API) for a database that is created.
    """
    try:
        glue.get_database(Name=name)
    except glue.exceptions.EntityNotFoundException:
        try:
            glue.create_database(DatabaseInput={"Name": name, "Description": DATABASE_DESCRIPTION, **(settings or {})})  # type: ignore[typeddict-item]
        except glue.exceptions.AlreadyExistsException:
            return


# --- Tables over JSON lines -------------------------------------------------------------------------------------------
# Glue tables over JSON lines that the connector writes beside the streams' tables: rejects, and reports of syncs.
#
# Each is created with the first object, and gets a partition for each folder with objects.


_MAX_PARTITIONS = 100
"""The most of one request (Glue API: BatchCreatePartition)."""


@dataclass(frozen=True, slots=True)
class LinesTableKind:
    """What a table of JSON lines is: its name, the types of its columns, its partition keys (strings).

    `what` completes "not a table of …". Readers go by the names of objects; `compression` is for those who ask first.
    """

    name: str
    what: str
    description: str
    columns: Mapping[str, str]
    keys: tuple[str, ...]
    compression: Literal["gzip", "none"]

    @property
    def parameters(self) -> Mapping[str, str]:
        """The parameters of the table and of its partitions."""
        return {"classification": "json", "compressionType": self.compression, "typeOfData": "file"}


class LinesTable:
    """The table of a kind, in the database of streams without a namespace, over the objects under `root`, an S3 URI.

    Not thread-safe.
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
        """Return whether there is a partition with these values, by one request. Raises what Glue raises."""
        glue = self._access.client("glue")
        try:
            glue.get_partition(DatabaseName=self._name.database, TableName=self._name.table, PartitionValues=[*values])
        except glue.exceptions.EntityNotFoundException:
            return False
        return True

    def register_folders(self, folders: Mapping[tuple[str, ...], str]) -> None:
        """Register folders (S3 URIs) as partitions with these values; the table is created if it does not exist.

        Idempotent, also across syncs and by several at once. Raises TableConflict if another table has its name, or
        what Glue raises.
        """
        new = {values: folder for values, folder in folders.items() if values not in self._registered}
        if not new:
            return
        if not self._registered:
            self._ensure_table()
            # Before the first partition, so before readers find a line in the table.
            self._catalog.governance.govern_table(*self._name, [*self._kind.columns, *self._kind.keys])
        inputs: list[PartitionInputTypeDef] = [
            {"Values": [*values], "StorageDescriptor": self._storage(folder), "Parameters": self._kind.parameters}
            for values, folder in new.items()
        ]
        for start in range(0, len(inputs), _MAX_PARTITIONS):
            self._create_partitions(inputs[start : start + _MAX_PARTITIONS])
        self._registered |= new.keys()

    def _create_partitions(self, inputs: Sequence[PartitionInputTypeDef]) -> None:
        answer = self._access.client("glue").batch_create_partition(
            DatabaseName=self._name.database, TableName=self._name.table, PartitionInputList=inputs
        )
        for error in answer.get("Errors", []):
            detail = error.get("ErrorDetail", {})
            if detail.get("ErrorCode") != "AlreadyExistsException":
                raise RuntimeError(f"Glue has not created a partition of {self._name}: {detail.get('ErrorCode')}")

    def _ensure_table(self) -> None:
        self._catalog.ensure(self._name.database)
        existing: Mapping[str, Any] = self._catalog.find(self._name) or {}
        if not existing:
            self._create()
            existing = self._catalog.find(self._name) or {}  # Another sync's, or somebody's, if that came first.
        if tuple(key["Name"] for key in existing.get("PartitionKeys", [])) != self._kind.keys:
            raise TableConflict(f"Table {self._name} is not a table of {self._kind.what}: it has other partition keys.")

    def _create(self) -> None:
        """Create the table, unless another sync does, or somebody."""
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
    "Records and values that destination-datalake could not keep as they were",
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
"""The columns are the keys of a line in lower case, except `reason`, which is a partition key."""


class RejectsTable(LinesTable):
    """The table of rejects, which awswrangler creates."""

    def __init__(self, database: str, root: str, access: AwsAccess, catalog: TableCatalog) -> None:
        super().__init__(REJECTS, database, root, access, catalog)

    def register(self, files: Iterable[RejectFile]) -> None:
        """Register the files' folders. Raises as `register_folders`."""
        self.register_folders({file.partition: file.folder for file in files})

    def _create(self) -> None:
        # Imported here because it imports pandas, which takes a second that only a lake's first rejects need spend.
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
