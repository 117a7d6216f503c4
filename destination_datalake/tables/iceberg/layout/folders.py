"""The folder of a partition's files. Readers find files by their manifests: names are for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from destination_datalake.partitioning.spec import PartitionField, PartitionValue


@dataclass(frozen=True, slots=True)
class IcebergPath:
    """Folders such as `ts_day=18262/region=eu`."""

    fields: tuple[PartitionField, ...]

    def folder(self, values: Sequence[PartitionValue]) -> str:
        """Return the folder of the partition with these values."""
        pairs = zip(self.fields, values, strict=True)
        return "/".join(f"{quote(field.name, '')}={quote(str(value), '')}" for field, value in pairs)
