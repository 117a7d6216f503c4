"""Where a stream's table belongs, and where it is: what the options say, against what the catalog says."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self

from destination_datalake.aws.address import S3Address
from destination_datalake.tables.table import TableConflict, TableName

if TYPE_CHECKING:
    from destination_datalake.config.options import Config
    from destination_datalake.protocol.catalog import StreamId

_logger = logging.getLogger(__name__)

Kind = Literal["Iceberg", "Hive"]

GENERATIONS_SUFFIX = "__generations"
"""Ends the name of the folder beside a Hive table's own in which generations of its content are written."""

_OF_A_GENERATION = re.compile(rf"(?P<root>.+){GENERATIONS_SUFFIX}/generation-[^/]+")


@dataclass(frozen=True, slots=True)
class Site:
    """`folder` is the S3 URI of a new table's folder, without a slash at its end.

    `within` is that of all folders of tables, with one: a table that is elsewhere is written to only to `follow` it.
    """

    folder: str
    within: str
    follow: bool

    @classmethod
    def of(cls, config: Config, name: TableName) -> Self:
        """Take it from the options."""
        return cls(config.table_uri(name.database, name.table), config.uri(""), config.follow_table_location)

    def accept(self, stream: StreamId, name: TableName, kind: Kind, location: str, *, created: bool) -> None:
        """Take the table where it is, and log where that is. Raises TableConflict if it is not to be written there."""
        problem = not_in_s3(location) if self.follow else elsewhere(location, self.within)
        if problem is None and kind == "Iceberg":
            problem = _ambiguity(location)
        if problem is not None:
            raise TableConflict(f"Cannot write stream {stream} to table {name}: {problem}")
        _logger.info(
            "Stream %s: table %s (%s) at %s, %s.", stream, name, kind, location, "created" if created else "exists"
        )

    def root(self, location: str) -> str:
        """The folder, without a slash at its end, that new content of a table at `location` is made in or beside."""
        if elsewhere(location, self.within) is None:
            return self.folder
        found = _OF_A_GENERATION.fullmatch(location)
        return found["root"] if found else location


def elsewhere(location: str, within: str) -> str | None:
    """Say that a location is not under the folder `within`, an S3 URI with a slash at its end; None if it is."""
    try:
        inside = str(S3Address.parse(location)).startswith(within)
    except ValueError:
        inside = False
    if inside:
        return None
    return (
        f"it lies at {location}, while bucket_name and bucket_prefix say {within}. Correct these two, choose another "
        "lakeformation_database_name or table_prefix, or set follow_table_location to true if records are to go where "
        "the table lies."
    )


def not_in_s3(location: str) -> str | None:
    """Say that a location is none in S3; None if it is."""
    try:
        S3Address.parse(location)
    except ValueError:
        return (
            f"it lies at {location}, which is not in S3. Move the table, or choose another "
            "lakeformation_database_name or table_prefix."
        )
    return None


def has_ambiguous_folder(key: str) -> bool:
    """Whether a folder of an S3 key has no name, or is called `.` or `..`: some clients and engines resolve those."""
    return not {"", ".", ".."}.isdisjoint(key.split("/"))


def _ambiguity(location: str) -> str | None:
    """Say that clients of S3 disagree on what the location names: some resolve dots and slashes, some cut it short."""
    key = S3Address.parse(location).key.rstrip("/")
    if (key and has_ambiguous_folder(key)) or not {"?", "#"}.isdisjoint(key):
        return (
            f"its location {location} has an empty folder, one called . or .., or a ? or #, which clients of S3 read "
            "differently. Move the table, or choose another lakeformation_database_name or table_prefix."
        )
    return None
