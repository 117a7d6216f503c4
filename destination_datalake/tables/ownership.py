"""The owner of a table: the stream it was created for, kept in the table's parameters.

An Iceberg table has them as properties, which PyIceberg repeats in the Glue table's parameters.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Self

from destination_datalake.protocol.catalog import StreamId
from destination_datalake.schema.columns import assign_names, find_collisions
from destination_datalake.schema.names import STYLES, Naming
from destination_datalake.schema.types import Field
from destination_datalake.tables.table import TableName

_logger = logging.getLogger(__name__)

_COLLISIONS_SHOWN = 20

_NAMESPACE = "airbyte.stream-namespace"
_NAME = "airbyte.stream-name"
_NAMING = "airbyte.naming"


@dataclass(frozen=True, slots=True)
class TableOwner:
    """The stream that a table was created for, and the naming that its columns were named by."""

    stream: StreamId
    naming: Naming

    def parameters(self) -> dict[str, str]:
        """Return the table parameters that record the owner."""
        namespace = {_NAMESPACE: self.stream.namespace} if self.stream.namespace else {}
        return {**namespace, _NAME: self.stream.name, _NAMING: self.naming.style}

    @classmethod
    def of(cls, parameters: Mapping[str, str]) -> Self | None:
        """Return the owner that a table's parameters record; None if they record none."""
        name, naming = parameters.get(_NAME), STYLES.get(parameters.get(_NAMING, ""))
        if name is None or naming is None:
            return None
        return cls(StreamId(parameters.get(_NAMESPACE) or None, name), naming)

    def name_columns(
        self,
        table: TableName,
        parameters: Mapping[str, str],
        existing: Mapping[str, str | None],
        columns: Sequence[Field],
    ) -> tuple[Field, ...]:
        """Return the stream's columns under their names in an existing table with the given parameters.

        `existing` has the sources of the table's columns by name, None for names that no column gets. Warns if the
        table was created for another stream, and of fields whose names collide.
        """
        recorded = TableOwner.of(parameters)
        if recorded is not None and recorded.stream != self.stream:
            _logger.warning(
                "Table %s was created for stream %s and now receives stream %s as well, so it holds rows of both. If "
                "they do not belong together, set table_prefix, database_strategy or naming so that each has its own.",
                table,
                recorded.stream,
                self.stream,
            )
        named = assign_names(columns, self.naming, existing)
        self._warn_of_collisions(named)
        return named

    def _warn_of_collisions(self, columns: Sequence[Field]) -> None:
        found = find_collisions(columns, self.naming)
        shown = [str(collision) for collision in islice(found, _COLLISIONS_SHOWN)]
        if not shown:
            return
        if more := sum(1 for _ in found):
            shown.append(f"and {more} more like these")
        _logger.warning(
            "Stream %s has fields whose names collide; a suffix distinguishes their columns: %s.",
            self.stream,
            "; ".join(shown),
        )
