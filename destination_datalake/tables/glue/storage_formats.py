"""How engines read a table's files, in the terms of Glue's storage descriptor (StorageDescriptor, SerDeInfo)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from destination_datalake.files.plan import FileFormat


@dataclass(frozen=True, slots=True)
class StorageFormat:
    """Hive's classes for a file format, the SerDe's parameters, and what Glue's crawlers call the format."""

    classification: str
    input_format: str
    output_format: str
    serialization_library: str
    serde_parameters: Mapping[str, str]


STORAGE_FORMATS: Mapping[FileFormat, StorageFormat] = {
    "parquet": StorageFormat(
        classification="parquet",
        input_format="org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat",
        output_format="org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat",
        serialization_library="org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe",
        serde_parameters={"serialization.format": "1"},
    ),
    "jsonl": StorageFormat(
        classification="json",
        input_format="org.apache.hadoop.mapred.TextInputFormat",
        output_format="org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat",
        serialization_library="org.openx.data.jsonserde.JsonSerDe",
        serde_parameters={},
    ),
}
