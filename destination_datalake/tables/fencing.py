"""Decides which sync may write to a Hive table, overwrite an Iceberg table, or take over an unpublished overwrite.

Fencing tokens decide between simultaneous syncs. When a sync begins, it takes the token from the sync that holds it.
When the sync ends, it removes the token. The former holder is fenced: at its next step, the former holder reads a
different token and stops. Appends to Iceberg tables need no token. But if an append continues a published overwrite,
and another overwrite then replaces the published one, the append is fenced.

Generations decide between successive syncs. The platform assigns each refresh of a stream a generation number. This
module rejects an overwrite if the overwrite's generation is older than the table's, or if an earlier overwrite removed
acknowledged rows of the same generation.

The table itself stores the token and the generations: an Iceberg table in its properties, a Hive table in the
parameters of its Glue entry. Only commits that fail if another writer commits concurrently write the token and the
generations. For catalogs that do not compare properties, see `iceberg.commit.fence`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Self

import msgspec

from destination_datalake.protocol.catalog import Stream
from destination_datalake.tables.table import (
    LOWEST_GENERATION_PROPERTY,
    TableConflict,
    TableName,
    cannot_write,
    whole_number,
)

TOKEN_PROPERTY = "airbyte.fencing-token"
OVERWRITES_PROPERTY = "airbyte.overwrite-generations"


class Fenced(TableConflict):
    """Another sync has taken the table's fencing token, so this sync must stop.

    If the other sync appends or has the same generation, the other sync keeps the rows that this sync has acknowledged.
    Otherwise the other sync removes these rows. `Overwrites` then rejects a retry of this sync, because the retry would
    not send the removed rows again.
    """

    def __init__(self, table: TableName) -> None:
        super().__init__(
            f"Table {table}: this sync stops, because another sync has taken over the table. If the other sync "
            "appends or has the same generation, the table keeps the rows that this sync acknowledged. If the other "
            "sync overwrites the table with another generation, these rows are removed, and a retry of this sync is "
            "refused if it overwrites. Run only one connection at a time that overwrites the table. For a Hive "
            "table, run only one connection at a time that writes to it."
        )


class Recreated(Fenced):
    """Another writer dropped and recreated the table. The new table contains no rows of this sync."""

    def __init__(self, table: TableName) -> None:
        TableConflict.__init__(
            self,
            f"Table {table} was dropped and created again while this sync wrote to it. The committed rows of this "
            "sync were dropped with the old table, and the new table contains no rows of this sync. The states of "
            "the dropped rows may have been released, so the next sync does not send these rows again. Refresh the "
            "stream to write the rows to the new table. Do not drop the table while a sync runs.",
        )


@dataclass(frozen=True, slots=True)
class FencingToken:
    """The exclusive right of one sync to write to a table.

    `epoch` increases with each new holder. `sync` is the unique name of the sync that holds the token.
    """

    epoch: int
    sync: str

    @classmethod
    def held(cls, properties: Mapping[str, str]) -> Self | None:
        """Return the token in a table's properties, or None if no sync holds one."""
        epoch, _, sync = properties.get(TOKEN_PROPERTY, "").partition(":")
        number = whole_number(epoch)
        return cls(number, sync) if number is not None and sync else None

    @classmethod
    def after(cls, properties: Mapping[str, str], sync: str) -> Self:
        """Return the token with which the sync `sync` takes the table.

        If the sync already holds the token, return that token. Otherwise return a token of the next epoch.
        """
        present = cls.held(properties)
        # After a lost response, and in a second `prepare`, the sync finds its own token, which stays valid.
        if present is not None and present.sync == sync:
            return cls(present.epoch, sync)
        return cls(present.epoch + 1 if present is not None else 1, sync)

    def __str__(self) -> str:
        return f"{self.epoch}:{self.sync}"

    def write_to(self, properties: MutableMapping[str, str]) -> None:
        """Store this token in a table's properties, in place of any other."""
        properties[TOKEN_PROPERTY] = str(self)

    def require(self, properties: Mapping[str, str], table: TableName) -> None:
        """Raise Fenced unless the table's properties contain this token."""
        if type(self).held(properties) != self:
            raise Fenced(table)


class Overwrites(msgspec.Struct, frozen=True, omit_defaults=True):
    """The generations of a table's overwrites. The platform never sends a lower generation than before.

    `newest` is the highest generation of any overwrite that has begun. `removed` is a range of generations (lowest,
    highest). Since the last publication of an overwrite, other overwrites have removed acknowledged but unpublished
    rows of the generations in this range.
    """

    newest: int | None = None
    removed: tuple[int, int] | None = None

    @classmethod
    def load(cls, properties: Mapping[str, str]) -> Overwrites:
        """Return the generations that a table's properties record, or an empty value if the property is invalid.

        The documentation permits to set the property to an invalid value, because Athena cannot remove properties.
        """
        try:
            return _OVERWRITES.decode(properties.get(OVERWRITES_PROPERTY, ""))
        except (ValueError, RecursionError):
            return cls()

    def __str__(self) -> str:
        return msgspec.json.encode(self).decode()

    def begun(self, generation: int | None, removed: Iterable[int]) -> Overwrites:
        """Return the generations after an overwrite has begun.

        `generation` is the overwrite's generation, or None if unknown.

        `removed` contains the generations of the pending overwrites that the new overwrite removes.
        """
        all_removed = (*removed, *(self.removed or ()))
        return Overwrites(
            self.newest if generation is None else generation,
            (min(all_removed), max(all_removed)) if all_removed else None,
        )

    def published(self) -> Overwrites:
        """Return the generations after an overwrite is published: `removed` is None, and `newest` is unchanged."""
        return Overwrites(self.newest)

    def overwritten_by(self, stream: Stream, table: TableName, lowest: int | None, *, pending: bool) -> bool:
        """Return whether a sync must overwrite the table. If False, it must append.

        `lowest` is the lowest generation of the table's rows, or None if unknown. If `lowest` equals the sync's
        generation, an earlier sync has published the overwrite, so this sync must append. `pending` states whether the
        table has an unpublished overwrite of the sync's generation.

        Raises TableConflict if a sync of a later generation has written to the table. Also raises TableConflict if
        another overwrite removed acknowledged rows of the sync's generation, because the platform does not send these
        rows again.
        """
        generation = stream.overwrite_generation if stream.overwrites_table else stream.generation
        if generation is None:
            return stream.overwrites_table
        # The range may include a generation whose own overwrite is still pending. The rows of that overwrite exist.
        if not pending and self.removed is not None and self.removed[0] <= generation <= self.removed[1]:
            raise _missing_rows(stream, table, generation)
        if not stream.overwrites_table:
            return False
        newest = max(known for known in (lowest, self.newest, generation) if known is not None)
        if newest == generation:
            # Rows of this generation are visible, so its overwrite was published, and this sync continues it.
            if lowest == generation:
                return False
            if pending or generation != self.newest:
                return True
        if stream.has_constant_ids:
            return False
        if newest > generation:
            raise _older_generation(stream, table, generation, newest)
        raise _missing_rows(stream, table, generation)


_OVERWRITES = msgspec.json.Decoder(Overwrites)


def _older_generation(stream: Stream, table: TableName, generation: int, newest: int) -> TableConflict:
    problem = (
        f"this overwrite has generation {generation}, but a sync of the later generation {newest} has already written "
        "to the table. Let only one connection overwrite the table: choose another table_prefix or "
        "lakeformation_database_name for this connection. If this connection replaces a deleted connection, remove "
        f"the table properties {LOWEST_GENERATION_PROPERTY} and {OVERWRITES_PROPERTY} (ALTER TABLE ... UNSET "
        "TBLPROPERTIES), or drop the table, and run the sync again."
    )
    return TableConflict(cannot_write(stream.id, table, problem))


def _missing_rows(stream: Stream, table: TableName, generation: int) -> TableConflict:
    problem = (
        f"an earlier sync of generation {generation} acknowledged rows that are no longer pending, because another "
        "sync has overwritten these rows or added them to the table. Refresh the stream to send all records again. "
        "Let only one connection overwrite the table."
    )
    return TableConflict(cannot_write(stream.id, table, problem))
