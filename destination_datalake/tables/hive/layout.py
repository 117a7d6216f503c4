"""What a file format means for a Hive table that is there: whether it can take such files, and wider columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from destination_datalake.aws.address import S3Address
from destination_datalake.files.plan import FileFormat, FilePlan
from destination_datalake.tables.glue.glue_table import TableInput
from destination_datalake.tables.glue.storage_formats import STORAGE_FORMATS
from destination_datalake.tables.location import has_ambiguous_folder

PROMOTED_IN_PLACE: frozenset[FileFormat] = frozenset({"jsonl"})
"""Formats whose old files can stay under a wider column.

JSON text has no widths. Of Parquet, not every engine reads a 32-bit column where the catalog promises 64 bits.
"""

_INPUT_FORMATS: Mapping[FileFormat, tuple[str, ...]] = {
    "parquet": (STORAGE_FORMATS["parquet"].input_format, "parquet.hive.DeprecatedParquetInputFormat"),
    "jsonl": (STORAGE_FORMATS["jsonl"].input_format,),
}
"""Input formats with which engines find a format's files."""

_ELSE = "Set another table_prefix"


def obstacle(entry: TableInput, plan: FilePlan) -> str | None:
    """Say why files of the plan's format cannot be put into this table, and what to set; None if they can.

    A table is accepted only if every engine that reads it will find the new files, and read them as they are meant.
    """
    return next((problem for rule in _RULES if (problem := rule(entry, plan)) is not None), None)


def _is_no_table(entry: TableInput, _plan: FilePlan) -> str | None:
    if target := entry.get("TargetTable"):
        names = f"{target.get('DatabaseName')}.{target.get('Name')}"
        return (
            f"it is a resource link (TargetTable) to {names}. "
            "Write to that table: set glue_catalog_id and lakeformation_database_name to where it is"
        )
    kind = entry.get("TableType", "")
    if "VIEW" in kind.upper():
        return f"it is a view (TableType {kind}). {_ELSE}"
    if kind.upper() == "GOVERNED":
        return f"it is a governed table (TableType GOVERNED), which AWS has retired. {_ELSE}"
    return None


def _is_of_another_kind(entry: TableInput, _plan: FilePlan) -> str | None:
    parameters = entry["Parameters"]
    if kind := parameters.get("table_type", ""):
        if kind.upper() == "ICEBERG":
            return "it is an Iceberg table and table_type is HIVE. Set table_type to ICEBERG"
        return f"its parameter table_type is {kind}, and files that are not in that format's log are not read. {_ELSE}"
    if provider := parameters.get("spark.sql.sources.provider", ""):
        return (
            f"its parameter spark.sql.sources.provider is {provider}: Spark reads columns and location of such a table "
            f"from parameters of its own. Make it again with CREATE TABLE ... STORED AS"
        )
    if parameters.get("transactional", "").lower() == "true":
        return f"its parameter transactional is true: only Hive's transactions may add files to it. {_ELSE}"
    return None


def _has_other_files(entry: TableInput, plan: FilePlan) -> str | None:
    storage = entry.get("StorageDescriptor", {})
    serde = storage.get("SerdeInfo", {}).get("SerializationLibrary", "")
    if serde.rpartition(".")[2] != STORAGE_FORMATS[plan.format].serialization_library.rpartition(".")[2]:
        return f"its files are read by {serde or 'no SerDe'}, not as {plan.format}. Set format_type as it was"
    found = storage.get("InputFormat", "")
    if found and found not in _INPUT_FORMATS[plan.format]:
        return f"its InputFormat is {found}, which would not find or not read new {plan.format} files. {_ELSE}"
    return None


def _reads_them_otherwise(entry: TableInput, plan: FilePlan) -> str | None:
    serde = entry.get("StorageDescriptor", {}).get("SerdeInfo", {}).get("Parameters") or {}
    said = {**{key.lower(): value for scope in (entry["Parameters"], serde) for key, value in scope.items()}}
    for key, value in sorted(said.items()):
        if any(key.startswith(name) and matters(value) for name, matters in _MEANINGS[plan.format].items()):
            return f"its property {key} is {value}, with which new files would be misread. Remove that property"
    return None


def _distributes_them(entry: TableInput, _plan: FilePlan) -> str | None:
    storage = entry["StorageDescriptor"]
    if entry.get("PartitionKeys"):
        return "it is partitioned, which this version does not write. Choose a table without partition keys"
    if buckets := storage.get("BucketColumns"):
        return f"it is bucketed by {', '.join(buckets)} (BucketColumns), which this version does not write. {_ELSE}"
    if storage.get("StoredAsSubDirectories"):
        return f"its skewed values have folders of their own (StoredAsSubDirectories). {_ELSE}"
    return None


def _lies_where_nobody_can_write(entry: TableInput, _plan: FilePlan) -> str | None:
    location = entry["StorageDescriptor"].get("Location", "")
    if not location:
        return "it has no location. Give it one"
    try:
        folder = S3Address.parse(location).key.removesuffix("/")
    except ValueError:
        return f"its location {location} is not in S3. {_ELSE}"
    if not folder:
        return f"its location {location} is a whole bucket, of which everything is read as its rows. {_ELSE}"
    if has_ambiguous_folder(folder):
        return (
            f"its location {location} has a folder without a name, or one called . or .., which engines read "
            f"differently. {_ELSE}"
        )
    return None


def _is_true(value: str) -> bool:
    return value.lower() == "true"


def _is_not_zero(value: str) -> bool:
    return value != "0"


def _is_any(_value: str) -> bool:
    return True


_MEANINGS: Mapping[FileFormat, Mapping[str, Callable[[str], bool]]] = {
    # Columns by position: ours are in the order of the stream.
    "parquet": {"parquet.column.index.access": _is_true},
    # Lines left out, other keys than the columns' names, other texts than ISO 8601.
    "jsonl": {
        "skip.header.line.count": _is_not_zero,
        "skip.footer.line.count": _is_not_zero,
        "mapping.": _is_any,
        "timestamp.formats": _is_any,
    },
}
"""Beginnings of properties of a table or its SerDe, in lower case, with which our files mean something else."""

_RULES: tuple[Callable[[TableInput, FilePlan], str | None], ...] = (
    _is_no_table,
    _is_of_another_kind,
    _has_other_files,
    _reads_them_otherwise,
    _lies_where_nobody_can_write,
    _distributes_them,
)
