"""Read the lake's tables in S3 and Glue, independently of the connector's code.

DuckDB reads the data files. For an Iceberg table, PyIceberg's scan of the current snapshot lists the files, and columns
are identified by field ID. For a Hive table, the files are in the locations that Glue contains, as for Athena.
"""

import re
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, cached_property
from os.path import commonpath
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

import boto3
import duckdb
import pyarrow as pa
from emulated_aws.server import ACCESS_KEY_ID, ACCOUNT_ID, REGION, SECRET_ACCESS_KEY
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFileContent
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortOrder

from integration_tests.harness.engines.projection import Projection, is_projected
from integration_tests.harness.glue_types import duckdb_type, quoted

if TYPE_CHECKING:
    from mypy_boto3_glue import GlueClient
    from mypy_boto3_glue.type_defs import ColumnOutputTypeDef, StorageDescriptorOutputTypeDef, TableTypeDef
    from mypy_boto3_s3 import S3Client
    from pyiceberg.manifest import DataFile as IcebergFile
    from pyiceberg.table import Table as IcebergTable

PREFIX = "lake"
"""The connector's `bucket_prefix` in tests: the folder of the lake in the bucket."""


class Lake:
    """A bucket and a database for one test, in an AWS account that several lakes share.

    `database` contains the tables of streams without a namespace. `name("x")` returns a namespace that no other lake
    uses.
    """

    def __init__(self, endpoint_url: str) -> None:
        """Create the bucket. The connector creates the databases."""
        self.endpoint_url = endpoint_url
        self._token = uuid4().hex[:10]
        self.bucket = f"lake-{self._token}"
        self.database = self.name("lake")
        self.s3.create_bucket(Bucket=self.bucket)

    def name(self, word: str) -> str:
        """Return a name that no other lake in the account uses, valid as a namespace and as a Glue database."""
        return f"{word}_x{self._token}"

    def config(self, **overrides: object) -> dict[str, object]:
        """Return the connector's configuration for this lake. `overrides` sets or replaces options."""
        return {
            "aws_account_id": ACCOUNT_ID,
            "credentials": {
                "credentials_title": "IAM User",
                "aws_access_key_id": ACCESS_KEY_ID,
                "aws_secret_access_key": SECRET_ACCESS_KEY,
            },
            "region": REGION,
            "bucket_name": self.bucket,
            "bucket_prefix": PREFIX,
            "lakeformation_database_name": self.database,
            "endpoint_url": self.endpoint_url,
        } | overrides

    # What a reader sees

    def read(self, database: str, table: str) -> pa.Table:
        """Return all rows of a table, with columns in the catalog's order. Timestamps with a zone are in UTC.

        Partition keys of Hive tables are omitted, because paths contain their values instead of files.
        """
        entry = self.glue_table(database, table)
        return self._read_iceberg(database, table) if _is_iceberg(entry) else self._read_hive(entry)

    def rows(self, database: str, table: str) -> list[dict[str, Any]]:
        """Return all rows of a table as dictionaries, in arbitrary order."""
        return self.read(database, table).to_pylist()

    def rejects(self) -> list[dict[str, Any]]:
        """Return all rejects in the Glue table of rejects, in the order of the rejected records.

        Columns have the catalog's lower-case names, as with a case-insensitive SerDe. Partition keys are columns too.
        """
        rejects = []
        entry = self.glue_table(self.database, "airbyte_rejects")
        names = [column["Name"] for column in entry["StorageDescriptor"]["Columns"]]
        keys = [key["Name"] for key in entry["PartitionKeys"]]
        pages = self.glue.get_paginator("get_partitions").paginate(
            DatabaseName=self.database, TableName="airbyte_rejects"
        )
        for page in pages:
            for partition in page["Partitions"]:
                folder = _key(partition["StorageDescriptor"]["Location"])
                with self._files([*self.objects(folder)]) as (engine, copies):
                    rows = _arrow(engine.read_json(f"{copies}/*", format="newline_delimited"))
                for row in rows.to_pylist():
                    lowered = {name.lower(): value for name, value in row.items()}
                    values = zip(keys, partition["Values"], strict=True)
                    rejects.append({name: lowered[name] for name in names} | dict(values))
        return sorted(rejects, key=lambda row: (row["sequencenumber"], row["subsequencenumber"]))

    def glue_table(self, database: str, table: str) -> "TableTypeDef":
        """Return a table's entry in Glue. Raises EntityNotFoundException if the table does not exist."""
        return self.glue.get_table(DatabaseName=database, Name=table)["Table"]

    def columns(self, database: str, table: str) -> dict[str, str]:
        """Map the names of a table's columns to their Glue types, in order, with partition keys last."""
        entry = self.glue_table(database, table)
        return _types([*entry["StorageDescriptor"]["Columns"], *entry.get("PartitionKeys", [])])

    def tables(self) -> list[tuple[str, str]]:
        """Return (database, table) for every table in this lake's bucket, sorted. The table of reports is omitted."""
        names = []
        for databases in self.glue.get_paginator("get_databases").paginate():
            for database in databases["DatabaseList"]:
                # The account contains hundreds of databases of other lakes.
                if not {self._token}.issuperset(_TOKEN.findall(database["Name"])):
                    continue
                for tables in self.glue.get_paginator("get_tables").paginate(DatabaseName=database["Name"]):
                    names += [
                        (database["Name"], table["Name"])
                        for table in tables["TableList"]
                        if self._is_ours(table["StorageDescriptor"].get("Location", ""))
                        and table["Name"] != "airbyte_sync_reports"
                    ]
        return sorted(names)

    def iceberg_table(self, database: str, table: str) -> "IcebergTable":
        """Return an Iceberg table as PyIceberg's object, so that a test can write to it like another engine."""
        return self._iceberg.load_table((database, table))

    def drop_table(self, database: str, table: str) -> None:
        """Remove a table from the catalog. Its objects in S3 remain."""
        self.glue.delete_table(DatabaseName=database, Name=table)

    def create_iceberg_table(
        self, database: str, table: str, schema: Schema, order: SortOrder, properties: Mapping[str, str]
    ) -> "IcebergTable":
        """Create an Iceberg table in this lake's bucket with PyIceberg, like another engine."""
        return self._iceberg.create_table(
            (database, table),
            schema,
            location=f"s3://{self.bucket}/{PREFIX}/{database}/{table}",
            sort_order=order,
            properties=dict(properties),
        )

    def put_foreign_table(self, name: str) -> None:
        """Create a view in a new database of the catalog. The connector cannot write to a table of this type."""
        self.glue.create_database(DatabaseInput={"Name": self.database})
        self.glue.create_table(
            DatabaseName=self.database,
            TableInput={
                "Name": name,
                "TableType": "VIRTUAL_VIEW",
                "StorageDescriptor": {"Columns": [{"Name": "id", "Type": "int"}], "Location": "s3://elsewhere/view/"},
                "Parameters": {"table_type": "VIEW", "theirs": "yes"},
            },
        )

    def data_files(self, database: str, table: str) -> dict[str, int]:
        """Map the keys of the objects that contain the table's current rows to their sizes in bytes."""
        entry = self.glue_table(database, table)
        if _is_iceberg(entry):
            tasks = self.iceberg_table(database, table).scan().plan_files()
            return {_key(task.file.file_path): task.file.file_size_in_bytes for task in tasks}
        return self._hive_files(entry)

    # What lies in the bucket

    def objects(self, prefix: str = "") -> dict[str, int]:
        """Map the keys of all objects under a prefix to their sizes in bytes, including objects that readers ignore.

        The objects of sync reports are omitted; `reports` returns them.
        """
        return {key: size for key, size in self._objects(prefix) if "/_reports/" not in key}

    def reports(self) -> dict[str, int]:
        """Map the keys of the objects of sync reports to their sizes in bytes."""
        return {key: size for key, size in self._objects("") if "/_reports/" in key}

    def _objects(self, prefix: str) -> Iterator[tuple[str, int]]:
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix)
        return ((item["Key"], item["Size"]) for page in pages for item in page.get("Contents", []))

    def unfinished_uploads(self) -> list[str]:
        """Return the keys of multipart uploads that were neither completed nor aborted."""
        return [upload["Key"] for upload in self.s3.list_multipart_uploads(Bucket=self.bucket).get("Uploads", [])]

    # Clients

    @property
    def s3(self) -> "S3Client":
        """A boto3 client for S3 in this account."""
        client: S3Client = _client("s3", self.endpoint_url)
        return client

    @property
    def glue(self) -> "GlueClient":
        """A boto3 client for the Glue Data Catalog of this account."""
        client: GlueClient = _client("glue", self.endpoint_url)
        return client

    @property
    def s3_properties(self) -> dict[str, str]:
        """The properties with which a PyIceberg catalog accesses S3 in this account."""
        return {
            "s3.endpoint": self.endpoint_url,
            "s3.access-key-id": ACCESS_KEY_ID,
            "s3.secret-access-key": SECRET_ACCESS_KEY,
            "s3.region": REGION,
        }

    @cached_property
    def _iceberg(self) -> GlueCatalog:
        return GlueCatalog("lake", client=self.glue, **self.s3_properties)

    # Reading data files

    def _read_iceberg(self, database: str, table: str) -> pa.Table:
        """Return the rows of an Iceberg table, read by DuckDB and identified by field ID.

        PyIceberg's reader only confirms the columns. Its rows are not used, because it reads a null list of structs as
        an empty list (apache/iceberg-python#3833).
        """
        scan = self.iceberg_table(database, table).scan()
        confirmed = scan.to_arrow()
        tasks = list(scan.plan_files())
        dead = self._dead_rows({delete_file for task in tasks for delete_file in task.delete_files})
        with self._files([_key(task.file.file_path) for task in tasks]) as (engine, folder):
            schema = scan.projection()
            empty = engine.from_arrow(schema_to_pyarrow(schema).empty_table())
            if not tasks:
                return _arrow(empty)
            fields = ", ".join(
                f"{field.field_id}: {{name: {_literal(field.name)}, type: {_literal(str(kind))}, default_value: NULL}}"
                for field, kind in zip(schema.fields, empty.types, strict=True)
            )
            live = (
                f"SELECT * EXCLUDE file_row_number FROM read_parquet({_literal(f'{folder}/{number}-*')}, "
                f"schema = MAP {{{fields}}}, file_row_number = true) "
                f"WHERE file_row_number NOT IN {(-1, *dead.get(task.file.file_path, ()), -1)}"
                for number, task in enumerate(tasks)
            )
            whole = f"FROM read_parquet({_literal(f'{folder}/*')}, schema = MAP {{{fields}}})"
            rows = _arrow(engine.sql(" UNION ALL ".join(live) if dead else whole))
        assert (rows.num_rows, rows.column_names) == (confirmed.num_rows, confirmed.column_names)
        return rows

    def _dead_rows(self, deletes: Collection["IcebergFile"]) -> Mapping[str, Sequence[int]]:
        """Map the URI of each data file to the positions of the rows that position delete files delete."""
        kinds = {file.content for file in deletes}
        assert kinds <= {DataFileContent.POSITION_DELETES}, "this reader does not apply equality deletes"
        if not deletes:
            return {}
        with self._files([_key(file.file_path) for file in deletes]) as (engine, folder):
            rows = engine.read_parquet(f"{folder}/*")
            return dict(rows.aggregate("file_path, list(pos)", "file_path").fetchall())

    def _read_hive(self, entry: "TableTypeDef") -> pa.Table:
        return self.read_hive_files([*self._hive_files(entry)], entry["StorageDescriptor"])

    def read_hive_files(self, keys: Sequence[str], descriptor: "StorageDescriptorOutputTypeDef") -> pa.Table:
        """Return the rows of these objects, read according to the storage descriptor of a table or a partition."""
        glue_types = _types(descriptor["Columns"])
        columns = {name: duckdb_type(glue_type) for name, glue_type in glue_types.items()}
        is_json = "json" in descriptor["SerdeInfo"]["SerializationLibrary"].lower()
        with self._files(keys) as (engine, folder):
            if not keys:
                nulls = ", ".join(f"NULL::{kind} AS {quoted(name)}" for name, kind in columns.items())
                return _arrow(engine.sql(f"SELECT {nulls} LIMIT 0"))
            if is_json:
                rows = engine.read_json(f"{folder}/*", format="newline_delimited", columns=columns)
            else:
                rows = engine.read_parquet(f"{folder}/*", union_by_name=True)
            # A column of the catalog that no file contains reads as null. Columns that only files contain are omitted.
            present = {name.lower(): name for name in rows.columns}
            selected = ", ".join(
                f"{quoted(present[name])} AS {quoted(name)}" if name in present else f"NULL::{kind} AS {quoted(name)}"
                for name, kind in columns.items()
            )
            return _arrow(rows.project(selected))

    @contextmanager
    def _files(self, keys: Sequence[str]) -> Iterator[tuple[duckdb.DuckDBPyConnection, str]]:
        """Download objects to a temporary folder, and yield a DuckDB connection and the folder.

        The copies keep the suffixes of the objects' names.
        """
        with tempfile.TemporaryDirectory() as folder, duckdb.connect() as engine:
            engine.execute("SET TimeZone = 'UTC'")
            for number, key in enumerate(keys):
                self.s3.download_file(self.bucket, key, f"{folder}/{number}-{key.rsplit('/', 1)[-1]}")
            yield engine, folder

    def _hive_files(self, entry: "TableTypeDef") -> dict[str, int]:
        """Map the keys of the files that Athena would read to their sizes.

        These are the files in the projected partitions. Without projection, they are those in the registered partitions
        or, for an unpartitioned table, in the table's location.
        """
        location = entry["StorageDescriptor"]["Location"]
        if not entry.get("PartitionKeys"):
            return dict(self.visible(location))
        if is_projected(entry):
            projection = Projection.from_entry(entry)
            root = projection.template.partition("${")[0].rpartition("/")[0]
            visible = self.visible(root)
            return {key: size for key, size in visible if projection.values(f"s3://{self.bucket}/{key}") is not None}
        pages = self.glue.get_paginator("get_partitions").paginate(
            DatabaseName=entry["DatabaseName"], TableName=entry["Name"]
        )
        partitions = [partition["StorageDescriptor"]["Location"] for page in pages for partition in page["Partitions"]]
        folders = {_key(location).rstrip("/") for location in partitions}
        # One list request for all partitions, because there may be hundreds.
        visible = self.visible(commonpath([*folders])) if folders else iter(())
        return {key: size for key, size in visible if not folders.isdisjoint(_folders_around(key))}

    def visible(self, location: str) -> Iterator[tuple[str, int]]:
        """Yield the key and size of every object below a location that Hive does not treat as hidden."""
        folder = _key(location).rstrip("/") + "/"
        for key, size in self.objects(folder).items():
            hidden = any(part.startswith(("_", ".")) for part in key.removeprefix(folder).split("/"))
            # Hive ignores empty objects whose names end like folders.
            if not hidden and not key.endswith("/"):
                yield key, size

    def _is_ours(self, location: str) -> bool:
        return location.startswith(f"s3://{self.bucket}/")


@cache
def _client(service: Literal["s3", "glue"], endpoint_url: str) -> Any:
    """Return a client that all lakes of an account share, because creating one takes as long as a small sync."""
    session = boto3.Session(
        aws_access_key_id=ACCESS_KEY_ID, aws_secret_access_key=SECRET_ACCESS_KEY, region_name=REGION
    )
    return session.client(service, endpoint_url=endpoint_url)


_TOKEN = re.compile(r"_x([0-9a-f]{10})")
"""The unique suffix that `name` appends to names."""


def _arrow(relation: duckdb.DuckDBPyRelation) -> pa.Table:
    table: pa.Table = relation.to_arrow_table()
    return table


def _types(columns: Sequence["ColumnOutputTypeDef"]) -> dict[str, str]:
    return {column["Name"]: column.get("Type", "string") for column in columns}


def _key(url: str) -> str:
    return re.sub(r"^s3a?://[^/]+/", "", url)


def _is_iceberg(entry: "TableTypeDef") -> bool:
    return entry.get("Parameters", {}).get("table_type", "").upper() == "ICEBERG"


def _folders_around(key: str) -> Iterator[str]:
    return (str(folder) for folder in PurePosixPath(key).parents)


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
