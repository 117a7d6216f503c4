"""From the options and a stream to the partition fields and the sort order that its table gets.

Options that name streams and fields which a sync does not have are refused or warned of before anything is read.
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
    EXTRACTED_AT,
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
from destination_datalake.schema.names import SNAKE_CASE
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
"""The partition keys of Hive tables by the option `partitioning`, as AWS Datalake has them where it has the value.

Its DAY is the day of the month; with an hour, a day is the whole date.
"""

_SHOWN = 10
"""How many fields a message names."""

_REST_OF_KEY = 160
"""Bytes of keys besides the folders of table and partition: those of a generation, and the name of the file."""

_FINEST: Mapping[Part, TimeUnit] = {"date": "day", "year": "year", "month": "month", "day": "day", "hour": "hour"}


@dataclass(frozen=True, slots=True)
class Source:
    """The column by which `partitioning` partitions. `label` is what names of partition keys begin with."""

    path: tuple[str, ...]
    type: ColumnType
    label: str


@dataclass(frozen=True, slots=True)
class TableLayout:
    """What the options say about where the data of one stream's table lies, and how it is arranged there.

    In all methods `columns` are the stream's columns under their names in the table; None leaves the matter to the
    table. Raises ConfigError if `partition_by` or `sort_by` names a field that neither the stream has nor `known`, the
    columns of the existing table: what the stream sends no longer, or as another type, stays what tables are arranged
    by.
    """

    stream: Stream
    config: Config
    location: TableLocation
    known: tuple[Field, ...] = ()
    as_json: frozenset[tuple[str, ...]] = frozenset()
    """The paths of columns that are JSON text, whatever their schema says."""

    def columns(self, naming: Naming, untyped: Untyped = Untyped.INFER) -> tuple[Field, ...]:
        """Return the stream's own columns in a table without columns, whose names have this naming."""
        numeric, (nested, depth) = NumericTypes(self.config.numeric_types), self.config.nested_of(*self.stream.id)
        columns = stream_columns(self.stream.json_schema, numeric, naming, Nested(nested), depth, untyped)
        return tuple(replace(each, type=Json()) if each.path in self.as_json else each for each in columns)

    def iceberg_fields(self, columns: Sequence[Field]) -> tuple[PartitionField, ...] | None:
        """Return the partition fields of an Iceberg table.

        Several time units of one column would be redundant, so of those in `partitioning` the finest is taken
        (Iceberg: PartitionSpec.checkForRedundantPartitions).
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
        """Return the partition keys of a Hive table, and the folders of its partitions."""
        template = path_template(self.config.path_layout, self.config.partitioning)
        # Columns of other lakes, and those that Athena projects, are strings, as folders have them.
        projected = self.config.catalog_partitions != "register"
        fields = self.hive_fields(columns, digits=projected) if template is None else self._fields_of(template, columns)
        if fields is None:
            return None
        digits = template is not None or projected
        types = {path: type_ for _, path, type_ in _sources((*METADATA_COLUMNS, *self.known, *columns), (), ())}
        keys = [
            PartitionKey(field, key_type(field, types[field.source], digits=digits), types[field.source], projected)
            for field in fields
        ]
        room = MAX_KEY_BYTES - len(S3Address.parse(self.location.folder).key.encode()) - _REST_OF_KEY
        if template is None or not keys:
            return PartitionFolders.hive(keys, room)
        return PartitionFolders.of(template, keys, room)

    def hive_fields(self, columns: Sequence[Field], *, digits: bool) -> tuple[PartitionField, ...] | None:
        """Return the partition keys of a Hive table with `path_layout` hive.

        With `digits`, numbers are padded with zeros to strings.
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
        """Return a field for each variable of a template, in their order."""
        explicit = self._explicit(columns)
        if explicit == []:
            return ()
        if explicit is None and not template.variables:
            return None
        given = {field.name: self._of_calendar(field, digits=True) for field in explicit or ()}
        for name in given:
            if name not in template.variables:
                raise ConfigError(
                    f"streams: partition_by of stream {self.stream.id} has the key {name}, for which path_layout has "
                    f"no folder. Set path_layout to hive, or to a template with the folder {name}={{{name}}}."
                )
        times = [part for part in time_parts(template) if part not in given]
        for name in template.variables:
            if name not in given and name not in times:
                raise ConfigError(
                    f"path_layout has a folder of {{{name}}}, and stream {self.stream.id} no partition key of that "
                    "name. Add it to the partition_by of this stream in streams."
                )
        if times and (source := self._date_source(columns)) is None:
            if given and not self.known:
                raise ConfigError(
                    f"path_layout has a folder of {{{times[0]}}}, and stream {self.stream.id} no date for it. Set "
                    "partition_source to extracted_at."
                )
            return None
        for part in times:
            assert source is not None
            given[part] = PartitionField(part, source.path, self._calendar(part, digits=True))
        fields = [replace(given[name], name=template.key_name(name)) for name in template.variables]
        return _distinct(fields, columns)

    def sort_fields(self, columns: Sequence[Field]) -> tuple[SortField, ...] | None:
        """Return the order of rows within files."""
        given = self.config.of_stream(*self.stream.id).sort_by
        if given is None:
            return None
        fields = []
        for each in given:
            source = self._resolved(each.source, columns, "sort_by", Identity(), "sorted by")
            fields.append(SortField(source.path, each.direction == "ascending", each.nulls == "first"))
        return tuple(fields)

    def _explicit(self, columns: Sequence[Field]) -> list[PartitionField] | None:
        given = self.config.of_stream(*self.stream.id).partition_by
        if given is None:
            return None
        fields = []
        for each in given:
            transform = parse_transform(each.transform)
            what = f"partitioned by its {transform}"
            source = self._resolved(each.source, columns, "partition_by", transform, what)
            fields.append(PartitionField(each.name or self._name(source, transform), source.path, transform))
        return fields

    def _not_permitted(self, name: str, type_: ColumnType, what: str, option: str) -> ConfigError:
        of_iceberg = () if self.config.table_type == "ICEBERG" else ("bucket[N]", "truncate[W]")
        permitted = [each for each in PERMITTED[type(type_)] if option == "partition_by" and each not in of_iceberg]
        remedies = [f"choose {', '.join(permitted)}"] if permitted else []
        if isinstance(type_, Struct):
            remedies.append(f"name a field inside it, such as {name}.{type_.fields[0].source}")
        return ConfigError(
            f"streams: {option} of stream {self.stream.id}: the field {name} is of type {describe_type(type_)} and "
            f"cannot be {what}. To correct that, {' or '.join([*remedies, 'leave the entry out'])}."
        )

    def _name(self, source: Source, transform: Transform) -> str:
        kind = str(transform).partition("[")[0].replace("truncate", "trunc")
        if kind == "identity":
            # Iceberg names such a field like its column. A partition key of Hive is a column beside it.
            return source.label if self.config.table_type == "ICEBERG" else f"{source.label}_key"
        return f"{source.label}_{kind}"

    def _resolved(self, name: str, columns: Sequence[Field], option: str, transform: Transform, what: str) -> Source:
        """Return the column, or the field inside one, that an option names by its key in the records."""
        if name in ("extracted_at", EXTRACTED_AT):
            return _extracted_at()
        sent, known = _named(name, columns), _named(name, self.known)
        fitting = (each for each in (*sent, *known) if permits(transform, each.type))
        source = next(fitting, None)
        if source is None:
            if sent or known:
                raise self._not_permitted(name, (sent or known)[0].type, what, option)
            raise ConfigError(
                f"streams: {option} of stream {self.stream.id} names the field {name}, which the stream does not have. "
                "Correct the name, or leave the entry out."
            )
        if source not in sent:
            _logger.warning(
                "Stream %s has no field %s that rows could be %s any more. In its new rows that is null; all their "
                "values are kept. Correct %s of this stream if another field has taken its place.",
                self.stream.id,
                name,
                what,
                option,
            )
        return source

    def _date_source(self, columns: Sequence[Field]) -> Source | None:
        """Return the column that `partition_source` means if it is a date or a timestamp; otherwise log that."""
        config = self.config
        if config.partition_source in ("extracted_at", EXTRACTED_AT):
            return _extracted_at()
        # A cursor's keys are a path (Airbyte protocol: cursor_field). AWS Datalake took the first that is a date.
        cursor = self.stream.cursor_field
        keys = (".".join(cursor), *cursor) if config.partition_source == "cursor" else (config.partition_source,)
        dates = {".".join(column.path): column for column in columns if isinstance(column.type, Date | Timestamp)}
        found = next((dates[key] for key in keys if key in dates), None)
        if found is None:
            what = "cursor" if config.partition_source == "cursor" else f"field {config.partition_source}"
            _logger.warning(
                "Stream %s is not partitioned: it has no %s that is a date or a date-time. Another partition_source, "
                "such as extracted_at, would do.",
                self.stream.id,
                what,
            )
            return None
        return Source((found.name,), found.type, found.name)

    def _of_calendar(self, field: PartitionField, *, digits: bool) -> PartitionField:
        if not isinstance(field.transform, Since1970):
            return field
        unit = field.transform.unit
        return replace(field, transform=self._calendar("date" if unit == "day" else unit, digits=digits))

    def _calendar(self, part: Part, *, digits: bool) -> CalendarPart:
        width = {"year": 4, "date": 0}.get(part, 2) if digits else 0
        return CalendarPart(part, self.config.timezone, width)


def _sources(
    fields: Sequence[Field], keys: tuple[str, ...], path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], tuple[str, ...], ColumnType]]:
    for field in fields:
        yield (*keys, *field.path), (*path, field.name), field.type
        if isinstance(field.type, Struct):
            yield from _sources(field.type.fields, (*keys, *field.path), (*path, field.name))


def _named(name: str, columns: Sequence[Field]) -> list[Source]:
    return [
        Source(path, type_, "_".join(path)) for keys, path, type_ in _sources(columns, (), ()) if ".".join(keys) == name
    ]


def _extracted_at() -> Source:
    # Without the underscore at the beginning: Hive, Trino and Athena do not look into folders that begin with one.
    type_ = next(column.type for column in METADATA_COLUMNS if column.name == EXTRACTED_AT)
    return Source((EXTRACTED_AT,), type_, "extracted_at")


def _has_name_of_column(field: PartitionField) -> bool:
    """Whether an Iceberg field may have the name of its column (Iceberg spec: partition field names)."""
    return len(field.source) == 1 and isinstance(field.transform, Identity)


def _distinct(
    fields: Sequence[PartitionField],
    columns: Sequence[Field],
    has_name_of_column: Callable[[PartitionField], bool] = lambda _: False,
) -> tuple[PartitionField, ...]:
    """Return the fields with names that neither a column of the table nor another field has.

    In a Hive table they are columns beside the others. A field that `has_name_of_column` may have that of its source.
    """
    taken = {column.name for column in (*METADATA_COLUMNS, *columns)}
    names: set[str] = set()
    result = []
    for field in fields:
        own = field.source if has_name_of_column(field) else ()
        name, number = field.name, 1
        while name in names or (name in taken and name not in own):
            name, number = f"{field.name}_{number}", number + 1
        names.add(name)
        result.append(PartitionField(name, field.source, field.transform))
    return tuple(result)


def misnamed_streams(config: Config, streams: Sequence[StreamId]) -> Iterator[str]:
    """Yield a warning for each entry of `streams` that is for none of a sync's streams: one of another connection.

    Raises ConfigError for one that differs from a stream without an entry only in case and separators: that stream's
    table would be created without what the entry says.
    """
    names = {str(stream).lower(): stream for stream in streams}
    for number, entry in enumerate(config.streams):
        if any(entry.is_for(*stream) for stream in streams):
            continue
        named = StreamId(entry.namespace, entry.stream)
        similar = get_close_matches(str(named).lower(), names, n=1)
        meant = names[similar[0]] if similar else None
        hint = f" Did you mean {meant}?" if meant else ""
        has_entry = meant is not None and any(each.is_for(*meant) for each in config.streams)
        if meant is not None and not has_entry and _letters(meant) == _letters(named):
            raise ConfigError(
                f"streams.{number} names stream {named}, which is not in this sync.{hint} Names are compared exactly: "
                "correct the entry."
            )
        yield (
            f"streams.{number} names stream {named}, which is not in this sync, so its options have no effect.{hint} "
            "Names are compared exactly."
        )


def require_partition_source(
    config: Config, streams: Sequence[Stream], tables: Mapping[StreamId, TableName], catalog: TableCatalog
) -> None:
    """Refuse a field in `partition_source` that is a date in no stream, unless a table exists already.

    A table is partitioned when it is created, one of Hive's for ever. One that exists goes on if its source takes the
    field away. Raises ConfigError.
    """
    source = config.partition_source
    concerned = [stream for stream in streams if config.of_stream(*stream.id).partition_by is None]
    if source in ("cursor", "extracted_at", EXTRACTED_AT) or not concerned or not _partitions_by_time(config):
        return
    dates = {name for stream in concerned for name in _dates(config, stream)}
    if source in dates or any(_exists(tables[stream.id], catalog) for stream in concerned):
        return
    named = ", ".join([*sorted(dates)[:_SHOWN], *(["…"] if len(dates) > _SHOWN else [])])
    hint = f" Fields that are dates: {named}." if dates else ""
    if similar := get_close_matches(source, dates, n=1):
        hint = f" Did you mean {similar[0]}?"
    raise ConfigError(
        f"No stream of this sync has a date or date-time field {source} (partition_source), so no table would be "
        f"partitioned.{hint} Set it to cursor, extracted_at or the name of such a field, or omit partitioning."
    )


def _letters(stream: StreamId) -> str:
    return "".join(letter for letter in str(stream).casefold() if letter.isalnum())


def _partitions_by_time(config: Config) -> bool:
    template = path_template(config.path_layout, config.partitioning)
    return config.partitioning != "NO PARTITIONING" or (template is not None and bool(time_parts(template)))


def _dates(config: Config, stream: Stream) -> Iterator[str]:
    nested, depth = config.nested_of(*stream.id)
    # Of the columns only the fields' own names are used, whatever the table calls them.
    for column in stream_columns(
        stream.json_schema, NumericTypes(config.numeric_types), SNAKE_CASE, Nested(nested), depth
    ):
        if isinstance(column.type, Date | Timestamp):
            yield ".".join(column.path)


def _exists(table: TableName, catalog: TableCatalog) -> bool:
    """Whether a table exists; if the catalog does not say, its answer to the sync's own requests will be told."""
    try:
        return catalog.find(table) is not None
    except Exception:
        return True
