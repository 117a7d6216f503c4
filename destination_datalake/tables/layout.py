"""Derive the partition fields and the sort order of a table from the options and the stream.

If an option names a stream or field that the sync does not contain, this module raises an error or warns before the
sync reads any record.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING

from destination_datalake.aws.objects import S3Address
from destination_datalake.errors import ConfigError
from destination_datalake.partitioning.paths import MAX_KEY_BYTES, PartitionFolders, PartitionKey, key_type
from destination_datalake.partitioning.spec import (
    CalendarPart,
    Identity,
    Part,
    PartitionField,
    Since1970,
    SortField,
    TimeUnit,
    Transform,
    parse_transform,
)
from destination_datalake.partitioning.templates import PathTemplate, path_template, time_parts
from destination_datalake.partitioning.transforms import PERMITTED, permits
from destination_datalake.protocol.catalog import Stream, StreamId
from destination_datalake.schema.columns import METADATA_COLUMNS, stream_columns
from destination_datalake.schema.glue import describe_type
from destination_datalake.schema.json_schema import Untyped
from destination_datalake.schema.names import EXTRACTED_AT, SNAKE_CASE
from destination_datalake.schema.types import ColumnType, Date, Field, Json, Nested, NumericTypes, Struct, Timestamp

if TYPE_CHECKING:
    from destination_datalake.config.options import Config
    from destination_datalake.config.tables import PartitioningUnits
    from destination_datalake.schema.names import Naming
    from destination_datalake.tables.catalog import TableCatalog
    from destination_datalake.tables.naming import TableLocation
    from destination_datalake.tables.table import TableName

_logger = logging.getLogger(__name__)

PARTS: Mapping[PartitioningUnits, tuple[Part, ...]] = {
    "NO PARTITIONING": (),
    "DATE": ("date",),
    "YEAR": ("year",),
    "MONTH": ("month",),
    "DAY": ("day",),
    "YEAR/MONTH": ("year", "month"),
    "YEAR/MONTH/DAY": ("year", "month", "day"),
    "YEAR/MONTH/DAY/HOUR": ("year", "month", "day", "hour"),
    "DAY/HOUR": ("date", "hour"),
}
"""The partition keys of Hive tables for each value of the option `partitioning`.

Airbyte's AWS Datalake destination supports some of these values, and creates the same keys for them. In `DAY`, the day
is the day of the month. In `DAY/HOUR`, it is the whole date.
"""

_MAX_FIELDS_IN_MESSAGE = 10

_MAX_NAME_BYTES = 160
"""Maximum length of a generation's folder and a file's name together, in bytes of an S3 key.

The folders of the table and of the partition may use the remaining bytes of the key.
"""

_FINEST: Mapping[Part, TimeUnit] = {"date": "day", "year": "year", "month": "month", "day": "day", "hour": "hour"}


@dataclass(frozen=True, slots=True)
class Source:
    """A column, or a field inside a column, by which rows are partitioned or sorted.

    `path` contains the names in the table, beginning with the column's name. `label` is the first part of the names of
    partition keys for this source.
    """

    path: tuple[str, ...]
    type: ColumnType
    label: str


@dataclass(frozen=True, slots=True)
class TableLayout:
    """The configured location, partitioning and sort order of one stream's table.

    In all methods, `columns` contains the stream's columns with their names in the table. A method returns None if the
    options configure no partitioning or sort order, or if the stream lacks the date by which they partition the table.
    An existing table then keeps its layout.

    `known` contains the columns of an existing table. Methods raise ConfigError if `partition_by` or `sort_by` names a
    field that is neither in the stream nor in `known`, or whose type does not permit the use. A field in `known` is
    enough, because the table stays partitioned by a column even if the stream drops the column or changes its type.
    """

    stream: Stream
    config: Config
    location: TableLocation
    known: tuple[Field, ...] = ()
    as_json: frozenset[tuple[str, ...]] = frozenset()
    """The paths of the columns that the table stores as JSON text, whatever their schemas."""

    def columns(self, naming: Naming, untyped: Untyped = Untyped.INFER) -> tuple[Field, ...]:
        """Return the columns of a new table for the stream, without the metadata columns."""
        numeric, (nested, depth) = NumericTypes(self.config.numeric_types), self.config.nested_of(*self.stream.id)
        columns = stream_columns(self.stream.json_schema, numeric, naming, Nested(nested), depth, untyped)
        return tuple(replace(column, type=Json()) if column.path in self.as_json else column for column in columns)

    def iceberg_fields(self, columns: Sequence[Field]) -> tuple[PartitionField, ...] | None:
        """Return the partition fields of an Iceberg table.

        If the option `partitioning` contains several time units, this method uses only the finest. Iceberg rejects
        several time units of one column as redundant (Iceberg: PartitionSpec.checkForRedundantPartitions).
        """
        explicit = self._explicit(columns)
        if explicit is not None:
            return _distinct(explicit, columns, _has_name_of_column)
        source = self._date_source(columns) if self.config.partitioning != "NO PARTITIONING" else None
        if source is None:
            return None
        unit: TimeUnit = _FINEST[PARTS[self.config.partitioning][-1]]
        if unit == "hour" and isinstance(source.type, Date):
            unit = "day"
        return _distinct([PartitionField(f"{source.label}_{unit}", source.path, Since1970(unit))], columns)

    def hive_folders(self, columns: Sequence[Field]) -> PartitionFolders | None:
        """Return the partition keys of a Hive table, and the template of its partition folders."""
        template = path_template(self.config.path_layout, self.config.partitioning)
        # In the layouts of other destinations and in Athena's partition projection, the keys are strings that equal the
        # values in the folders' names.
        projected = self.config.catalog_partitions != "register"
        fields = self.hive_fields(columns, digits=projected) if template is None else self._fields_of(template, columns)
        if fields is None:
            return None
        digits = template is not None or projected
        # Later entries win, so the types of the stream take precedence over those of the table.
        types = {path: type_ for _, path, type_ in _sources((*METADATA_COLUMNS, *self.known, *columns), (), ())}
        keys = [
            PartitionKey(field, key_type(field, types[field.source], digits=digits), types[field.source], projected)
            for field in fields
        ]
        # S3 allows keys of 1,024 bytes, so long partition values must leave space for the rest of the key.
        max_bytes = MAX_KEY_BYTES - len(S3Address.parse(self.location.folder).key.encode()) - _MAX_NAME_BYTES
        if template is None or not keys:
            return PartitionFolders.hive(keys, max_bytes)
        return PartitionFolders.from_template(template, keys, max_bytes)

    def hive_fields(self, columns: Sequence[Field], *, digits: bool) -> tuple[PartitionField, ...] | None:
        """Return the partition fields of a Hive table, for the value `hive` of the option `path_layout`.

        If `digits` is True, all keys are strings, and zeros pad the numbers in these strings to a fixed width.
        """
        explicit = self._explicit(columns)
        if explicit is not None:
            return _distinct([self._of_calendar(field, digits=digits) for field in explicit], columns)
        source = self._date_source(columns) if self.config.partitioning != "NO PARTITIONING" else None
        if source is None:
            return None
        fields = [
            PartitionField(f"{source.label}_{part}", source.path, self._calendar(part, digits=digits))
            for part in PARTS[self.config.partitioning]
        ]
        return _distinct(fields, columns)

    def _fields_of(self, template: PathTemplate, columns: Sequence[Field]) -> tuple[PartitionField, ...] | None:
        """Return a partition field for each variable in the partition folders of the path template, in this order.

        Return None if neither `partition_by` nor the template configures partitioning, or if the template needs a date
        and the stream has none.
        """
        explicit = self._explicit(columns)
        if explicit == []:
            return ()
        if explicit is None and not template.variables:
            return None
        by_name = {field.name: self._of_calendar(field, digits=True) for field in explicit or ()}
        for name in by_name:
            if name not in template.variables:
                raise ConfigError(
                    f"streams: partition_by of stream {self.stream.id} contains the key {name}, but path_layout has "
                    "no folder for this key. Set path_layout to hive, or to a template with the folder "
                    f"{name}={{{name}}}."
                )
        times = [part for part in time_parts(template) if part not in by_name]
        for name in template.variables:
            if name not in by_name and name not in times:
                raise ConfigError(
                    f"path_layout contains the folder {{{name}}}, but stream {self.stream.id} has no partition key "
                    "with this name. Add the key to partition_by of the stream in streams."
                )
        if times and (source := self._date_source(columns)) is None:
            if by_name and not self.known:
                raise ConfigError(
                    f"path_layout contains the folder {{{times[0]}}}, but partition_source names no date of stream "
                    f"{self.stream.id}. Set partition_source to extracted_at."
                )
            return None
        for part in times:
            assert source is not None
            by_name[part] = PartitionField(part, source.path, self._calendar(part, digits=True))
        fields = [replace(by_name[name], name=template.key_name(name)) for name in template.variables]
        return _distinct(fields, columns)

    def sort_fields(self, columns: Sequence[Field]) -> tuple[SortField, ...] | None:
        """Return the fields by which the rows of each file are sorted."""
        entries = self.config.of_stream(*self.stream.id).sort_by
        if entries is None:
            return None
        fields = []
        for entry in entries:
            source = self._resolve(entry.source, columns, "sort_by", Identity(), f"sorted by {entry.source}")
            fields.append(SortField(source.path, entry.direction == "ascending", entry.nulls == "first"))
        return tuple(fields)

    def _explicit(self, columns: Sequence[Field]) -> list[PartitionField] | None:
        """Return the partition fields that `partition_by` configures for the stream, or None if it is not set."""
        entries = self.config.of_stream(*self.stream.id).partition_by
        if entries is None:
            return None
        fields = []
        for entry in entries:
            transform = parse_transform(entry.transform)
            use = f"partitioned by {transform}({entry.source})"
            source = self._resolve(entry.source, columns, "partition_by", transform, use)
            fields.append(PartitionField(entry.name or self._name(source, transform), source.path, transform))
        return fields

    def _not_permitted(self, name: str, type_: ColumnType, use: str, option: str) -> ConfigError:
        excluded = () if self.config.table_type == "ICEBERG" else ("bucket[N]", "truncate[W]")
        transforms = PERMITTED[type(type_)] if option == "partition_by" else ()
        permitted = [transform for transform in transforms if transform not in excluded]
        remedies = [f"choose another transform ({', '.join(permitted)})"] if permitted else []
        if isinstance(type_, Struct):
            remedies.append(f"name a field inside {name}, such as {name}.{type_.fields[0].source}")
        return ConfigError(
            f"streams: {option} of stream {self.stream.id}: rows cannot be {use}, because the type of field {name} is "
            f"{describe_type(type_)}. To correct the entry, {' or '.join([*remedies, 'remove it'])}."
        )

    def _name(self, source: Source, transform: Transform) -> str:
        kind = str(transform).partition("[")[0].replace("truncate", "trunc")
        if kind == "identity":
            # In Iceberg, an identity field has the name of its column. In Hive, a partition key is an additional column
            # that needs its own name.
            return source.label if self.config.table_type == "ICEBERG" else f"{source.label}_key"
        return f"{source.label}_{kind}"

    def _resolve(self, name: str, columns: Sequence[Field], option: str, transform: Transform, use: str) -> Source:
        """Return the column, or the field inside a column, that `option` names by its key `name` in the records.

        `use` completes the clause "rows cannot be …" in messages. Logs a warning if only the existing table has a field
        whose type permits the transform. Raises ConfigError if the field does not exist, or if its type does not permit
        the transform.
        """
        if name in ("extracted_at", EXTRACTED_AT):
            return _extracted_at()
        sent, known = _sources_named(name, columns), _sources_named(name, self.known)
        permitted = (candidate for candidate in (*sent, *known) if permits(transform, candidate.type))
        source = next(permitted, None)
        if source is None:
            if sent or known:
                raise self._not_permitted(name, (sent or known)[0].type, use, option)
            raise ConfigError(
                f"streams: {option} of stream {self.stream.id} names the field {name}, but the stream has no such "
                "field. Correct the name, or remove the entry."
            )
        if source not in sent:
            _logger.warning(
                "Field %s of stream %s is missing or has another type, so new rows cannot be %s: the key is null. "
                "All columns keep their values. If another field replaces this field, correct %s of the stream.",
                name,
                self.stream.id,
                use,
                option,
            )
        return source

    def _date_source(self, columns: Sequence[Field]) -> Source | None:
        """Return the date or timestamp column that the option `partition_source` names.

        If the stream has no such column, log a warning and return None.
        """
        config = self.config
        if config.partition_source in ("extracted_at", EXTRACTED_AT):
            return _extracted_at()
        # A cursor field is a path of keys (Airbyte protocol: cursor_field). AWS Datalake used the first key in the path
        # that names a date.
        cursor = self.stream.cursor_field
        keys = (".".join(cursor), *cursor) if config.partition_source == "cursor" else (config.partition_source,)
        dates = {".".join(column.path): column for column in columns if isinstance(column.type, Date | Timestamp)}
        column = next((dates[key] for key in keys if key in dates), None)
        if column is None:
            _logger.warning(
                "Stream %s is not partitioned, because it has no %s that is a date or a date-time. To partition the "
                "stream, set another partition_source, such as extracted_at.",
                self.stream.id,
                "cursor" if config.partition_source == "cursor" else f"field {config.partition_source}",
            )
            return None
        return Source((column.name,), column.type, column.name)

    def _of_calendar(self, field: PartitionField, *, digits: bool) -> PartitionField:
        if not isinstance(field.transform, Since1970):
            return field
        unit = field.transform.unit
        return replace(field, transform=self._calendar("date" if unit == "day" else unit, digits=digits))

    def _calendar(self, part: Part, *, digits: bool) -> CalendarPart:
        # Dates are not padded, because ISO 8601 dates have a fixed width.
        width = {"year": 4, "date": 0}.get(part, 2) if digits else 0
        return CalendarPart(part, self.config.timezone, width)


def _sources(
    fields: Sequence[Field], keys: tuple[str, ...], path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], tuple[str, ...], ColumnType]]:
    for field in fields:
        yield (*keys, *field.path), (*path, field.name), field.type
        if isinstance(field.type, Struct):
            yield from _sources(field.type.fields, (*keys, *field.path), (*path, field.name))


def _sources_named(name: str, columns: Sequence[Field]) -> list[Source]:
    return [
        Source(path, type_, "_".join(path)) for keys, path, type_ in _sources(columns, (), ()) if ".".join(keys) == name
    ]


def _extracted_at() -> Source:
    # The label has no leading underscore, because Hive, Trino and Athena ignore folders whose names begin with one.
    type_ = next(column.type for column in METADATA_COLUMNS if column.name == EXTRACTED_AT)
    return Source((EXTRACTED_AT,), type_, "extracted_at")


def _has_name_of_column(field: PartitionField) -> bool:
    """Return whether the partition field may have its column's name (Iceberg spec: partition field names)."""
    return len(field.source) == 1 and isinstance(field.transform, Identity)


def _distinct(
    fields: Sequence[PartitionField],
    columns: Sequence[Field],
    has_name_of_column: Callable[[PartitionField], bool] = lambda _: False,
) -> tuple[PartitionField, ...]:
    """Return the partition fields. If a field's name equals another field's or a column's name, append a number to it.

    A field for which `has_name_of_column` returns True may have the name of its source column.
    """
    column_names = {column.name for column in (*METADATA_COLUMNS, *columns)}
    names: set[str] = set()
    result = []
    for field in fields:
        allowed = field.source if has_name_of_column(field) else ()
        name, number = field.name, 1
        while name in names or (name in column_names and name not in allowed):
            name, number = f"{field.name}_{number}", number + 1
        names.add(name)
        result.append(PartitionField(name, field.source, field.transform))
    return tuple(result)


def misnamed_streams(config: Config, streams: Sequence[StreamId]) -> Iterator[str]:
    """Yield a warning for each entry of the option `streams` that matches no stream of the sync.

    The user may have written such an entry for another connection. Raises ConfigError if the entry differs from the
    name of a stream only in case and separators, and no other entry matches the stream. Otherwise, the sync would
    create the stream's table without the entry's options.
    """
    names = {str(stream).lower(): stream for stream in streams}
    for number, entry in enumerate(config.streams):
        if any(entry.is_for(*stream) for stream in streams):
            continue
        named = StreamId(entry.namespace, entry.stream)
        matches = get_close_matches(str(named).lower(), names, n=1)
        similar = names[matches[0]] if matches else None
        hint = f" Did you mean {similar}?" if similar else ""
        has_entry = similar is not None and any(candidate.is_for(*similar) for candidate in config.streams)
        if similar is not None and not has_entry and _letters(similar) == _letters(named):
            raise ConfigError(
                f"streams.{number} names stream {named}, which is not in this sync.{hint} Correct the entry, because "
                "names must match exactly."
            )
        yield (
            f"streams.{number} names stream {named}, which is not in this sync, so the entry has no effect.{hint} "
            "Names must match exactly."
        )


def require_partition_source(
    config: Config, streams: Sequence[Stream], tables: Mapping[StreamId, TableName], catalog: TableCatalog
) -> None:
    """Raise ConfigError if the option `partition_source` names a field that is not a date or timestamp in any stream.

    Streams with `partition_by` do not count, because `partition_source` does not affect them. Return without an error
    if the table of any other stream exists: a sync partitions a table when it creates the table, and can continue the
    table even if the source has removed the field.
    """
    source = config.partition_source
    affected = [stream for stream in streams if config.of_stream(*stream.id).partition_by is None]
    if source in ("cursor", "extracted_at", EXTRACTED_AT) or not affected or not _partitions_by_time(config):
        return
    dates = {name for stream in affected for name in _dates(config, stream)}
    if source in dates or any(_exists(tables[stream.id], catalog) for stream in affected):
        return
    named = ", ".join(
        [*sorted(dates)[:_MAX_FIELDS_IN_MESSAGE], *(["…"] if len(dates) > _MAX_FIELDS_IN_MESSAGE else [])]
    )
    hint = f" Date fields: {named}." if dates else ""
    if similar := get_close_matches(source, dates, n=1):
        hint = f" Did you mean {similar[0]}?"
    raise ConfigError(
        f"partition_source names the field {source}, but no stream of this sync has a date or date-time field with "
        f"this name, so no table would be partitioned.{hint} Set partition_source to cursor, to extracted_at or to "
        "the name of a date or date-time field, or omit partitioning."
    )


def _letters(stream: StreamId) -> str:
    return "".join(letter for letter in str(stream).casefold() if letter.isalnum())


def _partitions_by_time(config: Config) -> bool:
    template = path_template(config.path_layout, config.partitioning)
    return config.partitioning != "NO PARTITIONING" or (template is not None and bool(time_parts(template)))


def _dates(config: Config, stream: Stream) -> Iterator[str]:
    nested, depth = config.nested_of(*stream.id)
    # Only the field names in the records matter here, so this function can pass any naming of columns.
    for column in stream_columns(
        stream.json_schema, NumericTypes(config.numeric_types), SNAKE_CASE, Nested(nested), depth
    ):
        if isinstance(column.type, Date | Timestamp):
            yield ".".join(column.path)


def _exists(table: TableName, catalog: TableCatalog) -> bool:
    """Return whether a table exists. If the catalog raises an error, return True: a later call reports the error."""
    try:
        return catalog.find(table) is not None
    except Exception:
        return True
