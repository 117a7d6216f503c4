"""The location of a table: the one that the options configure, compared with the one that the catalog has."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self

from destination_datalake.aws.address import S3Address
from destination_datalake.config.tables import database_folder
from destination_datalake.partitioning.templates import filled, table_root, variables
from destination_datalake.tables.table import TableConflict, TableName, cannot_write

if TYPE_CHECKING:
    from destination_datalake.config.options import Config
    from destination_datalake.protocol.catalog import StreamId
    from destination_datalake.schema.names import Naming

_logger = logging.getLogger(__name__)

TableKind = Literal["Iceberg", "Hive"]

GENERATIONS_SUFFIX = "__generations"
"""Ends the name of the folder beside a Hive table's own in which generations of its content are written."""

_OF_A_GENERATION = re.compile(rf"(?P<root>.+){GENERATIONS_SUFFIX}/generation-[^/]+")


@dataclass(frozen=True, slots=True)
class TableLocation:
    """The configured location of a stream's table.

    `folder` is the S3 URI of a new table's folder, without a trailing slash. `warehouse` is the S3 URI of the folder of
    all tables, with one: an existing table outside it is written to only if `follow` is set, or if the catalog assigns
    locations.
    """

    folder: str
    warehouse: str
    follow: bool
    is_assigned: bool = False

    @classmethod
    def of(cls, config: Config, stream: StreamId, name: TableName, naming: Naming) -> Self:
        """Return the location that the options configure for a stream's table."""
        database = database_folder(name.database)
        names = {
            "database": database,
            "namespace": database,
            "table": name.table,
            "stream": naming.identifier(stream.name),
        }
        root = table_root(config.path_layout)
        for variable in variables(root.split("/")[0]):
            names[variable] = database_folder(names[variable])
        folder = filled(root, names)
        assigned = config.catalog.limits.assigns_locations
        return cls(config.uri(folder), config.uri(""), config.follow_table_location, assigned)

    def accept(self, stream: StreamId, name: TableName, kind: TableKind, location: str, *, created: bool) -> None:
        """Log a table's actual location. Raises TableConflict if the table must not be written to there."""
        anywhere = self.follow or self.is_assigned
        problem = not_in_s3(location) if anywhere else outside_warehouse(location, self.warehouse)
        if problem is None and kind == "Iceberg":
            problem = _ambiguity(location)
        if problem is not None:
            raise TableConflict(cannot_write(stream, name, problem))
        _logger.info(
            "Stream %s: table %s (%s) at %s, %s.", stream, name, kind, location, "created" if created else "exists"
        )

    def content_root(self, location: str) -> str:
        """Return the folder, without a trailing slash, in or beside which a table at `location` gets new content."""
        if is_inside(location, self.warehouse):
            return self.folder
        found = _OF_A_GENERATION.fullmatch(location)
        return found["root"] if found else location


def is_inside(location: str, warehouse: str) -> bool:
    """Whether a location is in S3 and below `warehouse`, an S3 URI with a trailing slash."""
    try:
        return str(S3Address.parse(location)).startswith(warehouse)
    except ValueError:
        return False


def outside_warehouse(location: str, warehouse: str) -> str | None:
    """Return the problem and its remedies if a location is not inside `warehouse`; None if it is."""
    if is_inside(location, warehouse):
        return None
    return (
        f"its location is {location}, while bucket_name and bucket_prefix choose {warehouse}. Correct these two, "
        "choose another lakeformation_database_name or table_prefix, or set follow_table_location to true to write to "
        "the table where it is."
    )


def not_in_s3(location: str) -> str | None:
    """Return the problem and its remedies if a location is not in S3; None if it is."""
    try:
        S3Address.parse(location)
    except ValueError:
        return (
            f"its location is {location}, which is not in S3. Move the table, or choose another "
            "lakeformation_database_name or table_prefix."
        )
    return None


def has_ambiguous_folder(key: str) -> bool:
    """Whether a folder of an S3 key has no name, or is called `.` or `..`: some clients and engines resolve those."""
    return not {"", ".", ".."}.isdisjoint(key.split("/"))


def _ambiguity(location: str) -> str | None:
    """Return the problem if S3 clients read the key differently: some resolve dots and slashes, some cut at ? or #."""
    key = S3Address.parse(location).key.rstrip("/")
    if (key and has_ambiguous_folder(key)) or not {"?", "#"}.isdisjoint(key):
        return (
            f"its location {location} has an empty folder, one called . or .., or a ? or #, which clients of S3 read "
            "differently. Move the table, or choose another lakeformation_database_name or table_prefix."
        )
    return None
