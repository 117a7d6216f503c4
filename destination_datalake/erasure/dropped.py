"""Find dropped tables by the objects that they have left under the prefix. Report tables that cannot be searched."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError
from pyiceberg.exceptions import NoSuchNamespaceError

from destination_datalake.archive.objects import ARCHIVE_FOLDER, SCHEMA_FOLDER, table_folder
from destination_datalake.aws.errors import explain
from destination_datalake.aws.objects import folders_in, listed
from destination_datalake.config.tables import TAKEN_FOLDERS
from destination_datalake.erasure.model import ErasedObject, ErasureTarget
from destination_datalake.erasure.objects import stored_in
from destination_datalake.maintenance.steps import archived_tables
from destination_datalake.partitioning.templates import VARIABLE, table_root
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.rejects.ledger import REJECTS_FOLDER
from destination_datalake.tables.naming import (
    GENERATIONS_SUFFIX,
    REBUILD_SUFFIX,
    REPLAY_SUFFIX,
    TableLocation,
    TableNaming,
)
from destination_datalake.tables.table import TableName

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.config.options import Config
    from destination_datalake.erasure.model import Request
    from destination_datalake.tables.catalog import ListedTable, TableCatalog


def remaining_tables(config: Config, access: AwsAccess, catalog: TableCatalog, notes: list[str]) -> list[TableName]:
    """Return the tables with an archive, and the dropped tables that have left other objects under the prefix.

    Other objects are a description in `_schema/`, rejects, or a folder that no table in the catalog uses. If a
    configuration error, such as a missing permission, prevents listing a database, adds a sentence to `notes`. Raises
    all other AWS errors.
    """
    s3 = access.client("s3")
    archived = archived_tables(config, access, [])
    schemas, rejects = config.uri(SCHEMA_FOLDER), config.uri(REJECTS_FOLDER)
    described = (
        f"{database}.{uri.rpartition('/')[2].removesuffix('.json')}"
        for database in folders_in(s3, schemas)
        for uri, _ in listed(s3, f"{schemas}/{database}")
    )
    rejected = (
        name.removesuffix(REPLAY_SUFFIX).removesuffix(REBUILD_SUFFIX)
        for reason in folders_in(s3, rejects)
        for name in folders_in(s3, f"{rejects}/{reason}")
    )
    # Other programs may have created folders and objects without a table's name.
    names = {name for text in rejected if (name := TableName.parse(text)) is not None}
    # The rejects of these tables belong to the target `Rejects` of the archived table.
    names -= {replay for table in archived for replay in replays_of(config, access, table)}
    names |= {name for text in described if (name := TableName.parse(text)) is not None}
    names |= {*_with_folders(config, s3, catalog, notes)}
    return [*archived, *sorted(name for name in names - {*archived} if catalog.find(name) is None)]


def replays_of(config: Config, access: AwsAccess, table: TableName) -> list[TableName]:
    """Return the tables to which `replay` has written a table's archive, even if these tables have been dropped.

    Reads their names from the objects with the progress of the replays. Raises AWS errors.
    """
    folder = f"{table_folder(config.uri(ARCHIVE_FOLDER), *table)}/replay"
    names = (uri.removeprefix(f"{folder}/") for uri, _ in listed(access.client("s3"), folder))
    return [
        TableName(table.database, name.removesuffix(".json"))
        for name in names
        if name.endswith(".json") and "/" not in name
    ]


def tables_of(catalog: TableCatalog, database: str) -> list[ListedTable]:
    """Return the tables of a database, or an empty list if the database does not exist. Raises the catalog's errors."""
    try:
        return [*catalog.tables(database)]
    except NoSuchNamespaceError:
        return []
    except ClientError as error:
        if error.response["Error"]["Code"] == "EntityNotFoundException":
            return []
        raise


def unused_folders(catalog: TableCatalog, database: str, folders: Iterable[str]) -> list[str]:
    """Return those of `folders` that overlap the location of no table in a database. Raises the catalog's errors.

    Two locations overlap if they are equal, or if one contains the other. All folders are S3 URIs without a trailing
    slash.
    """
    entries = [entry.glue_table for entry in tables_of(catalog, database)]
    locations = [f"{entry.get('StorageDescriptor', {}).get('Location', '').rstrip('/')}/" for entry in entries]
    return [
        folder
        for folder in folders
        if not any(location.startswith(f"{folder}/") or f"{folder}/".startswith(location) for location in locations)
    ]


def table_folders(config: Config, table: TableName, stream: StreamId | None = None) -> tuple[str, str]:
    """Return the folders that a new table of this name would have. `stream` is None if the stream is unknown."""
    stream = stream or StreamId(None, table.table)
    folder = TableLocation.for_stream(config, stream, table, TableNaming.from_config(config).naming).folder
    return folder, f"{folder}{GENERATIONS_SUFFIX}"


def _with_folders(config: Config, s3: S3Client, catalog: TableCatalog, notes: list[str]) -> Iterator[TableName]:
    """Yield the tables that have left a folder that no table in the catalog uses.

    The catalog may contain a new table with the same name. A folder belongs to a table if its path matches the option
    `path_layout`, and if it contains a subfolder that the connector creates in a table's folder. Skips databases and
    tables to which this configuration does not write.
    """
    folders_by_database = defaultdict[str, dict[str, TableName]](dict)
    for folder, values in _matching(s3, config.uri("").rstrip("/"), table_root(config.path_layout).split("/"), {}):
        database = values.get("database") or values["namespace"]
        if database.removesuffix(".db") in TAKEN_FOLDERS:
            database = database.removesuffix(".db")
        table = (values.get("table") or values["stream"]).removesuffix(GENERATIONS_SUFFIX)
        is_other = config.database_strategy == "single" and database != config.lakeformation_database_name
        if (
            not is_other
            and table.startswith(config.table_prefix)
            and any(map(_CONTENT.fullmatch, folders_in(s3, folder)))
        ):
            folders_by_database[database][folder] = TableName(database, table)
    for database, tables in folders_by_database.items():
        try:
            unused = unused_folders(catalog, database, tables)
        except Exception as error:
            failure = explain(error, doing="list the tables of", resource=database)
            if failure is None or failure.type != "config_error":
                raise
            notes.append(f"{failure.message} The command skipped folders of dropped tables in this database.")
            continue
        yield from (tables[folder] for folder in unused)


_CONTENT = re.compile(r"metadata|data|generation-\d+-[0-9a-f]{12}")
"""Matches the names of the folders that the connector creates in the folder of an Iceberg or Hive table."""


def _matching(
    s3: S3Client, parent: str, template: Sequence[str], values: Mapping[str, str]
) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield the folders below `parent` that match a path template, each with the values of the template's variables.

    `template` contains the names of the folders on the path, of which each has at most one variable. `values` contains
    the values of the variables in the path of `parent`.
    """
    if not template:
        yield parent, values
        return
    first, *remaining = template
    before, variable, after = [*VARIABLE.split(first), "", ""][:3]
    for name in folders_in(s3, parent):
        value = name.removeprefix(before).removesuffix(after)
        if f"{before}{value}{after}" != name or bool(value) != bool(variable):
            continue
        if not (first.startswith("{") and not values and name in TAKEN_FOLDERS):
            yield from _matching(s3, f"{parent}/{name}", remaining, {**values, variable: value})


class UndescribedTable(ErasureTarget):
    """The objects of a dropped table whose columns are unknown, so that the command cannot search the objects.

    Neither the table's archive nor its description in `_schema/` exists any more. The command reports the table's
    folders with the outcome "left".
    """

    def __init__(self, request: Request, table: TableName, folders: Sequence[str]) -> None:
        super().__init__(f"Dropped table {table}")
        self._access = request.access
        self._folders = folders

    def find(self) -> Iterator[ErasedObject]:
        """Yield the folders that contain objects, without searching their content."""
        for folder in self._folders:
            if next(stored_in(self._access, folder), None) is not None:
                yield ErasedObject(f"{folder}/", -1, outcome="left", reason=_UNDESCRIBED)

    erase = find


_UNDESCRIBED = (
    "files of a dropped table, which cannot be searched without an archive or a description in _schema/. Delete this "
    "folder with all versions of its objects, or register the table in the catalog. Then run the command again"
)
