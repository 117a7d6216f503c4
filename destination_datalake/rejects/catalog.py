"""The Glue table over the rejects of all streams: made at the first reject, a partition for each folder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from destination_datalake.rejects.place import Partition, RejectFile
from destination_datalake.tables.base import TableConflict, TableName
from destination_datalake.tables.database import ensure_database

if TYPE_CHECKING:
    from mypy_boto3_glue import GlueClient

    from destination_datalake.aws.access import AwsAccess

TABLE = "airbyte_rejects"

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
    "change": "string",
    "received_at": "timestamp",
    "loaded_at": "timestamp",
    "run_id": "string",
    "stream_namespace": "string",
    "stream_name": "string",
}
"""The members of a line, in Glue's lower case; its `reason` is a partition key."""

_PARTITIONS_AT_ONCE = 100  # Glue API: BatchCreatePartition


class RejectsTable:
    """The table, in the database for streams without a namespace. `root` is the S3 URI of the folder for all rejects.

    Not thread-safe: its owner locks.
    """

    def __init__(self, database: str, root: str, access: AwsAccess) -> None:
        self._name = TableName(database, TABLE)
        self._root = root
        self._access = access
        self._registered: set[Partition] = set()

    def register(self, files: Iterable[RejectFile]) -> None:
        """Make the files' folders partitions of the table, which is created if it is not there.

        Harmless where others do the same, or have done it. Raises TableConflict if there is another table of that
        name, or what AWS's libraries raise.
        """
        folders = {file.partition: file.folder for file in files if file.partition not in self._registered}
        if not folders:
            return
        glue = self._access.client("glue")
        if not self._registered:
            self._ensure_table(glue)
        items = list(folders.items())
        for start in range(0, len(items), _PARTITIONS_AT_ONCE):
            answer = glue.batch_create_partition(
                DatabaseName=self._name.database,
                TableName=self._name.table,
                PartitionInputList=[
                    {"Values": list(partition), "StorageDescriptor": _storage(folder)}
                    for partition, folder in items[start : start + _PARTITIONS_AT_ONCE]
                ],
            )
            for problem in answer.get("Errors", []):
                detail = problem.get("ErrorDetail", {})
                if detail.get("ErrorCode") != "AlreadyExistsException":
                    partition = "/".join(problem.get("PartitionValues", []))
                    said = detail.get("ErrorMessage", "no reason")
                    raise TableConflict(f"Partition {partition} of table {self._name} was refused: {said}")
        self._registered |= folders.keys()

    def _ensure_table(self, glue: GlueClient) -> None:
        ensure_database(glue, self._name.database)
        keys = [{"Name": name, "Type": "string"} for name in Partition._fields]
        with suppress(glue.exceptions.AlreadyExistsException):
            glue.create_table(
                DatabaseName=self._name.database,
                TableInput={
                    "Name": self._name.table,
                    "Description": "Records and values that destination-datalake could not keep as they were",
                    "TableType": "EXTERNAL_TABLE",
                    "Parameters": {
                        "EXTERNAL": "TRUE",
                        "classification": "json",
                        "compressionType": "gzip",
                        "typeOfData": "file",
                    },
                    "PartitionKeys": keys,  # type: ignore[typeddict-item]
                    "StorageDescriptor": _storage(f"{self._root}/"),
                },
            )
            return
        there = glue.get_table(DatabaseName=self._name.database, Name=self._name.table)["Table"]
        if tuple(key["Name"] for key in there.get("PartitionKeys", [])) != Partition._fields:
            raise TableConflict(f"Table {self._name} is not one of rejects: it has other partition keys.")


def _storage(location: str) -> Any:
    return {
        "Columns": [{"Name": name, "Type": type_} for name, type_ in COLUMNS.items()],
        "Location": location,
        "InputFormat": "org.apache.hadoop.mapred.TextInputFormat",
        "OutputFormat": "org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat",
        "Compressed": True,
        "SerdeInfo": {
            "SerializationLibrary": "org.openx.data.jsonserde.JsonSerDe",
            "Parameters": {"case.insensitive": "true"},
        },
    }
