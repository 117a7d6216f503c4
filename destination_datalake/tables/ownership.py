"""The owner of a table: the stream it was created for, kept in the table's parameters.

An Iceberg table has them as properties, which PyIceberg repeats in the Glue table's parameters. If changed options give
that stream another table, or its columns other names, a sync begins new ones and leaves the old ones behind; `check`
warns of it.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, islice, takewhile
from types import MappingProxyType
from typing import TYPE_CHECKING, Self

from destination_datalake.protocol.catalog import StreamId
from destination_datalake.schema.columns import NO_RECORD, NameRecord, Names, assign_names, find_collisions
from destination_datalake.schema.json_schema import Untyped
from destination_datalake.schema.names import MAX_BYTES, METADATA_NAMES, STYLES, Naming, path_of
from destination_datalake.schema.types import ColumnType, Field
from destination_datalake.tables.catalog import is_iceberg
from destination_datalake.tables.location import TableKind
from destination_datalake.tables.naming import TableNaming
from destination_datalake.tables.table import TableName, table_conflict

if TYPE_CHECKING:
    from mypy_boto3_glue.type_defs import TableTypeDef

_logger = logging.getLogger(__name__)

_COLLISIONS_SHOWN = 20

_NAMESPACE = "airbyte.stream-namespace"
_NAME = "airbyte.stream-name"
_NAMING = "airbyte.naming"
_TYPES = "airbyte.types"

_FIELD_NAMES = "airbyte.field-names"
_MAX_PARAMETER = 500_000
"""Characters of ASCII in one parameter. Glue takes 512,000 bytes."""
_NOT_IN_NAMES = re.compile(r"[\s<>(),:.]")

REPLAY_OF = "airbyte.replay-of"
"""The parameter of a table that a replay has made: the name of the one whose archive it is made from."""


def untyped_in(parameters: Mapping[str, str]) -> Untyped:
    """Return what becomes of untyped schemas in a table with these parameters.

    Tables without the parameter have their values as JSON text (`"open"` with its quotes), and go on so: in a column of
    strings no catalog tells the two apart.
    """
    return Untyped.INFER if parameters.get(_TYPES) == "inferred" else Untyped.JSON_TEXT


@dataclass(frozen=True, slots=True)
class TableOwner:
    """The stream that a table was created for, and the naming that its columns were named by.

    `replay_of` is the name of the table that this one was made from the archive of; None for tables of syncs.
    """

    stream: StreamId
    naming: Naming
    replay_of: str | None = None

    def parameters(self) -> dict[str, str]:
        """Return the table parameters that record the owner."""
        namespace = {_NAMESPACE: self.stream.namespace} if self.stream.namespace else {}
        replay = {REPLAY_OF: self.replay_of} if self.replay_of else {}
        return {**namespace, _NAME: self.stream.name, _NAMING: self.naming.style, _TYPES: "inferred", **replay}

    @classmethod
    def of(cls, parameters: Mapping[str, str]) -> Self | None:
        """Return the owner that a table's parameters record; None if they record none."""
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
        """Return the stream's columns under their names in an existing table with the given parameters.

        `existing` has the sources of the table's columns by name, None for names that no column gets, and `types` their
        types. Warns if the
        table was created for another stream, and of fields whose names collide. Raises TableConflict for a table that
        a replay has made, unless this is one of the same table, and for any other table if this is a replay.
        """
        recorded = TableOwner.of(parameters)
        if parameters.get(REPLAY_OF) != self.replay_of:
            made = f"`replay` made it from the archive of table {parameters[REPLAY_OF]}"
            problem = made if REPLAY_OF in parameters else "a replay did not make it, and must not write to it"
            raise table_conflict(self.stream, table, f"{problem}. Drop it if nobody needs it")
        if recorded is not None and recorded.stream != self.stream and self.replay_of is None:
            _logger.warning(
                "Table %s was created for stream %s and now receives stream %s as well, so it holds rows of both. If "
                "they do not belong together, set table_prefix, database_strategy or naming so that each has its own.",
                table,
                recorded.stream,
                self.stream,
            )
        named = assign_names(columns, self.naming, existing, name_record(parameters), types)
        self._warn_of_collisions(named)
        return named

    def name_parameters(self, parameters: Mapping[str, str], columns: Sequence[Field]) -> dict[str, str]:
        """Return the parameters that record the names of columns, and those that a table's parameters record already.

        Comments in the catalog are cut, and others change them; it has none for fields inside structs.
        """
        record = name_record(parameters).with_columns(columns, self.naming)
        saved = {style: _names_as_json(names) for style, names in record.by_style.items()}
        text = json.dumps(saved, separators=(",", ":"))
        pieces = [text[start : start + _MAX_PARAMETER] for start in range(0, len(text), _MAX_PARAMETER)]
        return {_parameter(number): piece for number, piece in enumerate(pieces)}

    def _warn_of_collisions(self, columns: Sequence[Field]) -> None:
        found = find_collisions(columns, self.naming)
        shown = [str(collision) for collision in islice(found, _COLLISIONS_SHOWN)]
        if not shown:
            return
        if more := sum(1 for _ in found):
            shown.append(f"and {more} more like these")
        _logger.warning(
            "Stream %s has fields whose names collide; a suffix distinguishes their columns: %s.",
            self.stream,
            "; ".join(shown),
        )


def recorded_names(parameters: Mapping[str, str]) -> dict[str, str]:
    """Return those parameters that record the names of fields."""
    return {name: value for name, value in parameters.items() if name.startswith(_FIELD_NAMES)}


def name_record(parameters: Mapping[str, str]) -> NameRecord:
    """Return what a table's parameters record of the names of fields; nothing if it is unreadable."""
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
    """Return names as they were saved, without any that no catalog takes or that are there twice: others write too."""
    names: Names = {}
    taken: set[str] = set()
    for source, value in saved.items() if isinstance(saved, dict) else ():
        name, inside = value if isinstance(value, list) and len(value) == 2 else (value, {})
        if isinstance(name, str) and name and name not in taken and not _NOT_IN_NAMES.search(name):
            taken.add(name)
            names[source] = (name, _names_of(inside))
    return names


@dataclass(frozen=True, slots=True)
class OwnedTable:
    """A table that records its owner; `columns` are pairs of a column's name and its origin in the records."""

    name: TableName
    owner: TableOwner
    columns: tuple[tuple[str, str], ...]
    kind: TableKind
    location: str

    def __str__(self) -> str:
        return f"table {self.name} ({self.kind}) at {self.location} holds stream {self.owner.stream}"

    @classmethod
    def of(cls, database: str, glue_table: TableTypeDef) -> Self | None:
        """Read a Glue table; None if it records no owner, or if a replay made it."""
        parameters = glue_table.get("Parameters", {})
        owner = TableOwner.of(parameters)
        if owner is None or owner.replay_of is not None:
            return None
        columns = glue_table.get("StorageDescriptor", {}).get("Columns", [])
        sources = tuple((column["Name"], column.get("Comment") or column["Name"]) for column in columns)
        kind: TableKind = "Iceberg" if is_iceberg(glue_table) else "Hive"
        location = glue_table.get("StorageDescriptor", {}).get("Location", "")
        return cls(TableName(database, glue_table["Name"]), owner, sources, kind, location)


def tables_in_use(tables: Sequence[OwnedTable], naming: TableNaming) -> Iterator[OwnedTable]:
    """Yield the tables that their streams would be written to, of those in the database of the options.

    In a namespace's database they may belong to another connection, as long as no sync brings a stream of that
    namespace.
    """
    for table in tables:
        if table.name.database == naming.database and naming.table_of(table.owner.stream) == table.name:
            yield table


def relocations(tables: Sequence[OwnedTable], naming: TableNaming) -> Iterator[str]:
    """Tell of the streams and columns to which `naming` gives another table or name, unless they have that one as well.

    The other table may have another owner. If `naming` has created tables, those that it has not created are taken for
    another connection's and left out. Streams with a namespace and streams without one are judged apart.
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
                yield f"{move}, which holds stream {owner}" if owner else move
        elif renamed := _renamed(table, naming):
            (name, new), *others = renamed
            more = f" and {len(others)} more would change too" if others else ""
            yield f"column {name} of table {table.name} (stream {stream}) would now be {new}{more}"


def _created_by(naming: TableNaming, table: OwnedTable) -> bool:
    return table.owner.naming == naming.naming and naming.table_of(table.owner.stream) == table.name


def _renamed(table: OwnedTable, naming: TableNaming) -> tuple[tuple[str, str], ...]:
    """Return the columns that the present naming names otherwise than the table's; those with a suffix are left out."""
    before, now = table.owner.naming, naming.naming
    if before == now:
        return ()
    taken = {name for name, _ in table.columns}
    own = [
        (name, path_of(origin)) for name, origin in table.columns if name not in METADATA_NAMES and _is_whole(origin)
    ]
    targets = ((name, now.identifier_of_path(path)) for name, path in own if before.identifier_of_path(path) == name)
    return tuple((name, target) for name, target in targets if target not in taken)


def _is_whole(comment: str) -> bool:
    """Whether a column's comment is certain to be the whole source: Glue's limit may have cut a longer one."""
    return len(comment.encode()) < MAX_BYTES
