"""Tables' names, locations and owners, and `TableFinder`, which finds a configuration's tables in the catalog."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, islice, takewhile
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, Self

from destination_datalake.aws.errors import explain
from destination_datalake.aws.objects import S3Address
from destination_datalake.config.services import NO_LIMITS, CatalogLimits
from destination_datalake.config.tables import REPORTS_TABLE, database_folder
from destination_datalake.errors import ConfigError, counted
from destination_datalake.partitioning.templates import filled, table_root, variables
from destination_datalake.protocol.catalog import Stream, StreamId
from destination_datalake.rejects.ledger import REJECTS_TABLE
from destination_datalake.schema.columns import NO_RECORD, NameRecord, Names, assign_names, find_collisions
from destination_datalake.schema.json_schema import Untyped
from destination_datalake.schema.names import (
    AWS_DATALAKE,
    MAX_BYTES,
    METADATA_NAMES,
    PRESERVE,
    SNAKE_CASE,
    SNAKE_CASE_NUMBERS,
    STYLES,
    Naming,
    bounded,
    path_of,
)
from destination_datalake.schema.types import ColumnType, Field
from destination_datalake.tables.catalog import ListedTable, is_iceberg
from destination_datalake.tables.table import TableConflict, TableName, cannot_write, table_conflict

if TYPE_CHECKING:
    from mypy_boto3_glue.type_defs import TableTypeDef

    from destination_datalake.config.options import Config
    from destination_datalake.config.tables import DatabaseStrategy
    from destination_datalake.tables.catalog import TableCatalog


# --- Locations --------------------------------------------------------------------------------------------------------
# Derive a table's location from the options, and compare this location with the table's location in the catalog.

_logger = logging.getLogger(__name__)

TableKind = Literal["Iceberg", "Hive"]

GENERATIONS_SUFFIX = "__generations"
"""Name suffix of the folder that holds all generations of a Hive table's files.

Each generation is a folder whose files replace those of the earlier generations. The folder with this suffix is beside
the table's root folder.
"""

_GENERATION_FOLDER = re.compile(rf"(?P<root>.+){GENERATIONS_SUFFIX}/generation-[^/]+")


@dataclass(frozen=True, slots=True)
class TableLocation:
    """The location of a stream's table, as configured by the options.

    `folder` is the S3 URI of a new table's folder, without a trailing slash. `warehouse` is the S3 URI of the folder
    that contains all tables, with a trailing slash. A sync writes to an existing table outside the warehouse only in
    two cases: if `follow` is True (option `follow_table_location`), or if the catalog assigns a location to each table
    (`is_assigned`).
    """

    folder: str
    warehouse: str
    follow: bool
    is_assigned: bool = False

    @classmethod
    def for_stream(cls, config: Config, stream: StreamId, name: TableName, naming: Naming) -> Self:
        """Return the location that the options configure for the stream's table `name`."""
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
        """Log the location of a stream's table.

        Raises TableConflict if the options do not allow the location. For an Iceberg table, also raises TableConflict
        if S3 clients may resolve the location to different keys.
        """
        allows_any = self.follow or self.is_assigned
        problem = not_in_s3(location) if allows_any else outside_warehouse(location, self.warehouse)
        if problem is None and kind == "Iceberg":
            problem = _ambiguity(location)
        if problem is not None:
            raise TableConflict(cannot_write(stream, name, problem))
        _logger.info(
            "Stream %s: %s %s table %s at %s.", stream, "created" if created else "continues", kind, name, location
        )

    def is_path_of(self, folder: str) -> bool:
        """Return whether a folder has the path of the table's root folder, or of the folder of its generations.

        The folder may be in another bucket or under another prefix, because the table may be older than these options.
        Tables of other databases have other paths.
        """
        path = self.folder.removeprefix(self.warehouse)
        return folder.removesuffix(GENERATIONS_SUFFIX).endswith(f"/{path}")

    def content_root(self, location: str) -> str:
        """Return the root folder for new generations of a Hive table at `location`, without a trailing slash.

        A generation is a folder for the table's files, in a folder beside the root (see `GENERATIONS_SUFFIX`). A table
        inside the warehouse uses the configured folder as root. A table outside the warehouse keeps its present root.
        """
        if is_inside(location, self.warehouse):
            return self.folder
        match = _GENERATION_FOLDER.fullmatch(location)
        return match["root"] if match else location


def is_inside(location: str, warehouse: str) -> bool:
    """Return whether `location` is an S3 URI below `warehouse`, an S3 URI with a trailing slash."""
    try:
        return str(S3Address.parse(location)).startswith(warehouse)
    except ValueError:
        return False


def outside_warehouse(location: str, warehouse: str) -> str | None:
    """Return why a sync cannot write to a table at `location`, with remedies, or None if it is inside `warehouse`."""
    if is_inside(location, warehouse):
        return None
    return (
        f"its location is {location}, outside {warehouse}, which bucket_name and bucket_prefix configure. Correct "
        "these options, choose another lakeformation_database_name or table_prefix, or set follow_table_location to "
        "true to write to the table at its location."
    )


def not_in_s3(location: str) -> str | None:
    """Return why a sync cannot write to a table at `location`, with remedies, or None if `location` is an S3 URI."""
    try:
        S3Address.parse(location)
    except ValueError:
        return (
            f"its location is {location}, which is not in S3. Move the table, or choose another "
            "lakeformation_database_name or table_prefix."
        )
    return None


def has_ambiguous_folder(key: str) -> bool:
    """Return whether a folder in an S3 key has the name `.` or `..`, or no name. Some clients normalise such keys."""
    return not {"", ".", ".."}.isdisjoint(key.split("/"))


def _ambiguity(location: str) -> str | None:
    """Return a problem, with remedies, if S3 clients may resolve the location to different keys, otherwise None.

    Some clients resolve `.`, `..` and repeated slashes, or cut the key at `?` or `#`.
    """
    key = S3Address.parse(location).key.rstrip("/")
    if (key and has_ambiguous_folder(key)) or not {"?", "#"}.isdisjoint(key):
        return (
            f"its location {location} contains an empty folder name, the folder name . or .., or the character ? or "
            "#. S3 clients resolve such paths differently. Move the table, or choose another "
            "lakeformation_database_name or table_prefix."
        )
    return None


# --- Names ------------------------------------------------------------------------------------------------------------
# Choose the database and the table for each stream.


_NAMINGS: Mapping[tuple[str, bool], Naming] = {
    ("snake_case", False): SNAKE_CASE,
    ("snake_case", True): SNAKE_CASE_NUMBERS,
    ("preserve", False): PRESERVE,
    ("aws_datalake", False): AWS_DATALAKE,
}
"""The naming rules for each combination of the options `naming.style` and `naming.split_numbers`."""


REPLAY_SUFFIX = "__replay"
"""Name suffix of a table that the command `replay` fills from the archive of another table."""

REBUILD_SUFFIX = "__rebuild"
"""Name suffix of the temporary table whose rows will replace the rows of the original table."""


@dataclass(frozen=True, slots=True)
class TableNaming:
    """The rules by which the options name databases and tables.

    `strategy` is the option `database_strategy`. `naming` contains the rules for the characters of names, and `limits`
    contains the catalog's limits for names.
    """

    database: str
    strategy: DatabaseStrategy
    table_prefix: str
    naming: Naming
    limits: CatalogLimits = NO_LIMITS

    @classmethod
    def from_config(cls, config: Config) -> Self:
        """Return the rules that the options configure."""
        naming = _NAMINGS[config.naming.style, config.naming.split_numbers]
        return cls(
            config.lakeformation_database_name,
            config.database_strategy,
            config.table_prefix,
            naming,
            config.catalog.limits,
        )

    def table_of(self, stream: StreamId) -> TableName:
        """Return the name of the stream's table.

        With the strategy `namespace`, the database is named after the stream's namespace. A stream without a namespace
        uses `database`. With the strategy `single`, every stream uses `database`.
        """
        namespace = stream.namespace if self.strategy == "namespace" else None
        database = self.naming.database(namespace) if namespace else self.database
        table = bounded(f"{self.table_prefix}{self.naming.identifier(stream.name)}", stream.name)
        return TableName(database, table)

    def candidates(self, stream: str) -> Mapping[TableName, StreamId]:
        """Return the possible tables for a stream given as "name" or "namespace.name", each with its stream.

        The string `stream` is ambiguous if it contains dots, because the namespace may end at any of them.
        """
        parts = stream.split(".")
        streams = [StreamId(".".join(parts[:number]) or None, ".".join(parts[number:])) for number in range(len(parts))]
        return {self.table_of(candidate): candidate for candidate in streams}

    def tables_of(self, streams: Sequence[Stream]) -> Mapping[StreamId, TableName]:
        """Return the name of each stream's table.

        Raises ConfigError if two streams have the same table, or if a name is reserved for the connector or invalid in
        the catalog.
        """
        names = {stream.id: self.table_of(stream.id) for stream in streams}
        for stream, name in names.items():
            if (purpose := self._reserved_for(name)) is not None:
                raise ConfigError(
                    f"Stream {stream} would be written to table {name}, but this name is reserved for {purpose}. Set "
                    "table_prefix, or rename the stream with a stream prefix in the connection's settings."
                )
            for part, remedy in (
                (name.database, "Set database_strategy to single, or choose another lakeformation_database_name."),
                (
                    name.table,
                    "Set table_prefix, or rename the stream with a stream prefix in the connection's settings.",
                ),
            ):
                if not self.limits.is_valid_name(part):
                    raise ConfigError(
                        f"Stream {stream} would be written to table {name}, but {part} is not a valid name in the "
                        f"catalog. Names consist of {self.limits.name_in_words}. {remedy}"
                    )
        owners: dict[TableName, StreamId] = {}
        for stream, name in names.items():
            owner = owners.setdefault(name, stream)
            if owner is not stream:
                raise ConfigError(_collision(self.strategy, owner, stream, name))
        return names

    def _reserved_for(self, name: TableName) -> str | None:
        """Return the connector's own use of the name, as a noun phrase. Return None if the name is not reserved."""
        if name == (self.database, REJECTS_TABLE):
            return "the table of rejects"
        if name == (self.database, REPORTS_TABLE):
            return "the table of reports"
        if name.table.endswith((REPLAY_SUFFIX, REBUILD_SUFFIX)):
            return "tables that the command `replay` creates"
        table = name.table.removesuffix(GENERATIONS_SUFFIX)
        if table and table != name.table:
            return f"the folder of the generations of table {TableName(name.database, table)}"
        return None


def _collision(strategy: DatabaseStrategy, first: StreamId, second: StreamId, name: TableName) -> str:
    problem = f"Streams {first} and {second} would both be written to table {name}: "
    if strategy == "single" and first.namespace != second.namespace:
        return (
            f"{problem}database_strategy single ignores the namespaces of streams. Set database_strategy to "
            "namespace, rename one of the streams with a stream prefix in the connection's settings, or sync the "
            "streams in two connections with different values of table_prefix."
        )
    return (
        f"{problem}their names differ only in characters that table names do not distinguish. Rename one of the "
        "streams with a stream prefix or another namespace in the connection's settings, or sync the streams in two "
        "connections with different databases or values of table_prefix."
    )


# --- Owners -----------------------------------------------------------------------------------------------------------
# The owner of a table is the stream for which the connector created the table. Table parameters record the owner.
#
# Iceberg tables store these parameters as properties, which PyIceberg copies to the Glue table. If the user changes
# options so that the stream maps to another table, or its columns to other names, a sync creates the new table or
# columns. The old ones stay unchanged. The command `check` warns of such a change.


_MAX_COLLISIONS_IN_MESSAGE = 20

_NAMESPACE = "airbyte.stream-namespace"
_NAME = "airbyte.stream-name"
_NAMING = "airbyte.naming"
_TYPES = "airbyte.types"

_FIELD_NAMES = "airbyte.field-names"
_MAX_PARAMETER = 500_000
"""Maximum length of one table parameter, in ASCII characters. Glue allows 512,000 bytes."""
_INVALID_IN_NAMES = re.compile(r"[\s<>(),:.]")

REPLAY_OF = "airbyte.replay-of"
"""A parameter of each table that the command `replay` fills. The value is the name of the archived table."""


def is_replay_of(table: TableName, entry: TableTypeDef | None) -> bool:
    """Return whether `entry`, in Glue's format, describes a table that a replay of `table`'s archive created."""
    return entry is not None and entry.get("Parameters", {}).get(REPLAY_OF) == str(table)


def untyped_in(parameters: Mapping[str, str]) -> Untyped:
    """Return how a table with these parameters stores values without a declared type.

    A table without the parameter `airbyte.types` stores them as JSON text, in which strings have quotes (`"open"`).
    Later syncs also write JSON text to this table, because the catalog cannot distinguish columns of JSON text from
    columns of plain strings.
    """
    return Untyped.INFER if parameters.get(_TYPES) == "inferred" else Untyped.JSON_TEXT


@dataclass(frozen=True, slots=True)
class TableOwner:
    """The stream for which the connector created a table, and the rules by which it names the table's columns.

    If the command `replay` fills the table, `replay_of` is the name of the table whose archive the command reads.
    Otherwise, `replay_of` is None.
    """

    stream: StreamId
    naming: Naming
    replay_of: str | None = None

    def parameters(self) -> dict[str, str]:
        """Return the table parameters that record this owner: stream, naming, and the replayed table if any."""
        namespace = {_NAMESPACE: self.stream.namespace} if self.stream.namespace else {}
        replay = {REPLAY_OF: self.replay_of} if self.replay_of else {}
        return {**namespace, _NAME: self.stream.name, _NAMING: self.naming.style, _TYPES: "inferred", **replay}

    @classmethod
    def load(cls, parameters: Mapping[str, str]) -> Self | None:
        """Return the owner that a table's parameters record.

        Return None if the parameters record no owner, or if they record an unknown naming style.
        """
        name, naming = parameters.get(_NAME), STYLES.get(parameters.get(_NAMING, ""))
        if name is None or naming is None:
            return None
        return cls(StreamId(parameters.get(_NAMESPACE) or None, name), naming, parameters.get(REPLAY_OF))

    def name_columns(
        self,
        table: TableName,
        parameters: Mapping[str, str],
        existing: Mapping[str, str | None],
        columns: Sequence[Field],
        types: Mapping[str, ColumnType | None] = MappingProxyType({}),
    ) -> tuple[Field, ...]:
        """Return the stream's columns with the names that they have, or will get, in an existing table.

        `parameters` contains the parameters of the table. `existing` maps the name of each column to the field in the
        records that fills the column, or to None if the stream must not use the name. `types` maps the column names to
        types. Logs a warning if the connector created the table for another stream, or if names of fields collide.

        Raises TableConflict if the parameter `airbyte.replay-of` differs from `replay_of`. Only a replay of the same
        archive may write to a table that a replay filled, and a replay must not write to any other table.
        """
        recorded = TableOwner.load(parameters)
        if (replayed := parameters.get(REPLAY_OF)) != self.replay_of:
            problem = "it was not created by a replay, so a replay must not write to it"
            if replayed is not None:
                problem = f"only a replay of table {replayed} may write to it"
            raise table_conflict(self.stream, table, f"{problem}. Drop the table if you do not need it")
        if recorded is not None and recorded.stream != self.stream and self.replay_of is None:
            _logger.warning(
                "Table %s was created for stream %s and now also receives stream %s, so the table contains rows of "
                "both streams. To separate the rows, set table_prefix, database_strategy or naming so that each "
                "stream has its own table.",
                table,
                recorded.stream,
                self.stream,
            )
        named = assign_names(columns, self.naming, existing, name_record(parameters), types)
        self._warn_of_collisions(named)
        return named

    def name_parameters(self, parameters: Mapping[str, str], columns: Sequence[Field]) -> dict[str, str]:
        """Return the parameters that record the names of `columns`, and the names that `parameters` already records.

        Comments of columns cannot replace this record: Glue truncates comments, other programs change them, and fields
        inside structs have no comments.
        """
        record = name_record(parameters).with_columns(columns, self.naming)
        saved = {style: _names_as_json(names) for style, names in record.by_style.items()}
        text = json.dumps(saved, separators=(",", ":"))
        # JSON escapes all other characters by default, so each character is one byte.
        pieces = [text[start : start + _MAX_PARAMETER] for start in range(0, len(text), _MAX_PARAMETER)]
        return {_parameter(number): piece for number, piece in enumerate(pieces)}

    def _warn_of_collisions(self, columns: Sequence[Field]) -> None:
        collisions = find_collisions(columns, self.naming)
        descriptions = [str(collision) for collision in islice(collisions, _MAX_COLLISIONS_IN_MESSAGE)]
        if not descriptions:
            return
        if more := sum(1 for _ in collisions):
            descriptions.append(f"and {more} more")
        _logger.warning(
            "Stream %s contains fields whose names collide, so a suffix distinguishes their columns: %s.",
            self.stream,
            "; ".join(descriptions),
        )


def recorded_names(parameters: Mapping[str, str]) -> dict[str, str]:
    """Return only the table parameters that record the names of fields."""
    return {name: value for name, value in parameters.items() if name.startswith(_FIELD_NAMES)}


def name_record(parameters: Mapping[str, str]) -> NameRecord:
    """Return the names of fields that a table's parameters record, or an empty record if their JSON is invalid."""
    # A missing piece ends the record. The JSON is then invalid, and the record counts as empty.
    pieces = takewhile(lambda piece: piece is not None, (parameters.get(_parameter(number)) for number in count()))
    try:
        saved = json.loads("".join(piece for piece in pieces if piece is not None) or "{}")
        styles = saved.items() if isinstance(saved, dict) else ()
        return NameRecord({style: _names_of(names) for style, names in styles if style in STYLES})
    except (ValueError, RecursionError):
        return NO_RECORD


def _parameter(number: int) -> str:
    return f"{_FIELD_NAMES}-{number}" if number else _FIELD_NAMES


def _names_as_json(names: Names) -> dict[str, object]:
    return {source: [name, _names_as_json(inside)] if inside else name for source, (name, inside) in names.items()}


def _names_of(saved: object) -> Names:
    """Return the names of fields from decoded JSON.

    Skip invalid and repeated names, because other programs may have changed the parameter.
    """
    names: Names = {}
    taken: set[str] = set()
    for source, value in saved.items() if isinstance(saved, dict) else ():
        name, inside = value if isinstance(value, list) and len(value) == 2 else (value, {})
        if isinstance(name, str) and name and name not in taken and not _INVALID_IN_NAMES.search(name):
            taken.add(name)
            names[source] = (name, _names_of(inside))
    return names


@dataclass(frozen=True, slots=True)
class OwnedTable:
    """A table in the Glue Data Catalog whose parameters record an owner.

    `columns` contains a pair for each column: its name, and the path of its values in the records.
    """

    name: TableName
    owner: TableOwner
    columns: tuple[tuple[str, str], ...]
    kind: TableKind
    location: str

    def __str__(self) -> str:
        return f"table {self.name} ({self.kind}) at {self.location} contains stream {self.owner.stream}"

    @classmethod
    def from_glue(cls, database: str, glue_table: TableTypeDef) -> Self | None:
        """Return the table that a Glue entry describes, or None if the table has no owner or a replay filled it."""
        parameters = glue_table.get("Parameters", {})
        owner = TableOwner.load(parameters)
        if owner is None or owner.replay_of is not None:
            return None
        columns = glue_table.get("StorageDescriptor", {}).get("Columns", [])
        sources = tuple((column["Name"], column.get("Comment") or column["Name"]) for column in columns)
        kind: TableKind = "Iceberg" if is_iceberg(glue_table) else "Hive"
        location = glue_table.get("StorageDescriptor", {}).get("Location", "")
        return cls(TableName(database, glue_table["Name"]), owner, sources, kind, location)


def tables_in_use(tables: Sequence[OwnedTable], naming: TableNaming) -> Iterator[OwnedTable]:
    """Yield the tables to which a sync with these rules would still write the stream of the table's owner.

    Skip tables outside the configured database, because another connection may have created them.
    """
    for table in tables:
        if table.name.database == naming.database and naming.table_of(table.owner.stream) == table.name:
            yield table


def relocations(tables: Sequence[OwnedTable], naming: TableNaming) -> Iterator[str]:
    """Yield a description of each stream that `naming` maps to another table, and of each table with renamed columns.

    Skip a stream if another table, to which `naming` maps the stream, has it as owner. Skip a column if the table
    already has a column with the new name. If some tables already follow `naming`, skip all others, because they
    probably belong to another connection. This last rule applies separately to streams with and without a namespace.
    """
    owners = {table.name: table.owner.stream for table in tables}
    in_use = {table.owner.stream.namespace is None for table in tables if _created_by(naming, table)}
    for table in tables:
        stream = table.owner.stream
        if (stream.namespace is None) in in_use:
            continue
        target = naming.table_of(stream)
        owner = owners.get(target)
        if target != table.name:
            if owner != stream:
                move = f"stream {stream} was written to table {table.name} and would now be written to {target}"
                yield f"{move}, which contains stream {owner}" if owner else move
        elif renamed := _renamed(table, naming):
            (name, new), *more_columns = renamed
            more = f", and {counted(len(more_columns), 'more column')} would change" if more_columns else ""
            yield f"column {name} of table {table.name} (stream {stream}) would be replaced by column {new}{more}"


def _created_by(naming: TableNaming, table: OwnedTable) -> bool:
    return table.owner.naming == naming.naming and naming.table_of(table.owner.stream) == table.name


def _renamed(table: OwnedTable, naming: TableNaming) -> tuple[tuple[str, str], ...]:
    """Return the old and the new name of each column that `naming` renames.

    Skip a column whose name does not follow from the column's path alone, such as a name with a suffix.
    """
    recorded_naming, configured_naming = table.owner.naming, naming.naming
    if recorded_naming == configured_naming:
        return ()
    existing = {name for name, _ in table.columns}
    paths = [
        (name, path_of(comment))
        for name, comment in table.columns
        if name not in METADATA_NAMES and _is_complete(comment)
    ]
    targets = (
        (name, configured_naming.identifier_of_path(path))
        for name, path in paths
        if recorded_naming.identifier_of_path(path) == name
    )
    return tuple((name, target) for name, target in targets if target not in existing)


def _is_complete(comment: str) -> bool:
    """Return whether a column's comment contains the complete path of the column.

    The connector truncates a path that is longer than Glue allows for comments.
    """
    # A comment of exactly the maximum length may have been truncated.
    return len(comment.encode()) < MAX_BYTES


# --- Finding tables ---------------------------------------------------------------------------------------------------
# Find a configuration's tables in the catalog by the owners and locations of the tables.


@dataclass(slots=True)
class TableFinder:
    """Finds a configuration's Iceberg tables in the catalog. If `with_hive` is True, also finds its Hive tables.

    After a search, `notes` contains a sentence about each database or table that the search skipped.
    """

    config: Config
    catalog: TableCatalog
    notes: list[str] = field(default_factory=list)
    with_hive: bool = False

    def tables(self, streams: Sequence[str]) -> list[TableName]:
        """Return the configuration's tables for `streams`, or all of its tables if `streams` is empty.

        Each stream is a string of the form "name" or "namespace.name". A table belongs to the configuration if it is in
        the configured location, and if a sync with this configuration would write the stream of the table's owner to
        it.

        A search for all tables covers the database `lakeformation_database_name`. If `database_strategy` is
        `namespace`, the search also covers all databases that this connector created. Raises ConfigError for a stream
        without a table, and errors from requests to the catalog.
        """
        if not streams:
            return sorted(name for name, _ in self._configured(self._in_databases()))
        kind = "table" if self.with_hive else "Iceberg table"
        tables: set[TableName] = set()
        for stream in dict.fromkeys(streams):
            candidates = self._configured(self._of_stream(stream))
            names = [name for name, owner in candidates if str(owner.stream) == stream]
            if not names:
                raise ConfigError(
                    f"--stream {stream}: this configuration has no {kind} for that stream. Specify the stream as "
                    f"namespace.name, or as name if it has no namespace.{''.join(f' {note}' for note in self.notes)}"
                )
            tables.update(names)
        return sorted(tables)

    def _configured(self, listed: Iterable[ListedTable]) -> Iterator[tuple[TableName, TableOwner]]:
        """Yield the listed tables that belong to the configuration, each with its owner.

        Add a note about each table of the configuration's streams that this method skips for its type or location.
        """
        naming = TableNaming.from_config(self.config)
        for database, table in listed:
            parameters, name = table.get("Parameters", {}), TableName(database, table["Name"])
            owner = TableOwner.load(parameters)
            if owner is None or naming.table_of(owner.stream) != name:
                continue
            if not (self.with_hive or is_iceberg(table)):
                self.notes.append(f"Table {name} was skipped, because Hive tables need no maintenance.")
            elif not self._is_allowed(location := table.get("StorageDescriptor", {}).get("Location", "")):
                self.notes.append(
                    f"Table {name} was skipped, because its location {location} is outside bucket_name and "
                    "bucket_prefix."
                )
            else:
                yield name, owner

    def _is_allowed(self, location: str) -> bool:
        return self.config.follow_table_location or is_inside(location, self.config.uri(""))

    def _in_databases(self) -> Iterator[ListedTable]:
        for database in self._databases():
            try:
                listed = list(self.catalog.tables(database))
            except Exception as error:
                failure = explain(error, doing="list the tables of database", resource=database)
                is_configured = database == self.config.lakeformation_database_name
                if failure is None or failure.type != "config_error" or is_configured:
                    raise
                # A connection with another identity may have created the database.
                self.notes.append(f"{failure.message} The tables of database {database} were skipped.")
                continue
            yield from listed

    def _databases(self) -> list[str]:
        configured = self.config.lakeformation_database_name
        if self.config.database_strategy == "single":
            return [configured]
        try:
            created = {database.name for database in self.catalog.databases() if database.is_created_by_connector}
        except Exception as error:
            failure = explain(error, doing="list the databases of", resource="the catalog")
            if failure is None:
                raise
            self.notes.append(
                f"{failure.message} Only database {configured} was searched. To search other databases, use --stream."
            )
            return [configured]
        return [configured, *sorted(created - {configured})]

    def _of_stream(self, stream: str) -> Iterator[ListedTable]:
        """Yield the tables in the catalog that may belong to the stream.

        The string `stream` can be ambiguous (see `TableNaming.candidates`).
        """
        for name in TableNaming.from_config(self.config).candidates(stream):
            if (glue_table := self.catalog.find(name)) is not None:
                yield ListedTable(name.database, glue_table)
