"""Which existing Hive tables can take files of a format: a rule for each incompatibility, with its remedy."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from destination_datalake.aws.address import S3Address
from destination_datalake.files.plan import FileFormat, FilePlan
from destination_datalake.tables.glue.glue_table import STORAGE_FORMATS, TableInput
from destination_datalake.tables.location import has_ambiguous_folder

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
