"""Tables that must be left alone, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

_GARBAGE_COLLECTION = "gc.enabled"


class Unmaintained(Exception):
    """A table, or a part of the work on it, is left alone. The text completes "Table … is left alone: "."""


def require_garbage_collection(metadata: TableMetadata) -> None:
    """Raise Unmaintained if the table says that others may use its files (Iceberg: table properties, `gc.enabled`)."""
    if metadata.properties.get(_GARBAGE_COLLECTION, "true").lower() == "false":
        raise Unmaintained(f"its property {_GARBAGE_COLLECTION} is false, so its files may be shared with other tables")
