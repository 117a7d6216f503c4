"""The Glue table over the rejects of all streams: created with the first reject, with a partition for each folder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from destination_datalake.rejects.ledger import REJECTS_TABLE, Partition, RejectFile
from destination_datalake.tables.glue.glue_table import STORAGE_FORMATS
from destination_datalake.tables.table import TableConflict, TableName

if TYPE_CHECKING:
    import boto3

    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.tables.catalog import TableCatalog

COLUMNS: Mapping[str, str] = {
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
}
"""The columns: the keys of a line in lower case, except `reason`, which is a partition key."""

_COMPRESSION = "gzip"
_SERDE = STORAGE_FORMATS["jsonl"].serialization_library
_SERDE_PARAMETERS: Mapping[str, str] = {"case.insensitive": "true"}


class RejectsTable:
    """The table, in the database of streams without a namespace. `root` is the S3 URI of the folder of all rejects.

    Not thread-safe.
    """

    def __init__(self, database: str, root: str, access: AwsAccess, catalog: TableCatalog) -> None:
        self._name = TableName(database, REJECTS_TABLE)
        self._root = root
        self._access = access
        self._catalog = catalog
        self._registered: set[Partition] = set()

    def register(self, files: Iterable[RejectFile]) -> None:
        """Register the files' folders as partitions of the table, which is created if it does not exist.

        Idempotent, also across syncs. Raises TableConflict if another table has its name, or what AWS's libraries
        raise.
        """
        folders = {file.partition: file.folder for file in files if file.partition not in self._registered}
        if not folders:
            return
        # Imported here because it imports pandas, which takes a second that a sync without rejects need not spend.
        import awswrangler as wr

        wr.config.glue_endpoint_url = self._access.endpoint_url
        session = self._access.session()
        if not self._registered:
            self._ensure_table(session)
            # Before the first partition, so before readers find a reject in the table.
            self._catalog.governance.govern_table(*self._name, [*COLUMNS, *Partition._fields])
        wr.catalog.add_json_partitions(
            self._name.database,
            self._name.table,
            {folder: list(partition) for partition, folder in folders.items()},
            compression=_COMPRESSION,
            serde_library=_SERDE,
            serde_parameters=dict(_SERDE_PARAMETERS),
            columns_types=dict(COLUMNS),
            boto3_session=session,
        )
        self._registered |= folders.keys()

    def _ensure_table(self, session: boto3.Session) -> None:
        import awswrangler as wr

        glue = self._access.client("glue")
        self._catalog.ensure(self._name.database)
        try:
            existing = glue.get_table(DatabaseName=self._name.database, Name=self._name.table)["Table"]
        except glue.exceptions.EntityNotFoundException:
            wr.catalog.create_json_table(
                self._name.database,
                self._name.table,
                f"{self._root}/",
                dict(COLUMNS),
                partitions_types=dict.fromkeys(Partition._fields, "string"),
                compression=_COMPRESSION,
                description="Records and values that destination-datalake could not keep as they were",
                mode="append",
                serde_library=_SERDE,
                serde_parameters=dict(_SERDE_PARAMETERS),
                boto3_session=session,
            )
            return
        if tuple(key["Name"] for key in existing.get("PartitionKeys", [])) != Partition._fields:
            raise TableConflict(f"Table {self._name} is not a table of rejects: it has other partition keys.")
