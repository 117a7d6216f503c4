"""The lake as its readers see it: the tables in S3 and Glue, read independently of the connector.

DuckDB reads the data files. Those of Iceberg tables are named by PyIceberg's scan of the current snapshot and read by
field id; those of Hive tables are found through Glue's locations, as Athena finds them.
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
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFileContent
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortOrder

from integration_tests.aws.server import ACCESS_KEY_ID, ACCOUNT_ID, REGION, SECRET_ACCESS_KEY
from integration_tests.harness.engines.projection import Projection, is_projected
from integration_tests.harness.glue_types import duckdb_type, quoted

if TYPE_CHECKING:
    from mypy_boto3_glue import GlueClient
    from mypy_boto3_glue.type_defs import ColumnOutputTypeDef, StorageDescriptorOutputTypeDef, TableTypeDef
    from mypy_boto3_s3 import S3Client
    from pyiceberg.manifest import DataFile as IcebergFile
    from pyiceberg.table import Table as IcebergTable

PREFIX = "lake"
"""The folder of the bucket that the connector's configuration names."""


class Lake:
    """A bucket and a database of its own, in an AWS account shared with other lakes.

    `database` is where streams without a namespace go. `name("x")` gives namespaces that no other lake uses.
    """

    def __init__(self, endpoint_url: str) -> None:
        """Create the bucket; the databases are the connector's to create."""
        self.endpoint_url = endpoint_url
        self._token = uuid4().hex[:10]
        self.bucket = f"lake-{self._token}"
        self.database = self.name("lake")
        self.s3.create_bucket(Bucket=self.bucket)

    def name(self, word: str) -> str:
        """Return a name that no other lake in this account has, valid as a namespace and as a Glue database."""
        return f"{word}_x{self._token}"

    def config(self, **overrides: object) -> dict[str, object]:
        """Return a configuration of the connector for this lake, with these options set or replaced."""
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
        """Return every row of a table, its columns in the catalog's order; timestamps with a zone are in UTC.

        Partition columns of Hive tables, which stand in paths and not in files, are left out.
        """
        entry = self.glue_table(database, table)
        return self._read_iceberg(database, table) if _is_iceberg(entry) else self._read_hive(entry)

    def rows(self, database: str, table: str) -> list[dict[str, Any]]:
        """Return every row of a table as a dictionary, in no order that a reader may rely on."""
        return self.read(database, table).to_pylist()

    def rejects(self) -> list[dict[str, Any]]:
        """Return every reject that the catalog's table of them leads to, in the order of its records.

        Columns have the catalog's names and partition keys are columns, as a SerDe without regard to case has them.
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
        """Return the Glue catalog's entry; raises EntityNotFoundException when there is none."""
        return self.glue.get_table(DatabaseName=database, Name=table)["Table"]

    def columns(self, database: str, table: str) -> dict[str, str]:
        """Return the Glue types of a table's columns by name, in order, partition columns last."""
        entry = self.glue_table(database, table)
        return _types([*entry["StorageDescriptor"]["Columns"], *entry.get("PartitionKeys", [])])

    def tables(self) -> list[tuple[str, str]]:
        """Return (database, table) of every table in this lake's bucket but that of reports, sorted."""
        names = []
        for databases in self.glue.get_paginator("get_databases").paginate():
            for database in databases["DatabaseList"]:
                # The account has hundreds of databases that name another lake.
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
        """Return an Iceberg table, for a test that writes to it as another engine would."""
        return self._iceberg.load_table((database, table))

    def drop_table(self, database: str, table: str) -> None:
        """Take a table out of the catalog; its objects stay."""
        self.glue.delete_table(DatabaseName=database, Name=table)

    def create_iceberg_table(
        self, database: str, table: str, schema: Schema, order: SortOrder, properties: Mapping[str, str]
    ) -> "IcebergTable":
        """Create an Iceberg table in this lake's bucket as another engine would."""
        return self._iceberg.create_table(
            (database, table),
            schema,
            location=f"s3://{self.bucket}/{PREFIX}/{database}/{table}",
            sort_order=order,
            properties=dict(properties),
        )

    def put_foreign_table(self, name: str) -> None:
        """Put a table into the catalog, in a new database, that no kind of ours can write: a view."""
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
        """Return the sizes in bytes, by key, of the objects that hold the rows a reader sees now."""
        entry = self.glue_table(database, table)
        if _is_iceberg(entry):
            tasks = self.iceberg_table(database, table).scan().plan_files()
            return {_key(task.file.file_path): task.file.file_size_in_bytes for task in tasks}
        return self._hive_files(entry)

    # What lies in the bucket

    def objects(self, prefix: str = "") -> dict[str, int]:
        """Return the sizes in bytes, by key, of every object under the prefix, visible to readers or not.

        Reports of syncs are in `reports` alone.
        """
        return {key: size for key, size in self._objects(prefix) if "/_reports/" not in key}

    def reports(self) -> dict[str, int]:
        """Return the sizes in bytes, by key, of the objects of reports."""
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
        """A client for this account's S3."""
        client: S3Client = _client("s3", self.endpoint_url)
        return client

    @property
    def glue(self) -> "GlueClient":
        """A client for this account's Glue Data Catalog."""
        client: GlueClient = _client("glue", self.endpoint_url)
        return client

    @property
    def s3_properties(self) -> dict[str, str]:
        """What a catalog of PyIceberg reads and writes files in this S3 with."""
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
        """Read by field id, as Iceberg asks for, and let PyIceberg's own reader confirm the shape.

        Its rows are not taken: it reads a null list of structs as an empty one (apache/iceberg-python#3833).
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
        """Return the positions of the rows that files of position deletes name, by the data files' URIs."""
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
        """Return the rows of these objects, read as a table's or a partition's storage descriptor says."""
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
            # A column that the catalog has and no file has reads as null; a column of the files alone is not there.
            present = {name.lower(): name for name in rows.columns}
            selected = ", ".join(
                f"{quoted(present[name])} AS {quoted(name)}" if name in present else f"NULL::{kind} AS {quoted(name)}"
                for name, kind in columns.items()
            )
            return _arrow(rows.project(selected))

    @contextmanager
    def _files(self, keys: Sequence[str]) -> Iterator[tuple[duckdb.DuckDBPyConnection, str]]:
        """Lend an engine and a folder with copies of these objects, their names' endings kept."""
        with tempfile.TemporaryDirectory() as folder, duckdb.connect() as engine:
            engine.execute("SET TimeZone = 'UTC'")
            for number, key in enumerate(keys):
                self.s3.download_file(self.bucket, key, f"{folder}/{number}-{key.rsplit('/', 1)[-1]}")
            yield engine, folder

    def _hive_files(self, entry: "TableTypeDef") -> dict[str, int]:
        """Return the files that Athena finds: in projected partitions, else in registered ones, else in the table."""
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
        # One listing for all: there may be hundreds.
        visible = self.visible(commonpath([*folders])) if folders else iter(())
        return {key: size for key, size in visible if not folders.isdisjoint(_folders_around(key))}

    def visible(self, location: str) -> Iterator[tuple[str, int]]:
        """Yield key and size of every object below a location that Hive does not take for hidden."""
        folder = _key(location).rstrip("/") + "/"
        for key, size in self.objects(folder).items():
            hidden = any(part.startswith(("_", ".")) for part in key.removeprefix(folder).split("/"))
            # Hive keeps empty objects named as folders; they hold no rows.
            if not hidden and not key.endswith("/"):
                yield key, size

    def _is_ours(self, location: str) -> bool:
        return location.startswith(f"s3://{self.bucket}/")


@cache
def _client(service: Literal["s3", "glue"], endpoint_url: str) -> Any:
    """Return the client that all lakes of an account share: making one takes as long as a small sync."""
    session = boto3.Session(
        aws_access_key_id=ACCESS_KEY_ID, aws_secret_access_key=SECRET_ACCESS_KEY, region_name=REGION
    )
    return session.client(service, endpoint_url=endpoint_url)


_TOKEN = re.compile(r"_x([0-9a-f]{10})")
"""What `name` adds to the names of a lake."""


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
