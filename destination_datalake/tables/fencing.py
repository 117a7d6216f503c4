"""Which sync may write to a Hive table, and which may overwrite an Iceberg table or adopt a pending overwrite.

Fencing tokens decide between syncs at the same time. A sync that begins takes the token over from its present holder,
which is fenced: it finds another token at its next step and stops. A token is removed when its work is done. Appends
to Iceberg tables need none.

The generations of overwrites decide between syncs one after the other: one that is older than the table's, or whose
acknowledged rows are gone, is refused.

Both are stored in the table itself, as Iceberg table properties or parameters of the Glue table, and are written only
by commits that fail if another one came first: see `iceberg.commit.fence` for catalogs that do not compare properties.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Self

import msgspec

from destination_datalake.protocol.catalog import Stream
from destination_datalake.tables.table import LOWEST_GENERATION_PROPERTY, TableConflict, TableName, cannot_write

TOKEN_PROPERTY = "airbyte.fencing-token"
OVERWRITES_PROPERTY = "airbyte.overwrite-generations"


class Fenced(TableConflict):
    """Another sync has taken the token over.

    It has the rows that were acknowledged until then if it appends or is of the same generation. Otherwise it has
    removed them, and `Overwrites` refuses to go on without them.
    """

    def __init__(self, table: TableName) -> None:
        super().__init__(
            f"Table {table}: another sync of the stream has taken over this table since this sync began, so this one "
            "stops here. What it acknowledged is in the table if the other sync appends or is of the same generation; "
            "an overwrite of another generation takes its place, and a retry of this sync, if it overwrites, is then "
            "refused. Let only one connection at a time overwrite the table, or write to it if it is a Hive table."
        )


class Recreated(Fenced):
    """Another writer has dropped the table and created it again: nothing that this sync committed is in it."""

    def __init__(self, table: TableName) -> None:
        TableConflict.__init__(
            self,
            f"Table {table} was dropped and created again while this sync wrote to it. What the sync had "
            "committed went with the dropped table, and nothing was written to the new one. The states of those rows "
            "may have been released, so the next sync does not send them again: refresh the stream to have them in the "
            "new table. Let nothing else drop the table while a sync runs.",
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


class Overwrites(msgspec.Struct, frozen=True, omit_defaults=True):
    """The generations of the overwrites that a table has seen. The platform never goes back to an earlier one.

    `newest` is the highest that has begun. `removed` are the lowest and the highest of those whose acknowledged rows
    were removed by another overwrite before they were published, since the last one was.
    """

    newest: int | None = None
    removed: tuple[int, int] | None = None

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Self:
        """Return those in a table's properties; none if it has none that this connector has written."""
        try:
            return msgspec.json.decode(properties.get(OVERWRITES_PROPERTY, ""), type=cls)
        except msgspec.DecodeError:
            return cls()

    def __str__(self) -> str:
        return msgspec.json.encode(self).decode()

    def begun(self, generation: int | None, removed: Iterable[int]) -> Overwrites:
        """Return them after an overwrite has begun that removes pending ones. None: it has no generation."""
        all_removed = (*removed, *(self.removed or ()))
        return Overwrites(
            self.newest if generation is None else generation,
            (min(all_removed), max(all_removed)) if all_removed else None,
        )

    def published(self) -> Overwrites:
        """Return them after an overwrite has taken the place of all acknowledged rows."""
        return Overwrites(self.newest)

    def overwritten_by(self, stream: Stream, table: TableName, lowest: int | None, *, pending: bool) -> bool:
        """Whether a sync is to overwrite the table; False if it is to append.

        `lowest` is the lowest generation of the table's rows (None: unknown): an overwrite of the same was published
        by an earlier sync, which this one continues. `pending`: an overwrite of the sync's generation is not published
        yet. Raises TableConflict if the overwrite is older than the table, or if rows that were acknowledged in the
        sync's generation are gone: a retry does not send them again.
        """
        generation = stream.overwrite_generation if stream.overwrites_table else stream.generation
        if generation is None:
            return stream.overwrites_table
        if not pending and self.removed is not None and self.removed[0] <= generation <= self.removed[1]:
            raise _rows_are_gone(stream, table, generation)
        if not stream.overwrites_table:
            return False
        newest = max(each for each in (lowest, self.newest, generation) if each is not None)
        if newest == generation:
            if lowest == generation:
                return False
            if pending or generation != self.newest:
                return True
        if stream.has_constant_ids:
            return False
        if newest > generation:
            raise _is_older(stream, table, generation, newest)
        raise _rows_are_gone(stream, table, generation)


def _is_older(stream: Stream, table: TableName, generation: int, newest: int) -> TableConflict:
    problem = (
        f"this overwrite is of generation {generation}, and the table has been written by generation {newest}, which "
        "is later. Let only one connection overwrite the table: choose another table_prefix or "
        "lakeformation_database_name for this one. If it takes the place of a connection that is gone, remove the "
        f"table properties {LOWEST_GENERATION_PROPERTY} and {OVERWRITES_PROPERTY} (ALTER TABLE ... UNSET TBLPROPERTIES)"
        ", or drop the table, and run the sync again."
    )
    return TableConflict(cannot_write(stream.id, table, problem))


def _rows_are_gone(stream: Stream, table: TableName, generation: int) -> TableConflict:
    problem = (
        f"an earlier sync has begun generation {generation}, and the rows that were acknowledged in it do not wait any "
        "more: another sync has overwritten them, or has put them into the table. Refresh the stream, so that all its "
        "records are sent again, and let only one connection overwrite the table."
    )
    return TableConflict(cannot_write(stream.id, table, problem))
