"""What is replayed of an archive, in which order. Pure: it decides by what was found, and reads nothing.

The syncs of a table are replayed as they were: each prepares the table with its own catalog, commits its batches and
publishes, in the order of the journal, also where they overlapped. What the last refresh has replaced is left out but
for the columns that it gave the table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TYPE_CHECKING

from destination_datalake.archive.history import History, StoredBatch, StoredLines, StoredSync
from destination_datalake.errors import counted

if TYPE_CHECKING:
    from pyroaring import BitMap

    from destination_datalake.protocol.catalog import Stream

_MAX_NAMES = 20
"""Missing objects that are named one by one."""


@dataclass(frozen=True, slots=True)
class TableFacts:
    """What a table records of the syncs that have written to it.

    `published_by` is the sync that has published the last overwrite, None if it is not known. `has_pending`: rows wait
    for their deduplication. If `commits_whole`, a batch was committed as a whole or not at all.
    """

    published_by: str | None
    has_pending: bool
    commits_whole: bool


class Kind(IntEnum):
    """What a step does, in the order of steps at the same place."""

    BEGIN = 0
    BATCH = 1
    END = 2


@dataclass(frozen=True, slots=True, order=True)
class Step:
    """A sync prepares the table, commits a batch (its number), or publishes, `at` a place in the history."""

    at: int
    sync: str
    kind: Kind
    batch: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps of a replay, in their order.

    `columns` are streams of former syncs as append modes without ids: to prepare the table for them gives it their
    columns. `gaps` are sentences that name what the archive lacks of the table's rows; `notes` are other sentences for
    the user. `left_out` are the URIs of lines of batches that were not committed: the next sync has sent their records
    again.
    """

    steps: Sequence[Step]
    syncs: Mapping[str, StoredSync]
    columns: Sequence[Stream]
    gaps: Sequence[str]
    notes: Sequence[str]
    left_out: Sequence[str]
    replaced: Mapping[str, Sequence[int]]
    """The batches whose rows a refresh has replaced, by sync."""

    @property
    def is_complete(self) -> bool:
        """Whether the archive has all rows of the table, from the first one on or from a refresh on."""
        return bool(self.syncs) and not self.gaps

    @property
    def records(self) -> int:
        """The number of archived records."""
        return sum(each.archived.lines for each in self.lines(self.steps))

    @property
    def bytes(self) -> int:
        """The size of the archived records, in bytes before compression."""
        return sum(each.archived.bytes for each in self.lines(self.steps))

    def lines(self, steps: Iterable[Step]) -> list[StoredLines]:
        """Return the lines of some steps."""
        batches = (self.syncs[step.sync].batches[step.batch] for step in steps if step.kind is Kind.BATCH)
        return [each for batch in batches for each in batch.lines]


def doubtful_units(history: History) -> frozenset[str]:
    """Return the units of lines without an entry: the table's rows show whether they were committed."""
    batches = (lines for sync in history.syncs for lines in sync.unindexed.values())
    return frozenset(each.unit for lines in batches for each in lines)


def plan_of(history: History, state: TableFacts | None, found: Mapping[str, BitMap]) -> Plan:
    """Return what is replayed. `state` is that of the table, None if there is none; `found` are rows of doubtful units.

    Raises ConfigError for a catalog that cannot be parsed.
    """
    syncs = [
        replace(each, batches={**each.batches}, published=each.published or _published_without_entry(each, state))
        for each in history.syncs
    ]
    refresh, since = _last_refresh(syncs)
    left_out: list[str] = []
    kept: dict[str, StoredSync] = {}
    replaced: dict[str, Sequence[int]] = {}
    columns: list[Stream] = []
    for sync in syncs:
        after = 0 if sync in refresh else since
        _add_unindexed(sync, after, state, found, left_out)
        if old := [number for number, batch in sync.batches.items() if batch.place <= after]:
            replaced[sync.name] = old
        if sync in refresh or sync.last > since:
            new = {number: batch for number, batch in sync.batches.items() if number not in old}
            kept[sync.name] = replace(sync, batches=new)
        elif (stream := as_append(sync.stream)) not in columns:
            columns.append(stream)
    steps = sorted(step for sync in kept.values() for step in _steps(sync))
    gaps = [*_gaps(history, kept, bool(refresh))]
    return Plan(steps, kept, columns, gaps, [*_notes(history)], left_out, replaced)


def _steps(sync: StoredSync) -> Iterator[Step]:
    yield Step(sync.begun, sync.name, Kind.BEGIN)
    for number, batch in sync.batches.items():
        yield Step(batch.place, sync.name, Kind.BATCH, number)
    if sync.published is not None:
        yield Step(max(sync.published, sync.last), sync.name, Kind.END)


def _published_without_entry(sync: StoredSync, state: TableFacts | None) -> int | None:
    """Return the place at which a sync has published the table before it was killed; None if it has not."""
    if state is None or not (sync.stream.overwrites_table or sync.stream.dedup):
        return None
    is_published = state.published_by == sync.name if sync.stream.overwrites_table else not state.has_pending
    return sync.last if is_published else None


def _add_unindexed(
    sync: StoredSync, since: int, state: TableFacts | None, found: Mapping[str, BitMap], left_out: list[str]
) -> None:
    """Add the lines without an entry of which the table has rows: of batches after all others, and after `since`."""
    for number, unindexed in sorted(sync.unindexed.items()):
        for lines in unindexed:
            if rows := found.get(lines.unit):
                only = None if state is not None and state.commits_whole else tuple(rows)
                batch = sync.batches.get(number) or StoredBatch(max(sync.last, since) + 1)
                sync.batches[number] = replace(batch, lines=(*batch.lines, replace(lines, only=only)))
            else:
                left_out.append(lines.uri)


def _gaps(history: History, kept: Mapping[str, StoredSync], has_refresh: bool) -> Iterator[str]:
    """Yield what the archive lacks of the rows that its table has, in sentences."""
    known = {stored.name for stored in history.syncs}
    if not has_refresh:
        for stored in _first_of_each_table(history):
            if not stored.sync.found_empty:
                yield f"Sync {stored} is the first with an archive, and has found rows in the table."
    for sync in kept.values():
        if not sync.sync.keeps_lines and (rows := sum(batch.rows for batch in sync.batches.values())):
            yield f"Sync {sync} did not archive its records: {counted(rows, 'row')}."
    gone = [name for name in history.gone if _is_missing(name, kept, has_refresh, known)]
    for name in gone[:_MAX_NAMES]:
        yield f"{name} is missing: a lifecycle rule, or another program, has deleted it or the catalog of its sync."
    if len(gone) > _MAX_NAMES:
        yield f"{len(gone) - _MAX_NAMES:,} more objects of lines are missing."
    for text in history.unreadable:
        yield f"{text}. Restore it from a copy."


def _notes(history: History) -> Iterator[str]:
    for text in history.foreign:
        yield f"{text}. It is skipped."
    for stored in _first_of_each_table(history)[1:]:
        yield f"Another table had the name before sync {stored}. Its rows are replayed too."


def _first_of_each_table(history: History) -> list[StoredSync]:
    """Return the first sync of each table that had the name, in their order.

    Entries of former versions do not name their table: it is taken to be that of the entries after them.
    """
    first: dict[str, StoredSync] = {}
    for stored in history.syncs:
        first.setdefault(stored.sync.table, stored)
    unnamed = first.pop("", None)
    named = [*first.values()]
    return named if unnamed is None else [unnamed, *named[1:]]


def _last_refresh(syncs: Sequence[StoredSync]) -> tuple[list[StoredSync], int]:
    """Return the syncs of the last refresh that was published, and when it was first; none and 0 without any."""
    refreshes = [each for each in syncs if each.stream.overwrites_table and each.published is not None]
    if not refreshes:
        return [], 0
    last = max(refreshes, key=lambda each: each.published or 0)
    generation = last.stream.overwrite_generation
    if generation is None:
        return [last], last.published or 0
    same = [each for each in syncs if each.stream.overwrite_generation == generation and each.begun <= last.begun]
    return same, min(each.published for each in same if each.published is not None)


def _is_missing(lines: str, kept: Mapping[str, StoredSync], has_refresh: bool, syncs: Collection[str]) -> bool:
    """Whether rows of the table were made of lines that are gone, by their name. A refresh has replaced the others.

    Those of a sync of which nothing else is known count unless there was one.
    """
    sync, batch, *_ = lines.rpartition("/")[2].split("-")
    return int(batch) in kept[sync].batches if sync in kept else not has_refresh and sync not in syncs


def as_append(stream: Stream, *, dedup: bool = False) -> Stream:
    """Return a stream as one whose syncs append, without ids."""
    return replace(
        stream,
        overwrite=False,
        generation=None,
        minimum_generation=None,
        sync_id=None,
        dedup=dedup,
        primary_key=stream.primary_key if dedup else (),
    )
