"""Plan a replay: which archived batches to replay, and in which order. Pure: performs no I/O.

Each sync prepares the table with its own catalog, commits its batches and publishes. The steps follow the order of the
journal, also for overlapping syncs. The plan skips the batches that the last refresh replaced, but keeps the columns
of their syncs.
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
"""Maximum number of missing objects listed by name."""


@dataclass(frozen=True, slots=True)
class TableFacts:
    """What a table records about the syncs that wrote to it.

    `published_by` is the sync that published the last overwrite, None if unknown. `has_pending`: the table has pending
    rows. With `commits_whole`, commits of batches are atomic.
    """

    published_by: str | None
    has_pending: bool
    commits_whole: bool


class StepKind(IntEnum):
    """The kind of a step, in the order of steps with the same sequence number."""

    BEGIN = 0
    BATCH = 1
    END = 2


@dataclass(frozen=True, slots=True, order=True)
class Step:
    """A step of a sync: prepare the table, commit the batch with this number, or publish."""

    sequence_number: int
    sync: str
    kind: StepKind
    batch: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps of a replay, in order.

    `columns` are the streams of skipped syncs, in append mode without ids: preparing the table for them adds their
    columns. `gaps` are sentences about rows of the table that the archive lacks; `notes` are other sentences for the
    user. `skipped` are the URIs of lines of uncommitted batches: the next sync has sent their records again.
    """

    steps: Sequence[Step]
    syncs: Mapping[str, StoredSync]
    columns: Sequence[Stream]
    gaps: Sequence[str]
    notes: Sequence[str]
    skipped: Sequence[str]
    replaced: Mapping[str, Sequence[int]]
    """The batches whose rows a refresh replaced, by sync."""

    @property
    def is_complete(self) -> bool:
        """Return whether the archive has all rows of the table, since its creation or since a refresh."""
        return bool(self.syncs) and not self.gaps

    @property
    def records(self) -> int:
        """The number of archived records."""
        return sum(each.archived.lines for each in self.lines(self.steps))

    @property
    def bytes(self) -> int:
        """Return the size of the archived records, in bytes before compression."""
        return sum(each.archived.bytes for each in self.lines(self.steps))

    def lines(self, steps: Iterable[Step]) -> list[StoredLines]:
        """Return the lines of the steps."""
        batches = (self.syncs[step.sync].batches[step.batch] for step in steps if step.kind is StepKind.BATCH)
        return [each for batch in batches for each in batch.lines]


def unindexed_units(history: History) -> frozenset[str]:
    """Return the units of lines without an entry. Only the table's rows show whether they were committed."""
    batches = (lines for sync in history.syncs for lines in sync.unindexed.values())
    return frozenset(each.unit for lines in batches for each in lines)


def build_plan(history: History, state: TableFacts | None, committed_rows: Mapping[str, BitMap]) -> Plan:
    """Return the plan. `state` is None if there is no table; `committed_rows` are the table's rows of unindexed units.

    Raises ConfigError for a catalog that cannot be parsed.
    """
    syncs = [
        replace(each, batches={**each.batches}, published=each.published or _published_without_entry(each, state))
        for each in history.syncs
    ]
    refresh_syncs, since = _last_refresh(syncs)
    skipped: list[str] = []
    selected: dict[str, StoredSync] = {}
    replaced: dict[str, Sequence[int]] = {}
    columns: list[Stream] = []
    for sync in syncs:
        after = 0 if sync in refresh_syncs else since
        _add_committed_unindexed(sync, after, state, committed_rows, skipped)
        if replaced_batches := [number for number, batch in sync.batches.items() if batch.sequence_number <= after]:
            replaced[sync.name] = replaced_batches
        if sync in refresh_syncs or sync.last > since:
            new = {number: batch for number, batch in sync.batches.items() if number not in replaced_batches}
            selected[sync.name] = replace(sync, batches=new)
        elif (stream := as_append(sync.stream)) not in columns:
            columns.append(stream)
    steps = sorted(step for sync in selected.values() for step in _steps(sync))
    gaps = [*_gaps(history, selected, bool(refresh_syncs))]
    return Plan(steps, selected, columns, gaps, [*_notes(history)], skipped, replaced)


def _steps(sync: StoredSync) -> Iterator[Step]:
    yield Step(sync.begun, sync.name, StepKind.BEGIN)
    for number, batch in sync.batches.items():
        yield Step(batch.sequence_number, sync.name, StepKind.BATCH, number)
    if sync.published is not None:
        yield Step(max(sync.published, sync.last), sync.name, StepKind.END)


def _published_without_entry(sync: StoredSync, state: TableFacts | None) -> int | None:
    """Return the sequence number of a publication without an entry, as of a killed sync; None if there was none."""
    if state is None or not (sync.stream.overwrites_table or sync.stream.dedup):
        return None
    is_published = state.published_by == sync.name if sync.stream.overwrites_table else not state.has_pending
    return sync.last if is_published else None


def _add_committed_unindexed(
    sync: StoredSync, since: int, state: TableFacts | None, committed_rows: Mapping[str, BitMap], skipped: list[str]
) -> None:
    """Add the lines without an entry that the table has as rows, in batches after all others and after `since`."""
    for number, unindexed in sorted(sync.unindexed.items()):
        for lines in unindexed:
            if rows := committed_rows.get(lines.unit):
                only = None if state is not None and state.commits_whole else tuple(rows)
                batch = sync.batches.get(number) or StoredBatch(max(sync.last, since) + 1)
                sync.batches[number] = replace(batch, lines=(*batch.lines, replace(lines, only=only)))
            else:
                skipped.append(lines.uri)


def _gaps(history: History, selected: Mapping[str, StoredSync], has_refresh: bool) -> Iterator[str]:
    """Yield sentences about rows of the table that the archive lacks."""
    known = {stored.name for stored in history.syncs}
    if not has_refresh:
        for stored in _first_of_each_table(history):
            if not stored.sync.found_empty:
                yield f"The table had rows before sync {stored}, which is the first in the archive."
    for sync in selected.values():
        if not sync.sync.keeps_lines and (rows := sum(batch.rows for batch in sync.batches.values())):
            yield f"Sync {sync} did not archive its records: {counted(rows, 'row')}."
    missing = [name for name in history.missing if _is_missing(name, selected, has_refresh, known)]
    for name in missing[:_MAX_NAMES]:
        yield f"{name} is missing: a lifecycle rule or another program has deleted it, or the catalog of its sync."
    if len(missing) > _MAX_NAMES:
        yield f"{len(missing) - _MAX_NAMES:,} more objects are missing."
    for text in history.unreadable:
        yield f"{text}. Restore it from a copy."


def _notes(history: History) -> Iterator[str]:
    for text in history.foreign:
        yield f"{text}. The replay skips it."
    for stored in _first_of_each_table(history)[1:]:
        yield f"Before sync {stored}, another table had this name. The replay includes its rows."


def _first_of_each_table(history: History) -> list[StoredSync]:
    """Return the first sync of each table of this name, in order.

    Entries of earlier versions do not identify their table: it is assumed to be the table of the next entries.
    """
    first: dict[str, StoredSync] = {}
    for stored in history.syncs:
        first.setdefault(stored.sync.table, stored)
    unnamed = first.pop("", None)
    named = [*first.values()]
    return named if unnamed is None else [unnamed, *named[1:]]


def _last_refresh(syncs: Sequence[StoredSync]) -> tuple[list[StoredSync], int]:
    """Return the syncs of the last published refresh, and the sequence number of its first publication; else 0."""
    refreshes = [each for each in syncs if each.stream.overwrites_table and each.published is not None]
    if not refreshes:
        return [], 0
    last = max(refreshes, key=lambda each: each.published or 0)
    generation = last.stream.overwrite_generation
    if generation is None:
        return [last], last.published or 0
    same = [each for each in syncs if each.stream.overwrite_generation == generation and each.begun <= last.begun]
    return same, min(each.published for each in same if each.published is not None)


def _is_missing(lines: str, selected: Mapping[str, StoredSync], has_refresh: bool, syncs: Collection[str]) -> bool:
    """Return whether the table has rows from missing lines, judged by the lines' name.

    A refresh has replaced the rows of other batches. Lines of an unknown sync count unless there was a refresh.
    """
    sync, batch, *_ = lines.rpartition("/")[2].split("-")
    return int(batch) in selected[sync].batches if sync in selected else not has_refresh and sync not in syncs


def as_append(stream: Stream, *, dedup: bool = False) -> Stream:
    """Return the stream in append mode, without the ids of a sync."""
    return replace(
        stream,
        overwrite=False,
        generation=None,
        minimum_generation=None,
        sync_id=None,
        dedup=dedup,
        primary_key=stream.primary_key if dedup else (),
    )
