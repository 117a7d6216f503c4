"""Whose records a table holds: what this connector writes into a new table's parameters, and reads there again.

For an Iceberg table they are properties, which PyIceberg repeats in the catalog's entry.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Self

from destination_datalake.protocol.catalog import StreamId
from destination_datalake.schema.collisions import collisions
from destination_datalake.schema.columns import renamed
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
    """The stream that a table was made for, and the naming that its columns were named by."""

    stream: StreamId
    naming: Naming

    def parameters(self) -> dict[str, str]:
        """What the table says of it."""
        namespace = {_NAMESPACE: self.stream.namespace} if self.stream.namespace else {}
        return {**namespace, _NAME: self.stream.name, _NAMING: self.naming.style}

    @classmethod
    def of(cls, parameters: Mapping[str, str]) -> Self | None:
        """What a table with these parameters says of it; None if it does not."""
        name, naming = parameters.get(_NAME), STYLES.get(parameters.get(_NAMING, ""))
        if name is None or naming is None:
            return None
        return cls(StreamId(parameters.get(_NAMESPACE) or None, name), naming)

    def settle(
        self, table: TableName, parameters: Mapping[str, str], there: Mapping[str, str], columns: Sequence[Field]
    ) -> tuple[Field, ...]:
        """The stream's columns as they are called in the table that is there, given its parameters.

        `there` has the sources of the table's columns by their names. Warns if the table was made for another stream,
        and of fields whose names meet.
        """
        theirs = TableOwner.of(parameters)
        if theirs is not None and theirs.stream != self.stream:
            _logger.warning(
                "Table %s was made for stream %s and now takes stream %s as well: their rows stand side by side. If "
                "they do not belong together, set table_prefix, database_strategy or naming so that they part.",
                table,
                theirs.stream,
                self.stream,
            )
        settled = renamed(columns, self.naming, there)
        self._warn_of_collisions(settled)
        return settled

    def _warn_of_collisions(self, columns: Sequence[Field]) -> None:
        found = collisions(columns, self.naming)
        shown = [str(collision) for collision in islice(found, _COLLISIONS_SHOWN)]
        if not shown:
            return
        if more := sum(1 for _ in found):
            shown.append(f"and {more} more like these")
        _logger.warning(
            "Stream %s has fields whose names meet; a suffix tells their columns apart: %s.",
            self.stream,
            "; ".join(shown),
        )
