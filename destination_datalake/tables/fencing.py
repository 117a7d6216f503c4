"""Fencing: which sync may replace a table's content, adopt what another one left, rewrite the table, or sweep it.

The table itself says it, in a property (Iceberg) or a parameter of the catalog's entry (Hive), that is only ever
written by a compare-and-set commit. Whoever begins takes the token over from whoever has it; the one before finds, at
its next step, that the token is not its own any more, and stops. A token that nobody needs any more is removed.
Appends need none.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Self

from destination_datalake.tables.table import TableConflict, TableName

PROPERTY = "airbyte.fencing-token"


class Fenced(TableConflict):
    """Another sync has taken the table over. What was acknowledged until then is its to keep."""

    def __init__(self, table: TableName) -> None:
        super().__init__(
            f"Table {table}: another sync of the stream has taken over this table since this sync began, so this one "
            "stops here. Nothing that it acknowledged is lost. Let only one connection at a time replace the table."
        )


@dataclass(frozen=True, slots=True)
class FencingToken:
    """A sync's right to a table. `epoch` counts the takers, `sync` is a name that no other sync has."""

    epoch: int
    sync: str

    @classmethod
    def held(cls, properties: Mapping[str, str]) -> Self | None:
        """Return the token that the table has, whoever's it is; None if nobody needs the table for itself."""
        epoch, _, sync = properties.get(PROPERTY, "").partition(":")
        return cls(int(epoch), sync) if epoch.isdecimal() and sync else None

    @classmethod
    def after(cls, properties: Mapping[str, str], sync: str) -> Self:
        """Return the token that `sync` takes: its own, if it has it, or the next one."""
        held = cls.held(properties)
        if held is not None and held.sync == sync:
            return cls(held.epoch, sync)
        return cls(held.epoch + 1 if held is not None else 1, sync)

    def __str__(self) -> str:
        return f"{self.epoch}:{self.sync}"

    def put(self, properties: MutableMapping[str, str]) -> None:
        """Let the table say that it is this token's holder's."""
        properties[PROPERTY] = str(self)

    def require(self, properties: Mapping[str, str], table: TableName) -> None:
        """Raise Fenced unless the table still has this very token."""
        if type(self).held(properties) != self:
            raise Fenced(table)
