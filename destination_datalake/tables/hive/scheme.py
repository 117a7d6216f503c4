"""The partitioning of a Hive table, and the checks whether a sync can continue an existing table."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import msgspec

from destination_datalake.aws.objects import S3Address
from destination_datalake.config.tables import CatalogPartitions
from destination_datalake.files.plan import FileFormat, FilePlan
from destination_datalake.partitioning.paths import PartitionFolders, PartitionKey
from destination_datalake.partitioning.projection import InvalidProjection, is_projection, projection
from destination_datalake.partitioning.spec import (
    CalendarPart,
    Part,
    PartitionField,
    Partitioning,
    Transform,
    is_timezone,
    parse_transform,
)
from destination_datalake.partitioning.templates import variables
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.schema.columns import METADATA_COLUMNS, field_at
from destination_datalake.schema.glue import glue_type, parse_glue_type
from destination_datalake.schema.types import ColumnType, Field, String
from destination_datalake.tables.glue.glue_table import STORAGE_FORMATS, TableInput, described, table_location
from destination_datalake.tables.migration import inherited_keys
from destination_datalake.tables.naming import has_ambiguous_folder
from destination_datalake.tables.table import InvalidProperty, TableName, json_property, table_conflict

if TYPE_CHECKING:
    from mypy_boto3_glue.type_defs import ColumnTypeDef

    from destination_datalake.tables.layout import TableLayout


# --- Scheme -----------------------------------------------------------------------------------------------------------
# The partitioning of a Hive table. A table parameter records the partitioning, and every later sync keeps it.
#
# Glue cannot change the partition keys of a table. A sync continues an existing table if the table's keys match the
# options. If the options configure no partitioning, a sync continues a known partitioning: one that this connector has
# recorded, or one whose keys have the names that Airbyte's AWS Datalake destination uses.

_PARAMETER = "airbyte.partitioning"
_OTHER_TABLE = "set another table_prefix"


@dataclass(frozen=True, slots=True)
class PartitionScheme:
    """A table's partition keys, the folders of its partitions, and how engines find the partitions.

    `layout` and `catalog` are the values of the options `path_layout` and `catalog_partitions` when a sync created the
    table.
    """

    folders: PartitionFolders
    layout: str
    catalog: CatalogPartitions

    @property
    def is_by_date(self) -> bool:
        """Whether all partition keys are dates, or parts of dates or times."""
        return all(isinstance(key.field.transform, CalendarPart) for key in self.folders.keys)

    def glue_keys(self) -> list[ColumnTypeDef]:
        """Return the names and types of the partition keys in Glue's format."""
        return [{"Name": key.name, "Type": glue_type(key.type)} for key in self.folders.keys]

    def partitioning(self, max_open: int, named: Sequence[Field], written: Sequence[Field]) -> Partitioning:
        """Return how to partition new files.

        `named` contains the stream's columns under their own names. `written` contains, at the same index, the column
        to which the sync writes the values. The names differ if the sync redirects the values to another column.
        """
        sources = _sources(self.folders.keys, named, written)
        # A key is null if its source column is missing or has an unsuitable type. In this case, set the source to the
        # key's own name, because no column has that name.
        fields = tuple(
            replace(key.field, source=path if type_ is not None and _uses_source(key, path, type_) else (key.name,))
            for key, path, type_ in sources
        )
        return Partitioning(fields, self.folders, max_open)

    def retyped(self, named: Sequence[Field], written: Sequence[Field]) -> list[PartitionKey]:
        """Return the keys that are null in new rows because the type of their source column has changed.

        See `partitioning` for `named` and `written`.
        """
        sources = _sources(self.folders.keys, named, written)
        return [key for key, path, type_ in sources if type_ is not None and not _uses_source(key, path, type_)]

    def count_invalid(self, partitions: Iterable[Sequence[str]]) -> int:
        """Count the partitions with at least one value that is invalid for the key's type.

        `partitions` contains the values of each partition.
        """
        return sum(
            not all(key.holds(text) for key, text in zip(self.folders.keys, values, strict=True))
            for values in partitions
        )

    def project(self, table_input: TableInput, partitions: Collection[Sequence[str]], *, reset: bool) -> None:
        """Add partitions to the table's partition projection.

        Do nothing if the option `catalog_partitions` was `register` when the table was created. `partitions` contains
        the values of each partition. If `reset` is True, remove all other partitions from the projection. Otherwise,
        raises InvalidProperty if the table's parameters are invalid.
        """
        if self.catalog == "register":
            return
        parameters: dict[str, str] = table_input["Parameters"]
        # First remove all parameters of the projection, because a key's parameters depend on its projected type.
        removed = {name: parameters.pop(name) for name in [*parameters] if is_projection(name)}
        known = {} if reset else removed
        today = datetime.now(UTC).date()
        try:
            parameters.update(projection(self.folders, table_location(table_input), partitions, known, today))
        except InvalidProjection as error:
            remedy = (
                "Restore the former value. If it is unknown, set a value that includes all partitions, such as the "
                "range 2020-01-01,NOW for dates, because Athena finds only these partitions."
            )
            raise InvalidProperty(described(table_input), error.parameter, remedy) from error

    def is_equivalent(self, scheme: PartitionScheme) -> bool:
        """Return whether both schemes write rows to the same folders. The names of keys may differ."""
        return self._identity() == scheme._identity()

    def _identity(self) -> object:
        keys = [(key.field.source, key.field.transform, key.null, key.projected) for key in self.folders.keys]
        return keys, self.layout, self.catalog

    def __str__(self) -> str:
        keys = ", ".join(f"{key.name} {glue_type(key.type)}" for key in self.folders.keys)
        return f"({keys}) in folders {self.folders.template}"

    def _details(self) -> str:
        """Describe the properties that may differ between schemes with the same keys and folders."""
        sources = (f"{key.name} is {_described_transform(key)}" for key in self.folders.keys)
        return f"{', '.join(sources)}; path_layout {self.layout}, catalog_partitions {self.catalog}"

    def difference(self, wanted: PartitionScheme) -> tuple[str, str]:
        """Describe this scheme and `wanted` in two strings that differ. The schemes must not be equivalent."""
        if str(self) != str(wanted):
            return str(self), str(wanted)
        return f"{self} ({self._details()})", f"{wanted} ({wanted._details()})"

    # Saved as a table parameter

    def save(self, table_input: TableInput) -> None:
        """Record this scheme as JSON in the table's parameters, so that later syncs continue it."""
        keys = [
            {
                "name": key.name,
                "type": glue_type(key.type),
                "source": list(key.field.source),
                **_transform_as_json(key.field.transform),
                "null": key.null,
                "projected": key.projected,
            }
            for key in self.folders.keys
        ]
        saved = {
            "layout": self.layout,
            "catalog": self.catalog,
            "folders": self.folders.template,
            "max_bytes": self.folders.max_bytes,
            "keys": keys,
        }
        table_input["Parameters"][_PARAMETER] = json.dumps(saved)

    @classmethod
    def recorded(cls, table_input: TableInput, columns: Sequence[Field]) -> Self | None:
        """Return the scheme that a table's parameters record, or None if they record none.

        `columns` are the stream's columns. Their types determine how the connector writes values in folder names.
        Raises InvalidProperty.
        """
        saved = _saved(table_input)
        if saved is None or not table_input.get("PartitionKeys"):
            return None
        try:
            keys = tuple(
                PartitionKey(
                    PartitionField(key.name, key.source, key.saved_transform()),
                    parse_glue_type(key.type) or String(),
                    _type_at(columns, key.source) or String(),
                    key.projected,
                    key.null,
                )
                for key in saved.keys
            )
        except ValueError as error:
            raise InvalidProperty(described(table_input), _PARAMETER) from error
        if sorted(variables(saved.folders)) != sorted(key.name for key in keys):
            raise InvalidProperty(described(table_input), _PARAMETER)
        return cls(PartitionFolders(keys, saved.folders, saved.max_bytes), saved.layout, saved.catalog)


def wanted_scheme(layout: TableLayout, columns: Sequence[Field]) -> PartitionScheme | None:
    """Return the scheme that the options configure for a new table, or None if they configure no partitioning.

    `columns` are the stream's columns. Raises ConfigError in the same cases as `TableLayout.hive_folders`.
    """
    folders = layout.hive_folders(columns)
    if folders is None or not folders.keys:
        return None
    return PartitionScheme(folders, layout.config.path_layout, layout.config.catalog_partitions)


def has_registered_partitions(table_input: TableInput) -> bool:
    """Return whether any reader finds the table's rows through partitions registered in Glue."""
    if not table_input.get("PartitionKeys"):
        return False
    saved = _saved(table_input)
    return saved is None or saved.catalog != "projection"


def _type_at(columns: Sequence[Field], path: Sequence[str]) -> ColumnType | None:
    field = field_at(columns, path)
    return field.type if field is not None else None


def _sources(
    keys: Sequence[PartitionKey], named: Sequence[Field], written: Sequence[Field]
) -> Iterator[tuple[PartitionKey, tuple[str, ...], ColumnType | None]]:
    """Yield each key with the path and the type of its source column in the written data.

    The type is None if the column is missing.
    """
    names = {column.name: written_column.name for column, written_column in zip(named, written, strict=True)}
    for key in keys:
        column, *fields = key.field.source
        path = (names.get(column, column), *fields)
        yield key, path, _type_at((*METADATA_COLUMNS, *written), path)


def _uses_source(key: PartitionKey, path: Sequence[str], type_: ColumnType) -> bool:
    """Return whether a key's values are derived from the column at `path` of the written data.

    If the type of the stream's column has changed, the sync writes the column's values to a column with another name.
    Keys that are parts of dates then use that other column. All other keys stay null, because readers use such a key to
    find the rows with a value in the original column.
    """
    has_original_name = path[0].lower() == key.field.source[0].lower()
    return key.takes(type_) and (has_original_name or isinstance(key.field.transform, CalendarPart))


class _SavedKey(msgspec.Struct, frozen=True):
    """A partition key as `PartitionScheme.save` records it: with a transform, or with a part of a date or time."""

    name: str
    type: str
    source: tuple[str, ...]
    null: str
    projected: bool
    transform: str = ""
    part: Part | None = None
    zone: str = "UTC"
    digits: int = 0

    def saved_transform(self) -> Transform:
        """Return the key's transform. Raises ValueError if the transform or the time zone is unknown."""
        if self.part is None:
            return parse_transform(self.transform)
        if not is_timezone(self.zone):
            raise ValueError(self.zone)
        return CalendarPart(self.part, self.zone, self.digits)


class _SavedScheme(msgspec.Struct, frozen=True):
    layout: str
    catalog: CatalogPartitions
    folders: str
    max_bytes: int
    keys: tuple[_SavedKey, ...]


_SAVED_SCHEME = msgspec.json.Decoder(_SavedScheme)


def _saved(table_input: TableInput) -> _SavedScheme | None:
    return json_property(table_input["Parameters"], _PARAMETER, _SAVED_SCHEME, described(table_input))


def _described_transform(key: PartitionKey) -> str:
    transform = key.field.transform
    zone = f", {transform.zone}" if isinstance(transform, CalendarPart) else ""
    return f"{transform}({'.'.join(key.field.source)}{zone})"


def _transform_as_json(transform: Transform) -> dict[str, str | int]:
    if isinstance(transform, CalendarPart):
        return {"part": transform.part, "zone": transform.zone, "digits": transform.digits}
    return {"transform": str(transform)}


# Existing tables


def scheme_of(
    stream: StreamId,
    table: TableName,
    table_input: TableInput,
    wanted: PartitionScheme | None,
    columns: Sequence[Field],
) -> PartitionScheme | None:
    """Return the partitioning of a stream's existing table, or None if the table is not partitioned.

    `wanted` is the scheme that the options configure, or None. Raises TableConflict if a sync cannot continue the
    table's partitioning.
    """
    conflict = partial(table_conflict, stream, table)
    keys = _names_and_types(table_input.get("PartitionKeys") or ())
    recorded = PartitionScheme.recorded(table_input, (*METADATA_COLUMNS, *columns))
    existing = recorded
    if existing is None and (inherited := inherited_keys(table_input, columns)):
        folders = PartitionFolders.hive([PartitionKey(*key) for key in inherited])
        existing = PartitionScheme(folders, "hive", "register")
    if not keys:
        if wanted is None:
            return None
        raise conflict(
            f"it is not partitioned, but the options configure the partition keys {wanted}. A Hive table cannot be "
            f"partitioned later. Set partitioning to NO PARTITIONING and remove partition_by, or {_OTHER_TABLE}"
        )
    # Athena ignores registered partitions if projection is enabled.
    projected = table_input["Parameters"].get("projection.enabled", "").lower() == "true"
    if projected and recorded is None:
        raise conflict(
            "its parameter projection.enabled is true, but this connector did not set the parameter. Athena would "
            f"read only the partitions of that projection and miss new rows. Remove the parameter, or {_OTHER_TABLE}"
        )
    if recorded is not None and _names_and_types(recorded.glue_keys()) != keys:
        raise conflict(
            f"its partition keys are {_as_text(keys)}, but its parameters record {recorded}. Another program has "
            f"probably recreated the table. {_OTHER_TABLE.capitalize()}"
        )
    if wanted is None:
        if existing is None:
            raise conflict(
                f"it is partitioned by {_as_text(keys)}, but the options do not define these keys. Set partitioning, "
                f"partition_source and partition_by to define these keys, or {_OTHER_TABLE}"
            )
        return existing
    if existing is not None and existing.is_equivalent(wanted):
        return existing
    if existing is None and _names_and_types(wanted.glue_keys()) == keys:
        return wanted
    present, configured = existing.difference(wanted) if existing is not None else (_as_text(keys), str(wanted))
    raise conflict(
        f"it is partitioned by {present}, but the options configure {configured}. The partition keys, folders and "
        "time zone of a Hive table cannot be changed. Restore partitioning, partition_source, partition_by, nested, "
        "path_layout, catalog_partitions and timezone, set partitioning to NO PARTITIONING to keep the table's "
        f"partitions, or {_OTHER_TABLE}"
    )


def _names_and_types(keys: Sequence[Mapping[str, Any] | ColumnTypeDef]) -> list[tuple[str, str]]:
    return [(key["Name"].lower(), key.get("Type", "").lower()) for key in keys]


def _as_text(keys: Sequence[tuple[str, str]]) -> str:
    return f"({', '.join(f'{name} {type_}' for name, type_ in keys)})"


# --- Compatibility ----------------------------------------------------------------------------------------------------
# Check whether files of a format can be added to an existing Hive table. Each rule detects one incompatibility, and
# returns a problem with a remedy.


WIDENED_IN_PLACE: frozenset[FileFormat] = frozenset({"jsonl"})
"""File formats whose existing files stay unchanged when a sync widens a column.

Numbers in JSON text have no width. The connector rewrites Parquet files, because some engines cannot read a 32-bit
column if the catalog declares 64 bits.
"""

_INPUT_FORMATS: Mapping[FileFormat, tuple[str, ...]] = {
    "parquet": (STORAGE_FORMATS["parquet"].input_format, "parquet.hive.DeprecatedParquetInputFormat"),
    "jsonl": (STORAGE_FORMATS["jsonl"].input_format,),
}
"""The input formats of Hive that can read files of each format."""

_REMEDY = "Set another table_prefix"


def incompatibility(table_input: TableInput, plan: FilePlan) -> str | None:
    """Return why files of the plan's format cannot be added to the table, with a remedy, or None if they can.

    The connector can add files if every engine that reads the table finds the new files and returns their values
    unchanged.
    """
    return next((problem for rule in _RULES if (problem := rule(table_input, plan)) is not None), None)


def _link_or_view(table_input: TableInput, _plan: FilePlan) -> str | None:
    if target := table_input.get("TargetTable"):
        names = f"{target.get('DatabaseName')}.{target.get('Name')}"
        return (
            f"it is a resource link (TargetTable) to table {names}. Set glue_catalog_id and "
            "lakeformation_database_name to the catalog and database of that table"
        )
    kind = table_input.get("TableType", "")
    if "VIEW" in kind.upper():
        return f"it is a view (TableType {kind}). {_REMEDY}"
    if kind.upper() == "GOVERNED":
        return f"it is a governed table (TableType GOVERNED), which AWS has retired. {_REMEDY}"
    return None


def _other_table_format(table_input: TableInput, _plan: FilePlan) -> str | None:
    parameters = table_input["Parameters"]
    if kind := parameters.get("table_type", ""):
        if kind.upper() == "ICEBERG":
            return "it is an Iceberg table, but table_type is HIVE. Set table_type to ICEBERG"
        return f"its parameter table_type is {kind}, so engines read only files that the table's log lists. {_REMEDY}"
    if provider := parameters.get("spark.sql.sources.provider", ""):
        return (
            f"its parameter spark.sql.sources.provider is {provider}, so Spark reads the table's columns and location "
            "from other parameters, which this connector does not update. Recreate the table with CREATE TABLE ... "
            "STORED AS"
        )
    if parameters.get("transactional", "").lower() == "true":
        return f"its parameter transactional is true, so only Hive transactions may add files to the table. {_REMEDY}"
    return None


def _other_file_format(table_input: TableInput, plan: FilePlan) -> str | None:
    descriptor = table_input.get("StorageDescriptor", {})
    serde = descriptor.get("SerdeInfo", {}).get("SerializationLibrary", "")
    # Compare only the class name, because the same SerDe has several packages.
    if serde.rpartition(".")[2] != STORAGE_FORMATS[plan.format].serialization_library.rpartition(".")[2]:
        return f"its SerDe ({serde or 'not set'}) cannot read {plan.format} files. Restore the earlier format_type"
    input_format = descriptor.get("InputFormat", "")
    if input_format and input_format not in _INPUT_FORMATS[plan.format]:
        return f"its InputFormat ({input_format}) cannot read {plan.format} files. {_REMEDY}"
    return None


def _misread_properties(table_input: TableInput, plan: FilePlan) -> str | None:
    serde = table_input.get("StorageDescriptor", {}).get("SerdeInfo", {}).get("Parameters") or {}
    properties = {key.lower(): value for scope in (table_input["Parameters"], serde) for key, value in scope.items()}
    misread = _MISREAD_PROPERTIES[plan.format]
    for key, value in sorted(properties.items()):
        if any(key.startswith(prefix) and applies(value) for prefix, applies in misread.items()):
            return f"its property {key} is {value}, so engines would misread new files. Remove that property"
    return None


def _buckets(table_input: TableInput, _plan: FilePlan) -> str | None:
    descriptor = table_input["StorageDescriptor"]
    if buckets := descriptor.get("BucketColumns"):
        return f"it is bucketed by {', '.join(buckets)} (BucketColumns), which is not supported. {_REMEDY}"
    if descriptor.get("StoredAsSubDirectories"):
        return (
            f"it stores skewed values in separate folders (StoredAsSubDirectories), which is not supported. {_REMEDY}"
        )
    return None


def _unusable_location(table_input: TableInput, _plan: FilePlan) -> str | None:
    location = table_input["StorageDescriptor"].get("Location", "")
    if not location:
        return "it has no location. Set a location in the Glue Data Catalog"
    try:
        folder = S3Address.parse(location).key.removesuffix("/")
    except ValueError:
        return f"its location {location} is not in S3. {_REMEDY}"
    if not folder:
        return (
            f"its location {location} is a whole bucket, so engines read all objects in the bucket as rows. {_REMEDY}"
        )
    if has_ambiguous_folder(folder):
        return (
            f"its location {location} contains an empty folder name, or the folder name . or .., which engines "
            f"resolve differently. {_REMEDY}"
        )
    return None


_MISREAD_PROPERTIES: Mapping[FileFormat, Mapping[str, Callable[[str], bool]]] = {
    # With this property, engines read columns by position. This connector writes columns in the order of the stream.
    "parquet": {"parquet.column.index.access": lambda value: value.lower() == "true"},
    # With these properties, engines skip lines, read columns from other keys, or expect timestamps that are not ISO
    # 8601.
    "jsonl": {
        "skip.header.line.count": lambda value: value != "0",
        "skip.footer.line.count": lambda value: value != "0",
        "mapping.": lambda _: True,
        "timestamp.formats": lambda _: True,
    },
}
"""For each file format, the properties of a table or its SerDe with which engines may misread files.

The keys are lower-case prefixes of property names. Each function returns whether a property's value may cause misreads.
"""

_RULES: tuple[Callable[[TableInput, FilePlan], str | None], ...] = (
    _link_or_view,
    _other_table_format,
    _other_file_format,
    _misread_properties,
    _unusable_location,
    _buckets,
)
