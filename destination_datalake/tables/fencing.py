"""Fencing tokens: which sync may overwrite a table, adopt a pending overwrite, or rewrite the table's files.

The token is stored in the table itself, as an Iceberg table property or a parameter of the Glue table, and is written
only by compare-and-set commits. A sync that begins takes the token over from its present holder, which is fenced: it
finds another token at its next step and stops. A token is removed when its work is done. Appends need none.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Self

from destination_datalake.tables.table import TableConflict, TableName

TOKEN_PROPERTY = "airbyte.fencing-token"


class Fenced(TableConflict):
    """Another sync has taken the token over. Rows acknowledged until then are kept by that sync."""

    def __init__(self, table: TableName) -> None:
        super().__init__(
            f"Table {table}: another sync of the stream has taken over this table since this sync began, so this one "
            "stops here. Nothing that it acknowledged is lost. Let only one connection at a time overwrite the table."
        )


@dataclass(frozen=True, slots=True)
class FencingToken:
    """A sync's exclusive right to a table. `epoch` grows with every new holder; `sync` identifies one sync uniquely."""

    epoch: int
    sync: str

    @classmethod
    def held(cls, properties: Mapping[str, str]) -> Self | None:
        """Return the token in a table's properties, whichever sync holds it; None if there is none."""
        epoch, _, sync = properties.get(TOKEN_PROPERTY, "").partition(":")
        return cls(int(epoch), sync) if epoch.isdecimal() and sync else None

    @classmethod
    def after(cls, properties: Mapping[str, str], sync: str) -> Self:
        """Return the token for `sync`: the table's own if `sync` holds it already, else one of the next epoch."""
        held = cls.held(properties)
        if held is not None and held.sync == sync:
            return cls(held.epoch, sync)
        return cls(held.epoch + 1 if held is not None else 1, sync)

    def __str__(self) -> str:
        return f"{self.epoch}:{self.sync}"

    def write_to(self, properties: MutableMapping[str, str]) -> None:
        """Put the token into a table's properties, in place of any other."""
        properties[TOKEN_PROPERTY] = str(self)

    def require(self, properties: Mapping[str, str], table: TableName) -> None:
        """Raise Fenced unless the table's properties hold this token."""
        if type(self).held(properties) != self:
            raise Fenced(table)
