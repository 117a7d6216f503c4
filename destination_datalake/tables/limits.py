"""Limits of a table's columns: the option `max_columns`, and those of the Glue Data Catalog."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from destination_datalake.protocol.catalog import StreamId
from destination_datalake.schema.glue import glue_type
from destination_datalake.schema.names import METADATA_NAMES
from destination_datalake.schema.types import ColumnType
from destination_datalake.tables.table import TableConflict, TableName, cannot_write

if TYPE_CHECKING:
    from destination_datalake.config.options import Config

MAX_TYPE_BYTES = 131_072
"""The longest type of a column (Glue API: Column). Glue has the columns of Iceberg tables, too."""

HIGHEST_MAX_COLUMNS = 10_000
"""The highest `max_columns`."""

_SHOWN = 3


@dataclass(frozen=True, slots=True)
class ColumnLimits:
    """How many columns of its own a stream's table may have, and what makes fewer of them."""

    max_columns: int
    flattened: bool

    @classmethod
    def of(cls, config: Config, stream: StreamId) -> Self:
        """Return the limits that the options configure for a stream."""
        nested, _ = config.nested_of(*stream)
        return cls(config.max_columns, nested == "flatten")

    def require(
        self,
        stream: StreamId,
        table: TableName,
        before: Mapping[str, ColumnType | None],
        after: Mapping[str, ColumnType | None],
    ) -> None:
        """Raise TableConflict if the columns that the table would get exceed a limit.

        `before` and `after` have the table's columns; the metadata columns do not count. A table that is beyond the
        limits already is not refused as long as its columns stay as they are.
        """
        if problem := next(self._problems(before, after), None):
            raise TableConflict(cannot_write(stream, table, problem))

    def _problems(
        self, before: Mapping[str, ColumnType | None], after: Mapping[str, ColumnType | None]
    ) -> Iterator[str]:
        own = [name for name in after if name not in METADATA_NAMES]
        added = sum(name not in before for name in own)
        if added and len(own) > self.max_columns:
            count = f"{len(own):,} columns" if added == len(own) else f"{len(own):,} columns, {added:,} of them new"
            yield f"it would have {count}, and max_columns is {self.max_columns:,}. {self._fewer()}"
        changed = (name for name, type_ in after.items() if type_ is not None and before.get(name) != type_)
        long = [name for name in changed if _glue_bytes(after[name]) > MAX_TYPE_BYTES]
        if long:
            shown = ", ".join(long[:_SHOWN]) + (f" and {len(long) - _SHOWN} more" if len(long) > _SHOWN else "")
            yield (
                f"the type of column {shown} would be longer than the {MAX_TYPE_BYTES:,} bytes that the Glue Data "
                "Catalog takes. Set nested to json for the stream, or deselect fields inside the column in the "
                "connection's settings."
            )

    def _fewer(self) -> str:
        fewer = ["deselect fields in the connection's settings"]
        if self.flattened:
            fewer.insert(0, "set nested to json or struct, or a lower flatten_max_depth, for the stream")
        if self.max_columns < HIGHEST_MAX_COLUMNS:
            fewer.append("raise max_columns")
        sentence = ", or ".join(fewer)
        return f"{sentence[0].upper()}{sentence[1:]}."


def _glue_bytes(type_: ColumnType | None) -> int:
    return 0 if type_ is None else len(glue_type(type_).encode())
