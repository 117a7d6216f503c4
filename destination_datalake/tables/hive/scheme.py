"""The partitioning scheme of a Hive table, and which existing tables a sync can continue."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from destination_datalake.aws.objects import S3Address
from destination_datalake.files.plan import FileFormat, FilePlan
from destination_datalake.partitioning.paths import PartitionFolders, PartitionKey
from destination_datalake.partitioning.projection import is_projection, projection
from destination_datalake.partitioning.spec import (
    CalendarPart,
    PartitionField,
    Partitioning,
    Transform,
    parse_transform,
)
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.schema.columns import METADATA_COLUMNS, field_at
from destination_datalake.schema.glue import glue_type, parse_glue_type
from destination_datalake.schema.types import ColumnType, Field, String
from destination_datalake.tables.glue.glue_table import STORAGE_FORMATS, TableInput, table_location
from destination_datalake.tables.migration import inherited_keys
from destination_datalake.tables.naming import has_ambiguous_folder
from destination_datalake.tables.table import TableName, table_conflict

if TYPE_CHECKING:
    from mypy_boto3_glue.type_defs import ColumnTypeDef

    from destination_datalake.config.tables import CatalogPartitions
    from destination_datalake.tables.layout import TableLayout


# --- Scheme -----------------------------------------------------------------------------------------------------------
# What a Hive table is partitioned by: recorded in a parameter of its Glue entry, and continued by every later sync.
#
# The partition keys of a table cannot be changed. An existing table is continued if its keys are those that the options
# mean, or, with options that mean none, in its own way if that is known: this connector records it, and the keys of
# Airbyte's AWS Datalake destination have telling names.

_PARAMETER = "airbyte.partitioning"
_OTHER_TABLE = "set another table_prefix"


@dataclass(frozen=True, slots=True)
class PartitionScheme:
    """The partition keys of a table, the folders of its partitions, and how the catalog knows them.

    `layout` is the option `path_layout` by which the folders were chosen.
    """

    folders: PartitionFolders
    layout: str
    catalog: CatalogPartitions

    @property
    def is_by_date(self) -> bool:
        """Whether all values of partitions are dates and times, or parts of them."""
        return all(isinstance(key.field.transform, CalendarPart) for key in self.folders.keys)

    def glue_keys(self) -> list[ColumnTypeDef]:
        """Return the partition keys of the Glue table."""
        return [{"Name": key.name, "Type": glue_type(key.type)} for key in self.folders.keys]

    def partitioning(self, max_open: int, named: Sequence[Field], written: Sequence[Field]) -> Partitioning:
        """Return how files are written. Columns `named` by the stream are `written` under perhaps other names."""
        sources = _sources(self.folders.keys, named, written)
        # What the stream does not have, or as another type by now, is null: no column has the name of a key.
        fields = tuple(
            replace(key.field, source=path if type_ is not None and _is_taken(key, path, type_) else (key.name,))
            for key, path, type_ in sources
        )
        return Partitioning(fields, self.folders, max_open)

    def retyped(self, named: Sequence[Field], written: Sequence[Field]) -> list[PartitionKey]:
        """Return the keys that are null in new rows because their source has another type by now."""
        sources = _sources(self.folders.keys, named, written)
        return [key for key, path, type_ in sources if type_ is not None and not _is_taken(key, path, type_)]

    def misfits(self, partitions: Iterable[Sequence[str]]) -> int:
        """Return how many partitions, given by their values, have one that is none of its key's type."""
        return sum(
            not all(key.holds(text) for key, text in zip(self.folders.keys, values, strict=True))
            for values in partitions
        )

    def project(self, table_input: TableInput, partitions: Collection[Sequence[str]], *, anew: bool) -> None:
        """Let Athena look for partitions, given by their values, if the table has a projection; `anew`: for no others.

        Does nothing for a table whose partitions are only registered.
        """
        if self.catalog == "register":
            return
        parameters: dict[str, str] = table_input["Parameters"]
        # All are removed: those of a key depend on the type of its projection.
        before = {name: parameters.pop(name) for name in [*parameters] if is_projection(name)}
        known = {} if anew else before
        today = datetime.now(UTC).date()
        parameters.update(projection(self.folders, table_location(table_input), partitions, known, today))

    def means_the_same(self, other: PartitionScheme) -> bool:
        """Whether rows go to the same folders, whatever the keys are called."""
        return self._meaning() == other._meaning()

    def _meaning(self) -> object:
        keys = [(each.field.source, each.field.transform, each.null, each.projected) for each in self.folders.keys]
        return keys, self.layout, self.catalog

    def __str__(self) -> str:
        keys = ", ".join(f"{each.name} {glue_type(each.type)}" for each in self.folders.keys)
        return f"({keys}) in folders {self.folders.template}"

    def _options(self) -> str:
        """Return what the options mean that may differ between schemes with the same keys and folders."""
        sources = (f"{each.name} is {_described_transform(each)}" for each in self.folders.keys)
        return f"{', '.join(sources)}; path_layout {self.layout}, catalog_partitions {self.catalog}"

    def difference(self, other: PartitionScheme) -> tuple[str, str]:
        """Return this scheme and another one, that means something else, as texts that differ."""
        if str(self) != str(other):
            return str(self), str(other)
        return f"{self} ({self._options()})", f"{other} ({other._options()})"

    # As a parameter

    def save(self, table_input: TableInput) -> None:
        """Record the scheme in a table's parameters."""
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
        """Return the scheme that a table's parameters record; None if they record none.

        `columns` are the stream's, whose types decide how values are written as text.
        """
        saved = _saved(table_input)
        if not saved or not table_input.get("PartitionKeys"):
            return None
        keys = tuple(
            PartitionKey(
                PartitionField(key["name"], tuple(key["source"]), _transform_from_json(key)),
                parse_glue_type(key["type"]) or String(),
                _type_at(columns, key["source"]) or String(),
                key["projected"],
                key["null"],
            )
            for key in saved["keys"]
        )
        return cls(PartitionFolders(keys, saved["folders"], saved["max_bytes"]), saved["layout"], saved["catalog"])


def wanted_scheme(layout: TableLayout, columns: Sequence[Field]) -> PartitionScheme | None:
    """Return how the options mean a new table to be partitioned; None if they leave it unpartitioned.

    `columns` are the stream's. Raises ConfigError as `TableLayout.hive_folders`.
    """
    folders = layout.hive_folders(columns)
    if folders is None or not folders.keys:
        return None
    return PartitionScheme(folders, layout.config.path_layout, layout.config.catalog_partitions)


def has_registered_partitions(table_input: TableInput) -> bool:
    """Whether readers find the table's rows by the partitions registered for it, or some of them do."""
    return bool(table_input.get("PartitionKeys")) and _saved(table_input).get("catalog") != "projection"


def _type_at(columns: Sequence[Field], path: Sequence[str]) -> ColumnType | None:
    found = field_at(columns, path)
    return found.type if found is not None else None


def _sources(
    keys: Sequence[PartitionKey], named: Sequence[Field], written: Sequence[Field]
) -> Iterator[tuple[PartitionKey, tuple[str, ...], ColumnType | None]]:
    """Yield each key with the path of its source among the columns written, and the type there; None if none is."""
    names = {column.name: other.name for column, other in zip(named, written, strict=True)}
    for key in keys:
        first, *inside = key.field.source
        path = (names.get(first, first), *inside)
        yield key, path, _type_at((*METADATA_COLUMNS, *written), path)


def _is_taken(key: PartitionKey, path: Sequence[str], type_: ColumnType) -> bool:
    """Whether a key has the values at a path of the columns written.

    Only a part of the date follows its source into the column of another type: any other key has the text of the value,
    by which readers look for rows whose column has that value.
    """
    is_own = path[0].lower() == key.field.source[0].lower()
    return key.takes(type_) and (is_own or isinstance(key.field.transform, CalendarPart))


def _saved(table_input: TableInput) -> Mapping[str, Any]:
    saved: Mapping[str, Any] = json.loads(table_input["Parameters"].get(_PARAMETER, "{}"))
    return saved


def _described_transform(key: PartitionKey) -> str:
    transform = key.field.transform
    zone = f", {transform.zone}" if isinstance(transform, CalendarPart) else ""
    return f"{transform}({'.'.join(key.field.source)}{zone})"


def _transform_as_json(transform: Transform) -> dict[str, str | int]:
    if isinstance(transform, CalendarPart):
        return {"part": transform.part, "zone": transform.zone, "digits": transform.digits}
    return {"transform": str(transform)}


def _transform_from_json(saved: Mapping[str, Any]) -> Transform:
    if "part" in saved:
        return CalendarPart(saved["part"], saved["zone"], saved["digits"])
    return parse_transform(saved["transform"])


# Existing tables


def scheme_of(
    stream: StreamId,
    table: TableName,
    table_input: TableInput,
    wanted: PartitionScheme | None,
    columns: Sequence[Field],
) -> PartitionScheme | None:
    """Return how the rows of a stream are partitioned in an existing table; None if they are not.

    `wanted` is what the options mean, None if they leave it to the table. Raises TableConflict.
    """
    conflict = partial(table_conflict, stream, table)
    keys = _described(table_input.get("PartitionKeys") or ())
    recorded = PartitionScheme.recorded(table_input, (*METADATA_COLUMNS, *columns))
    own = recorded
    if own is None and (inherited := inherited_keys(table_input, columns)):
        own = PartitionScheme(PartitionFolders.hive([PartitionKey(*each) for each in inherited]), "hive", "register")
    if not keys:
        if wanted is None:
            return None
        raise conflict(
            f"it is not partitioned, and the options mean the partition keys {wanted}. A Hive table cannot be "
            f"partitioned later. Set partitioning to NO PARTITIONING and leave partition_by out, or {_OTHER_TABLE}"
        )
    projected = table_input["Parameters"].get("projection.enabled", "").lower() == "true"
    if projected and recorded is None:
        raise conflict(
            "its parameter projection.enabled is true, and this connector has not set it: Athena would find rows only "
            f"where that projection says. Remove that parameter, or {_OTHER_TABLE}"
        )
    if recorded is not None and _described(recorded.glue_keys()) != keys:
        raise conflict(
            f"its partition keys are {_shown(keys)}, while its parameters record {recorded}: somebody has created it "
            f"again. {_OTHER_TABLE.capitalize()}"
        )
    if wanted is None:
        if own is None:
            raise conflict(
                f"it is partitioned by {_shown(keys)}, and the options do not say what these are made of. Set "
                f"partitioning, partition_source and partition_by to what they mean, or {_OTHER_TABLE}"
            )
        return own
    if own is not None and own.means_the_same(wanted):
        return own
    if own is None and _described(wanted.glue_keys()) == keys:
        return wanted
    found, meant = own.difference(wanted) if own is not None else (_shown(keys), str(wanted))
    raise conflict(
        f"it is partitioned by {found}, and the options mean {meant}. A Hive table's partition keys, folders and time "
        "zone cannot be changed. Set partitioning, partition_source, partition_by, nested, path_layout, "
        "catalog_partitions and timezone as they were, partitioning to NO PARTITIONING to continue it as it is, or "
        f"{_OTHER_TABLE}"
    )


def _described(keys: Sequence[Mapping[str, Any] | ColumnTypeDef]) -> list[tuple[str, str]]:
    return [(key["Name"].lower(), key.get("Type", "").lower()) for key in keys]


def _shown(keys: Sequence[tuple[str, str]]) -> str:
    return f"({', '.join(f'{name} {type_}' for name, type_ in keys)})"


# --- Compatibility ----------------------------------------------------------------------------------------------------
# Which existing Hive tables can take files of a format: a rule for each incompatibility, with its remedy.


WIDENED_IN_PLACE: frozenset[FileFormat] = frozenset({"jsonl"})
"""Formats whose existing files need not be rewritten when a column becomes wider.

JSON text has no widths. Of Parquet, not every engine reads a 32-bit column where the catalog promises 64 bits.
"""

_INPUT_FORMATS: Mapping[FileFormat, tuple[str, ...]] = {
    "parquet": (STORAGE_FORMATS["parquet"].input_format, "parquet.hive.DeprecatedParquetInputFormat"),
    "jsonl": (STORAGE_FORMATS["jsonl"].input_format,),
}
"""The input formats that read files of a format."""

_REMEDY = "Set another table_prefix"


def incompatibility(table_input: TableInput, plan: FilePlan) -> str | None:
    """Return why files of the plan's format cannot be added to the table, and the remedy; None if they can.

    A table is compatible only if every engine that reads it finds the new files and reads their values unchanged.
    """
    return next((problem for rule in _RULES if (problem := rule(table_input, plan)) is not None), None)


def _link_or_view(table_input: TableInput, _plan: FilePlan) -> str | None:
    if target := table_input.get("TargetTable"):
        names = f"{target.get('DatabaseName')}.{target.get('Name')}"
        return (
            f"it is a resource link (TargetTable) to {names}. "
            "Write to that table: set glue_catalog_id and lakeformation_database_name to where it is"
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
            return "it is an Iceberg table and table_type is HIVE. Set table_type to ICEBERG"
        return f"its parameter table_type is {kind}: only files in that format's log are read. {_REMEDY}"
    if provider := parameters.get("spark.sql.sources.provider", ""):
        return (
            f"its parameter spark.sql.sources.provider is {provider}: Spark reads columns and location of such a table "
            f"from parameters of its own. Make it again with CREATE TABLE ... STORED AS"
        )
    if parameters.get("transactional", "").lower() == "true":
        return f"its parameter transactional is true: only Hive's transactions may add files to it. {_REMEDY}"
    return None


def _other_file_format(table_input: TableInput, plan: FilePlan) -> str | None:
    descriptor = table_input.get("StorageDescriptor", {})
    serde = descriptor.get("SerdeInfo", {}).get("SerializationLibrary", "")
    if serde.rpartition(".")[2] != STORAGE_FORMATS[plan.format].serialization_library.rpartition(".")[2]:
        return f"its files are read by {serde or 'no SerDe'}, not as {plan.format}. Set format_type as it was"
    found = descriptor.get("InputFormat", "")
    if found and found not in _INPUT_FORMATS[plan.format]:
        return f"its InputFormat is {found}, which would not find or not read new {plan.format} files. {_REMEDY}"
    return None


def _misread_properties(table_input: TableInput, plan: FilePlan) -> str | None:
    serde = table_input.get("StorageDescriptor", {}).get("SerdeInfo", {}).get("Parameters") or {}
    properties = {key.lower(): value for scope in (table_input["Parameters"], serde) for key, value in scope.items()}
    misread = _MISREAD_PROPERTIES[plan.format]
    for key, value in sorted(properties.items()):
        if any(key.startswith(prefix) and applies(value) for prefix, applies in misread.items()):
            return f"its property {key} is {value}, with which new files would be misread. Remove that property"
    return None


def _buckets(table_input: TableInput, _plan: FilePlan) -> str | None:
    descriptor = table_input["StorageDescriptor"]
    if buckets := descriptor.get("BucketColumns"):
        return f"it is bucketed by {', '.join(buckets)} (BucketColumns), which this version does not write. {_REMEDY}"
    if descriptor.get("StoredAsSubDirectories"):
        return f"its skewed values have folders of their own (StoredAsSubDirectories). {_REMEDY}"
    return None


def _unusable_location(table_input: TableInput, _plan: FilePlan) -> str | None:
    location = table_input["StorageDescriptor"].get("Location", "")
    if not location:
        return "it has no location. Give it one"
    try:
        folder = S3Address.parse(location).key.removesuffix("/")
    except ValueError:
        return f"its location {location} is not in S3. {_REMEDY}"
    if not folder:
        return f"its location {location} is a whole bucket, of which everything is read as its rows. {_REMEDY}"
    if has_ambiguous_folder(folder):
        return (
            f"its location {location} has a folder without a name, or one called . or .., which engines read "
            f"differently. {_REMEDY}"
        )
    return None


_MISREAD_PROPERTIES: Mapping[FileFormat, Mapping[str, Callable[[str], bool]]] = {
    # Columns by position, while ours are in the order of the stream.
    "parquet": {"parquet.column.index.access": lambda value: value.lower() == "true"},
    # Lines are skipped, keys are mapped to other columns, timestamps are parsed as other texts than ISO 8601.
    "jsonl": {
        "skip.header.line.count": lambda value: value != "0",
        "skip.footer.line.count": lambda value: value != "0",
        "mapping.": lambda _: True,
        "timestamp.formats": lambda _: True,
    },
}
"""Prefixes of properties of a table or its SerDe, in lower case, and the values with which files are misread."""

_RULES: tuple[Callable[[TableInput, FilePlan], str | None], ...] = (
    _link_or_view,
    _other_table_format,
    _other_file_format,
    _misread_properties,
    _unusable_location,
    _buckets,
)
