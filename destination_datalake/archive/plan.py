"""What is replayed of an archive, in which order. Pure: it decides by what was found, and reads nothing.

The syncs of a table are lived through as they were: each prepares the table with its own catalog, commits its batches
and publishes, in the order in which they did so, also where they overlapped. What the last refresh has replaced is left
out but for the columns that it gave the table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum

from destination_datalake.archive.history import History, StoredLines, StoredSync
from destination_datalake.archive.objects import unit_of
from destination_datalake.protocol.catalog import Stream, parse_catalog


@dataclass(frozen=True, slots=True)
class TableFacts:
    """What a table says of the syncs that have written to it.

    `lowest_generation` is that of its rows, None if it is not known. `has_pending`: rows wait for their deduplication.
    If `commits_whole`, a batch was committed as a whole or not at all.
    """

    lowest_generation: int | None
    has_pending: bool
    commits_whole: bool


class Kind(IntEnum):
    """What a step does, in the order of steps at the same time."""

    BEGIN = 0
    BATCH = 1
    END = 2


@dataclass(frozen=True, slots=True, order=True)
class Step:
    """A sync prepares the table, commits a batch (its number), or publishes. `at` is when it did so, in ms."""

    at: int
    sync: str
    kind: Kind
    batch: int = 0


@dataclass(frozen=True, slots=True)
class ReplayedLines:
    """Lines of a batch; `only` those with these numbers have rows, None: all."""

    lines: StoredLines
    only: tuple[int, ...] | None = None


@dataclass(slots=True)
class ReplayedSync:
    """A sync that is lived through again. `times` are those at which it has committed its batches, in ms."""

    name: str
    stream: Stream
    started: int
    found_empty: bool
    published: int | None
    times: dict[int, int] = field(default_factory=dict)
    batches: dict[int, tuple[ReplayedLines, ...]] = field(default_factory=dict)

    @classmethod
    def of(
        cls, stored: StoredSync, state: TableFacts | None, found: Mapping[str, Sequence[int]], left_out: list[str]
    ) -> ReplayedSync:
        """Return a sync without lines of which the table has no rows; add these to `left_out`."""
        [stream] = parse_catalog({"streams": [stored.configured]})
        sync = cls(stored.sync.sync, stream, stored.sync.started, stored.sync.found_empty, stored.published)
        for number, (committed, indexed) in stored.batches.items():
            sync.times[number] = committed
            sync.batches[number] = tuple(map(ReplayedLines, indexed))
        for number, unindexed in stored.unindexed.items():
            for lines in unindexed:
                rows = found.get(unit_of(lines.archived.first_id), ())
                if not rows:
                    left_out.append(lines.uri)
                    continue
                only = None if state is not None and state.commits_whole else tuple(rows)
                sync.times.setdefault(number, max(sync.started, lines.modified))
                sync.batches[number] = (*sync.batches.get(number, ()), ReplayedLines(lines, only))
        return sync

    @property
    def last(self) -> int:
        """When it did the last thing that is known of it."""
        return max(self.started, *self.times.values(), self.published or 0)

    def steps(self) -> Iterator[Step]:
        """Yield what it did."""
        yield Step(self.started, self.name, Kind.BEGIN)
        for number, at in self.times.items():
            yield Step(max(at, self.started), self.name, Kind.BATCH, number)
        if self.published is not None:
            yield Step(max(self.published, self.last), self.name, Kind.END)


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps of a replay, in their order.

    `columns` are streams of former syncs as append modes without ids: to prepare the table for them gives it their
    columns. `notes` say, in sentences, what is missing. `left_out` are the URIs of lines of batches that were not
    committed: the next sync has sent their records again.
    """

    steps: Sequence[Step]
    syncs: Mapping[str, ReplayedSync]
    columns: Sequence[Stream]
    notes: Sequence[str]
    left_out: Sequence[str]
    is_complete: bool
    """Whether the archive has the table's rows from the first one on, or from a refresh on."""
    replaced: Mapping[str, Sequence[int]]
    """The batches whose rows a refresh has replaced, or were gone when a later sync began, by sync."""

    @property
    def records(self) -> int:
        """The number of archived records."""
        return sum(each.lines.archived.lines for each in self.lines(self.steps))

    @property
    def bytes(self) -> int:
        """The size of the archived records, in bytes before compression."""
        return sum(each.lines.archived.bytes for each in self.lines(self.steps))

    def lines(self, steps: Iterable[Step]) -> list[ReplayedLines]:
        """Return the lines of some steps."""
        batches = (self.syncs[step.sync].batches[step.batch] for step in steps if step.kind is Kind.BATCH)
        return [each for batch in batches for each in batch]


def doubtful_units(history: History) -> frozenset[str]:
    """Return the units of lines without an index entry: whether they were committed, the table's rows must tell."""
    batches = (lines for sync in history.syncs for lines in sync.unindexed.values())
    return frozenset(unit_of(each.archived.first_id) for lines in batches for each in lines)


def plan_of(history: History, state: TableFacts | None, found: Mapping[str, Sequence[int]]) -> Plan:
    """Return what is replayed. `state` is that of the table, None if there is none; `found` are rows of doubtful units.

    Raises ConfigError for a catalog that cannot be parsed.
    """
    notes: list[str] = []
    left_out: list[str] = []
    syncs = [ReplayedSync.of(each, state, found, left_out) for each in history.syncs]
    for sync in syncs:
        sync.published = sync.published or _published_unnoticed(sync, syncs, state)
    refresh, since = _last_refresh(syncs)
    emptied = max((each.started for each in syncs if each.found_empty), default=0)
    if emptied > since:
        # What came before was dropped with the table, or deleted by somebody: its rows are none of this table.
        refresh, since = [], emptied - 1
    kept = {sync.name: _since(sync, since) if sync not in refresh else sync for sync in syncs}
    kept = {name: sync for name, sync in kept.items() if sync in refresh or sync.last > since}
    _order_beginnings([*kept.values()])
    gone = [name for name in history.gone if _is_missing(name, kept, bool(refresh), {sync.name for sync in syncs})]
    if gone:
        notes.append(
            f"{len(gone)} objects of lines are missing, such as {gone[0]}: a lifecycle rule, or somebody, has deleted "
            "them, or the catalog of their sync."
        )
    is_complete = bool(syncs) and not gone and (bool(refresh) or emptied > 0)
    steps = sorted(step for sync in kept.values() for step in sync.steps())
    replaced = {
        sync.name: [number for number, at in sync.times.items() if at <= since] for sync in syncs if sync not in refresh
    }
    return Plan(
        steps,
        kept,
        _columns(sync for sync in syncs if sync.name not in kept),
        notes,
        left_out,
        is_complete,
        {name: numbers for name, numbers in replaced.items() if numbers},
    )


def _published_unnoticed(sync: ReplayedSync, syncs: Collection[ReplayedSync], state: TableFacts | None) -> int | None:
    """Return when a sync has published its table whose index does not say so, as it was killed then; None if not."""
    if state is None:
        return None
    generation = sync.stream.overwrite_generation
    if sync.stream.overwrites_table:
        is_published = generation is not None and state.lowest_generation == generation
        others = (each for each in syncs if each is not sync and each.published is not None)
        if not is_published or any(each.stream.overwrite_generation == generation for each in others):
            return None
        return sync.last
    return sync.last if sync.stream.dedup and not state.has_pending else None


def _last_refresh(syncs: Sequence[ReplayedSync]) -> tuple[list[ReplayedSync], int]:
    """Return the syncs of the last refresh that was published, and when it was first; none and 0 without any."""
    refreshes = [each for each in syncs if each.stream.overwrites_table and each.published is not None]
    if not refreshes:
        return [], 0
    last = max(refreshes, key=lambda each: each.published or 0)
    generation = last.stream.overwrite_generation
    if generation is None:
        return [last], last.published or 0
    same = [each for each in syncs if each.stream.overwrite_generation == generation and each.started <= last.started]
    return same, min(each.published for each in same if each.published is not None)


def _is_missing(lines: str, kept: Mapping[str, ReplayedSync], has_refresh: bool, syncs: Collection[str]) -> bool:
    """Whether rows of the table were made of lines that are gone, by their name. A refresh has replaced the others.

    Those of a sync of which nothing else is known count unless there was one.
    """
    sync, batch, *_ = lines.rpartition("/")[2].split("-")
    return int(batch) in kept[sync].times if sync in kept else not has_refresh and sync not in syncs


def _order_beginnings(syncs: Sequence[ReplayedSync]) -> None:
    """Let syncs that began at about the same time as a refresh begin before it, as one that is published shows.

    The index has when a sync had prepared the table, and not the order in which two have done so. A sync that prepares
    it while a refresh is pending takes its rows over, and then that one is not published.
    """
    for refresh in syncs:
        if not refresh.stream.overwrites_table or refresh.published is None:
            continue
        for sync in syncs:
            same = sync.stream.overwrite_generation is not None and (
                sync.stream.overwrite_generation == refresh.stream.overwrite_generation
            )
            if sync is not refresh and not same and refresh.started <= sync.started < refresh.published:
                sync.started = refresh.started - 1


def _since(sync: ReplayedSync, since: int) -> ReplayedSync:
    """Return a sync without the batches whose rows a refresh has replaced."""
    times = {number: at for number, at in sync.times.items() if at > since}
    batches = {number: lines for number, lines in sync.batches.items() if number in times}
    return replace(sync, times=times, batches=batches)


def _columns(syncs: Iterable[ReplayedSync]) -> Sequence[Stream]:
    """Return the streams of syncs, those of the same schema once, as they are only to give the table their columns."""
    streams: list[Stream] = []
    for sync in syncs:
        stream = as_append(sync.stream)
        if stream not in streams:
            streams.append(stream)
    return streams


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
