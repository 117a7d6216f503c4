"""Plan a replay: read the journal of an archive, order the archived batches, and store the progress."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import IntEnum
from functools import cached_property
from itertools import compress, count
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec

from destination_datalake.archive.objects import (
    BATCH_DECODER,
    END_DECODER,
    SYNC_DECODER,
    ArchivedBatch,
    ArchivedEnd,
    ArchivedSync,
    ConditionalObject,
    row_id_prefix,
)
from destination_datalake.aws.objects import S3Address, get_or_none, is_missing, listed
from destination_datalake.errors import ConnectorError, Failure, counted
from destination_datalake.files.plan import UnitLines
from destination_datalake.protocol.catalog import Stream, parse_catalog

if TYPE_CHECKING:
    from mypy_boto3_s3.type_defs import ObjectTypeDef
    from pyroaring import BitMap

    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.tables.table import TableState


# --- History ----------------------------------------------------------------------------------------------------------
# Read the archive of a table from S3: the journal of syncs and batches, and archived lines without a journal entry.
#
# If an object is unreadable, the history reports the object's name, and still contains all other objects.

CONCURRENT_CALLS = 16

SPACING = 1000
"""The difference between the sequence numbers of consecutive journal entries. Batches without an entry get sequence
numbers between those of two entries."""

_MAX_DELAY_MILLISECONDS = 30 * 60 * 1000
"""Maximum difference between the times of two journal entries whose order contradicts that of their positions. S3
rejects requests of a sync whose clock is wrong by more than 15 minutes."""

_ENTRY = re.compile(r"index/(\d+)-([0-9a-f]+)/(begin|end|\d+)\.json")
_LINES = re.compile(r"(dt=[0-9-]+/([0-9a-f]+)-(\d+)-\d+-[0-9a-f]+\.jsonl\.gz)")

_Result = TypeVar("_Result")
_Entry = TypeVar("_Entry", ArchivedSync, ArchivedBatch, ArchivedEnd)


class StepKind(IntEnum):
    """The kinds of steps. Steps with the same sequence number run in the order of these values."""

    BEGIN = 0
    BATCH = 1
    END = 2


@dataclass(frozen=True, slots=True)
class StoredLines:
    """An S3 object with the archived lines of a unit, which is the part of a batch that one task encoded.

    `size` is the object's size in bytes. `line_numbers` selects the lines to replay, and starts at 0. None selects all
    lines.
    """

    archived: UnitLines
    uri: str
    etag: str
    size: int
    line_numbers: tuple[int, ...] | None = None

    @property
    def unit(self) -> str:
        """Return the name of the unit, which is the prefix that the raw IDs of all its rows share."""
        return row_id_prefix(self.archived.first_id)


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A batch to replay.

    `sequence_number` is the batch's place in the order of all journal entries. `lines` contains the batch's archived
    objects that still exist, and `missing` the names of those that do not. `rows` is the number of rows that the
    original sync wrote for the batch, or 0 if it is unknown.
    """

    sequence_number: int
    lines: tuple[StoredLines, ...] = ()
    rows: int = 0
    missing: tuple[str, ...] = ()


@dataclass
class StoredSync:
    """A sync of one stream, as read from the archive.

    - `entry`: the sync's first journal entry.
    - `catalog`: the stream's configuration, without the IDs of the sync.
    - `begun`: the sequence number of the sync's start.
    - `published`: the sequence number of the sync's publication of the table, or None if it published nothing.
    - `committed_batches`: the number of batches that the sync committed, or None if it is unknown.
    - `batches`: the batches with a journal entry, by batch number.
    - `unindexed`: the lines of batches without a journal entry, by batch number.
    """

    entry: ArchivedSync
    catalog: Mapping[str, Any]
    begun: int = 0
    batches: dict[int, StoredBatch] = field(default_factory=dict)
    unindexed: dict[int, list[StoredLines]] = field(default_factory=dict)
    published: int | None = None
    committed_batches: int | None = None

    def __str__(self) -> str:
        """Return the sync's name and start time, for messages."""
        return f"{self.name} of {time_text(self.entry.started)}"

    @property
    def name(self) -> str:
        """Return the unique name of the sync. The names of the sync's objects contain it."""
        return self.entry.sync

    @property
    def last_event(self) -> int:
        """Return the sequence number of the last known event of the sync.

        An event is the start of the sync, the commit of a batch, or the publication of the table.
        """
        return max(self.begun, *(batch.sequence_number for batch in self.batches.values()), self.published or 0)

    @cached_property
    def stream(self) -> Stream:
        """Return the stream as this sync configured it. Raises ConfigError if `catalog` is invalid."""
        [stream] = parse_catalog({"streams": [self.configured]})
        return stream

    @property
    def configured(self) -> Mapping[str, Any]:
        """Return the stream's entry in the configured catalog of this sync, including the IDs of the sync."""
        ids = {
            "generation_id": self.entry.generation,
            "minimum_generation_id": self.entry.minimum_generation,
            "sync_id": self.entry.sync_id,
        }
        return {**self.catalog, **{name: value for name, value in ids.items() if value is not None}}

    def configure(self, catalog: Mapping[str, Any]) -> None:
        """Set the stream's configuration to `catalog`, which the caller has read from the archive.

        If the S3 metadata of the archived objects had no space for the stream's name, also takes the name and namespace
        from the configuration.
        """
        self.catalog = catalog
        if not self.entry.stream:
            stream = catalog["stream"]
            names = {"stream": stream["name"], "namespace": stream.get("namespace") or None}
            self.entry = msgspec.structs.replace(self.entry, **names)

    def lines(self) -> Iterator[StoredLines]:
        """Yield the archived lines of all batches, including batches without a journal entry."""
        for batch in self.batches.values():
            yield from batch.lines
        for unindexed in self.unindexed.values():
            yield from unindexed


@dataclass(frozen=True, slots=True)
class StoredTable:
    """A table that has had the name of the archived table, or one that was restored to an earlier state.

    `first_sync` is the sync with the first journal entry of this table, and `started` is the sequence number of this
    entry. `found_empty` is false if the table contained rows at that time, or if this is unknown.
    """

    first_sync: StoredSync
    started: int
    found_empty: bool


@dataclass(frozen=True, slots=True)
class History:
    """The content of a table's archive.

    - `syncs`: the archived syncs, in the order of their starts.
    - `lost`: the syncs that a replay cannot run, because their first entry or their stream configuration is missing or
      unreadable.
    - `tables`: the tables that the syncs wrote, oldest first.
    - `unreadable`: a description of each unreadable journal entry and stream configuration.
    - `foreign`: a description of each object that is a copy of another object, or does not belong to the archive.

    A description starts with the object's name.
    """

    syncs: Sequence[StoredSync]
    lost: Sequence[StoredSync] = ()
    tables: Sequence[StoredTable] = ()
    unreadable: Sequence[str] = ()
    foreign: Sequence[str] = ()


def read_history(folder: str, access: AwsAccess) -> History:
    """Read the archive of a table. `folder` is its S3 URI. Raises errors of the S3 client."""
    # A replay later requires the ETags of this listing, so it notices objects that other programs replace.
    listing = {uri.removeprefix(f"{folder}/"): object_ for uri, object_ in listed(access.client("s3"), folder)}
    contents = _read_objects(folder, filter(_ENTRY.fullmatch, listing), access)
    entries = {name: match for name in contents if (match := _ENTRY.fullmatch(name)) is not None}
    lines = {name: match for name in listing if (match := _LINES.fullmatch(name)) is not None}
    reader = _Reader(folder, listing)
    for name, match in entries.items():
        # First add all syncs: S3 lists `000001.json` before `begin.json`, but an event needs its sync.
        if match[3] == "begin":
            reader.add_sync(name, contents[name])
    # The metadata of any of its lines describes a sync without a first entry.
    without_begin = {match[2]: match for match in entries.values() if match[2] not in reader.syncs}
    samples = {match[2]: name for name, match in lines.items() if match[2] in without_begin}
    described = _read_metadata(folder, samples.values(), access)
    for sync, match in without_begin.items():
        reader.add_sync_without_begin(match, described.get(samples.get(sync, "")))
    for name, match in entries.items():
        if match[3] != "begin":
            reader.add_event(name, match, contents[name])
    # Only at this point is it known which objects the journal lists.
    for name, metadata in _read_metadata(folder, lines.keys() - reader.indexed, access).items():
        reader.add_unindexed(lines[name], metadata)
    tables = reader.assign_sequence_numbers()
    # Read each configuration once, because most syncs share the same one.
    catalogs = {_catalog_name(sync.entry.catalog) for sync in reader.syncs.values()} & listing.keys()
    contents = _read_objects(folder, sorted(catalogs), access)
    syncs = sorted(reader.syncs.values(), key=lambda sync: (sync.begun, sync.name))
    usable = [reader.configure(sync, contents.get(_catalog_name(sync.entry.catalog))) for sync in syncs]
    lost = [sync for sync, is_usable in zip(syncs, usable, strict=True) if not is_usable]
    return History([*compress(syncs, usable)], lost, tables, reader.unreadable, reader.foreign)


@dataclass(frozen=True, slots=True)
class _Event:
    """A journal entry: its sync and kind, the table and the number of its last commit, and the time of the entry.

    `set_sequence_number` stores the place of the entry in the order of all entries.
    """

    sync: StoredSync
    kind: StepKind
    table: str
    position: int
    milliseconds: int
    set_sequence_number: Callable[[int], None]


class _Reader:
    """Builds the history of a table from the objects in its archive.

    `listing` maps the name of each object to its entry in S3's listing.
    """

    def __init__(self, folder: str, listing: Mapping[str, ObjectTypeDef]) -> None:
        self._folder = folder
        self._listing = listing
        self._events: list[_Event] = []
        self._units: dict[str, str] = {}
        self.syncs: dict[str, StoredSync] = {}
        self.indexed: set[str] = set()
        self.unreadable: list[str] = []
        self.foreign: list[str] = []

    def add_sync(self, name: str, content: bytes) -> None:
        """Add a sync. `content` is the sync's first journal entry, and `name` is the entry's name."""
        entry = self._entry(name, content, SYNC_DECODER)
        if entry is not None:
            self._add(entry)

    def add_sync_without_begin(self, match: re.Match[str], metadata: Mapping[str, str] | None) -> None:
        """Add a sync whose first journal entry is missing. `match` matches the name of one of its other entries.

        `metadata` is the S3 metadata of one of its archived objects, or None if there are none.
        """
        entry = ArchivedSync(match[2], int(match[1]), stream="", catalog="", mode="")
        with suppress(ValueError):
            entry = ArchivedSync.from_metadata({**metadata, "sync": match[2]}) if metadata else entry
        self.syncs[match[2]] = StoredSync(entry, {})

    def add_event(self, name: str, match: re.Match[str], content: bytes) -> None:
        """Add a later journal entry of a sync: the commit of a batch, or the publication of the table."""
        sync = self.syncs[match[2]]
        if match[3] == "end":
            if (end := self._entry(name, content, END_DECODER)) is not None:

                def publish(sequence_number: int) -> None:
                    sync.published = sequence_number

                sync.committed_batches = end.batches
                self._add_event(sync, StepKind.END, end.table, end.position, end.published, publish)
            return
        if (batch := self._entry(name, content, BATCH_DECODER)) is None:
            return
        missing = tuple(archived.name for archived in batch.objects if archived.name not in self._listing)
        lines = tuple(self._stored(archived) for archived in batch.objects if archived.name in self._listing)
        self.indexed.update(stored.archived.name for stored in lines)
        self._units |= {stored.archived.first_id: stored.archived.name for stored in lines}

        def commit(sequence_number: int) -> None:
            sync.batches[batch.batch] = StoredBatch(sequence_number, lines, batch.rows, missing)

        self._add_event(sync, StepKind.BATCH, batch.table, batch.position, batch.committed, commit)

    def add_unindexed(self, match: re.Match[str], metadata: Mapping[str, str]) -> None:
        """Add an object of archived lines that no journal entry lists.

        `metadata` is the object's S3 metadata. It describes the sync and the unit that wrote the object. A unit is the
        part of a batch that one task encodes.
        """
        name = match[1]
        try:
            described = ArchivedSync.from_metadata(metadata)
            count, bytes_, first_record = (int(metadata[key]) for key in ("lines", "bytes", "first-record"))
            lines = self._stored(UnitLines(name, count, bytes_, first_record, metadata["first-id"]))
        except (KeyError, ValueError):  # Errors of msgspec and JSON are ValueErrors.
            self.foreign.append(f"{name} has no archive metadata")
            return
        # The first ID of a unit contains random bits, so two objects with the same ID are copies of each other.
        original = self._units.setdefault(lines.archived.first_id, name)
        if described.sync != match[2] or original != name:
            self.foreign.append(f"{name} is a copy of another object")
            return
        sync = self.syncs.get(described.sync) or self._add(described)
        sync.unindexed.setdefault(int(match[3]), []).append(lines)

    def assign_sequence_numbers(self) -> list[StoredTable]:
        """Assign ascending sequence numbers to all journal entries. Return the tables to which the entries belong.

        Orders the entries by the time of their table's first entry, then by position (the number of the table's last
        commit), then by their own time.
        """
        by_table: dict[str, list[_Event]] = {}
        for event in sorted(self._events, key=lambda event: event.milliseconds):
            table = event.table
            if not table and event.position:  # An old entry of a sync without a first entry.
                table = next(reversed([*filter(None, by_table)]), "")
            by_table.setdefault(table, []).append(event)
        # Positions of different tables are not comparable, so the tables follow each other in the order of their first
        # entries.
        groups = [(table, group) for table, events in by_table.items() for group in _split_at_restarts(events)]
        groups.sort(key=lambda group: group[1][0].milliseconds)
        # Start at 1, because 0 stands for a table without a refresh (`_last_refresh`).
        numbers, tables = count(SPACING, SPACING), dict[int, StoredTable]()
        for index, (_, group) in enumerate(groups):
            for event in sorted(group, key=lambda event: (event.position, event.milliseconds)):
                number = next(numbers)
                event.set_sequence_number(number)
                found_empty = event.kind is StepKind.BEGIN and event.sync.entry.found_empty
                tables.setdefault(index, StoredTable(event.sync, number, found_empty))
        for sync in self.syncs.values():
            # The first entry of the sync may be missing.
            sync.begun = sync.begun or min(
                (*(batch.sequence_number for batch in sync.batches.values()), sync.published or sync.last_event)
            )
        # Syncs of earlier connector versions recorded no table ID. They wrote the first table with an ID.
        named = [index for index, (table, _) in enumerate(groups) if table]
        if len(named) < len(groups) and named:
            del tables[named[0]]
        return [*tables.values()]

    def configure(self, sync: StoredSync, catalog: bytes | None) -> bool:
        """Set the stream's configuration in a sync. Return False if `catalog` is None or not a valid configuration."""
        if catalog is None:
            return False
        try:
            if hashlib.sha256(catalog).hexdigest() != sync.entry.catalog:
                raise ValueError
            sync.configure(json.loads(catalog))
            # Parse the configuration here, so that an invalid one becomes a gap instead of an error of the plan.
            _ = sync.stream
        except (KeyError, TypeError, ValueError, ConnectorError):
            self.unreadable.append(f"{_catalog_name(sync.entry.catalog)} is not a valid stream catalog")
            return False
        return True

    def _add(self, entry: ArchivedSync) -> StoredSync:
        sync = self.syncs.setdefault(entry.sync, StoredSync(entry, {}))

        def begin(sequence_number: int) -> None:
            sync.begun = sequence_number

        self._add_event(sync, StepKind.BEGIN, entry.table, entry.position, entry.started, begin)
        return sync

    def _add_event(
        self,
        sync: StoredSync,
        kind: StepKind,
        table: str,
        position: int,
        milliseconds: int,
        set_sequence_number: Callable[[int], None],
    ) -> None:
        self._events.append(_Event(sync, kind, table or sync.entry.table, position, milliseconds, set_sequence_number))

    def _entry(self, name: str, content: bytes, decoder: msgspec.json.Decoder[_Entry]) -> _Entry | None:
        try:
            return decoder.decode(content)
        except msgspec.MsgspecError:
            self.unreadable.append(f"{name} is not a valid journal entry")
            return None

    def _stored(self, archived: UnitLines) -> StoredLines:
        object_ = self._listing[archived.name]
        return StoredLines(archived, f"{self._folder}/{archived.name}", object_["ETag"], object_["Size"])


def time_text(milliseconds: int) -> str:
    """Return a time as a string in ISO 8601. `milliseconds` counts from 1970-01-01 UTC."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="seconds")


def _catalog_name(hash_: str) -> str:
    return f"catalog/{hash_}.json"


def _split_at_restarts(events: Sequence[_Event]) -> Iterator[Sequence[_Event]]:
    """Yield the events of a table, which are in the order of time, in groups within which the positions increase.

    The positions start again if another program registers an earlier metadata file of an Iceberg table.
    """
    start = first_unsettled = highest = 0
    for index, event in enumerate(events):
        while events[first_unsettled].milliseconds + _MAX_DELAY_MILLISECONDS < event.milliseconds:
            # An append writes its last entry long after its last commit.
            if first_unsettled >= start and events[first_unsettled].kind is not StepKind.END:
                highest = max(highest, events[first_unsettled].position)
            first_unsettled += 1
        if 0 < event.position < highest and event.kind is not StepKind.END:
            yield events[start:index]
            start, highest = index, 0
    yield events[start:]


def _read_objects(folder: str, names: Iterable[str], access: AwsAccess) -> Mapping[str, bytes]:
    """Return the contents of these objects by name, without objects that do not exist (any more)."""
    s3 = access.client("s3")
    return _read_each(names, lambda name: get_or_none(s3, f"{folder}/{name}"))


def _read_metadata(folder: str, names: Iterable[str], access: AwsAccess) -> Mapping[str, Mapping[str, str]]:
    """Return the S3 metadata of these objects by name, without objects that do not exist (any more)."""
    s3, root = access.client("s3"), S3Address.parse(f"{folder}/")

    def metadata(name: str) -> Mapping[str, str] | None:
        try:
            return s3.head_object(Bucket=root.bucket, Key=f"{root.key}{name}")["Metadata"]
        except s3.exceptions.ClientError as error:
            if not is_missing(error, s3, f"{folder}/{name}"):
                raise
            return None

    return _read_each(sorted(names), metadata)


def _read_each(names: Iterable[str], read: Callable[[str], _Result | None]) -> Mapping[str, _Result]:
    """Return the results of `read` by name, without names for which it returns None. Several threads call `read`."""
    names = [*names]
    with ThreadPoolExecutor(CONCURRENT_CALLS, "archive") as pool:
        results = zip(names, pool.map(read, names), strict=True)
        return {name: result for name, result in results if result is not None}


# --- Plan -------------------------------------------------------------------------------------------------------------
# Plan which archived batches a replay writes, and in which order. This section performs no I/O.
#
# Each replayed sync prepares the table with its own stream configuration, commits its batches and publishes the table.
# The steps follow the order of the journal, even if syncs overlapped. The plan skips the batches whose rows the last
# refresh replaced, but the replay still adds the columns of these batches' syncs to the table.


_MAX_NAMES = 20
"""Maximum number of missing objects that the messages of a plan name."""


@dataclass(frozen=True, slots=True, order=True)
class Step:
    """A step of a replayed sync: prepare the table, commit batch number `batch`, or publish the table."""

    sequence_number: int
    sync: str
    kind: StepKind
    batch: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps of a replay, in order.

    - `columns`: the streams of skipped syncs, in append mode. The replay prepares the table for these streams, and
      thereby adds their columns.
    - `gaps`: sentences about rows of the table that are missing from the archive.
    - `notes`: other sentences for the user.
    - `skipped`: the S3 URIs of archived objects whose batch the sync did not commit. The replay skips these objects,
      because the source sent their records again in the next sync.
    """

    steps: Sequence[Step]
    syncs: Mapping[str, StoredSync]
    columns: Sequence[Stream]
    gaps: Sequence[str]
    notes: Sequence[str]
    skipped: Sequence[str]
    replaced_batches: Mapping[str, Sequence[int]]
    """The numbers of the batches whose rows a refresh has replaced, by the name of their sync."""

    @property
    def is_complete(self) -> bool:
        """Return whether the archive contains all rows since the table was created or last refreshed."""
        return bool(self.syncs) and not self.gaps

    @property
    def records(self) -> int:
        """Return the number of archived records that the replay reads."""
        return sum(stored.archived.lines for stored in self.lines(self.steps))

    @property
    def bytes(self) -> int:
        """Return the size in bytes of the records that the replay reads, uncompressed."""
        return sum(stored.archived.bytes for stored in self.lines(self.steps))

    def lines(self, steps: Iterable[Step]) -> list[StoredLines]:
        """Return the archived lines of the batches that these steps commit."""
        batches = (self.syncs[step.sync].batches[step.batch] for step in steps if step.kind is StepKind.BATCH)
        return [stored for batch in batches for stored in batch.lines]


def unindexed_units(history: History) -> frozenset[str]:
    """Return the names of the units that no journal entry lists.

    A unit is the part of a batch that one task encodes. The sync has committed such a unit only if the table contains
    the unit's rows.
    """
    batches = (lines for sync in history.syncs for lines in sync.unindexed.values())
    return frozenset(stored.unit for lines in batches for stored in lines)


def build_plan(history: History, state: TableState | None, committed_rows: Mapping[str, BitMap]) -> Plan:
    """Return the plan of a replay. Performs no I/O.

    `state` is the state of the archived table, or None if the table does not exist. `committed_rows` maps the names of
    units without a journal entry to the line numbers of their rows in the table. A unit is the part of a batch that one
    task encodes. Raises ConfigError if the archived configuration of a stream is invalid.
    """
    syncs = [
        # Copy the batches, because `_add_committed_unindexed` adds some, and callers use the history again.
        replace(sync, batches={**sync.batches}, published=sync.published or _published_without_entry(sync, state))
        for sync in history.syncs
    ]
    refresh_syncs, refreshed = _last_refresh(syncs)
    skipped: list[str] = []
    selected: dict[str, StoredSync] = {}
    replaced: dict[str, Sequence[int]] = {}
    columns: list[Stream] = []
    for sync in syncs:
        # The batches of the refresh precede its publication, but are what it published.
        replaced_until = 0 if sync in refresh_syncs else refreshed
        _add_committed_unindexed(sync, replaced_until, state, committed_rows, skipped)
        replaced_batches = [number for number, batch in sync.batches.items() if batch.sequence_number <= replaced_until]
        if replaced_batches:
            replaced[sync.name] = replaced_batches
        if sync in refresh_syncs or sync.last_event > refreshed:
            remaining = {number: batch for number, batch in sync.batches.items() if number not in replaced_batches}
            selected[sync.name] = replace(sync, batches=remaining)
        # A refresh replaces rows, but keeps columns.
        elif (stream := as_append(sync.stream)) not in columns:
            columns.append(stream)
    steps = sorted(step for sync in selected.values() for step in _steps(sync))
    incomplete = {sync.name for sync in syncs if len(sync.batches) < (sync.committed_batches or 0)}
    lost = [sync for sync in history.lost if sync.last_event > refreshed or _may_belong_to(sync, refresh_syncs)]
    gaps = [*_gaps(history, selected, refreshed, incomplete, lost)]
    return Plan(steps, selected, columns, gaps, [*_notes(history)], skipped, replaced)


def _steps(sync: StoredSync) -> Iterator[Step]:
    yield Step(sync.begun, sync.name, StepKind.BEGIN)
    for number, batch in sync.batches.items():
        yield Step(batch.sequence_number, sync.name, StepKind.BATCH, number)
    if sync.published is not None:
        # A batch without a journal entry has a higher number than the publication, but was committed before it.
        yield Step(max(sync.published, sync.last_event), sync.name, StepKind.END)


def _published_without_entry(sync: StoredSync, state: TableState | None) -> int | None:
    """Return a sequence number for a publication without a journal entry, or None if there was no such publication.

    A sync leaves such a publication if it is killed after it has published the table, but before it has written the
    journal entry.
    """
    if state is None or not (sync.stream.overwrites_table or sync.stream.dedup):
        return None
    # Merges do not record their syncs. If no rows are pending, the rows of all syncs are merged.
    is_published = state.published_by == sync.name if sync.stream.overwrites_table else not state.has_pending
    return sync.last_event if is_published else None


def _add_committed_unindexed(
    sync: StoredSync,
    replaced_until: int,
    state: TableState | None,
    committed_rows: Mapping[str, BitMap],
    skipped: list[str],
) -> None:
    """Add archived lines without a journal entry to the batches of a sync, if the table contains rows of these lines.

    New batches follow all other batches of the sync, and get sequence numbers greater than `replaced_until`. If the
    table contains no row of an archived object, adds the object's URI to `skipped`.
    """
    for number, unindexed in sorted(sync.unindexed.items()):
        for lines in unindexed:
            if rows := committed_rows.get(lines.unit):
                # An Iceberg commit contains all rows of a batch, so one row proves that all were committed, even if a
                # merge has replaced some since. The files of a Hive batch become visible one by one, so only the rows
                # that were found count.
                line_numbers = None if state is not None and state.commits_whole else tuple(rows)
                # The table contains these rows, so no refresh has replaced them: their number must be higher than that
                # of the refresh.
                batch = sync.batches.get(number) or StoredBatch(max(sync.last_event, replaced_until) + 1)
                committed = replace(lines, line_numbers=line_numbers)
                sync.batches[number] = replace(batch, lines=(*batch.lines, committed))
            else:
                skipped.append(lines.uri)


def _gaps(
    history: History,
    selected: Mapping[str, StoredSync],
    refreshed: int,
    incomplete: Collection[str],
    lost: Sequence[StoredSync],
) -> Iterator[str]:
    """Yield a sentence about each group of rows that is missing from the archive.

    `refreshed` is the sequence number of the last refresh. `incomplete` contains the names of the syncs that committed
    more batches than the archive contains. `lost` contains the syncs that a replay cannot run.
    """
    for table in history.tables:
        if table.started > refreshed and not table.found_empty:
            yield f"The table contained rows before its first archived sync, {table.first_sync}."
    for sync in selected.values():
        if not sync.entry.keeps_lines and (rows := sum(batch.rows for batch in sync.batches.values())):
            yield f"Sync {sync} wrote {counted(rows, 'row')}, but did not archive its records."
        if sync.name in incomplete:
            yield f"Sync {sync} committed more batches than the journal lists."
    for sync in lost:
        yield (
            f"Cannot replay sync {sync}: a lifecycle rule or another program deleted its first journal entry or its "
            "stream configuration."
        )
    missing_names = [name for sync in selected.values() for batch in sync.batches.values() for name in batch.missing]
    for name in missing_names[:_MAX_NAMES]:
        yield f"Cannot replay {name}: a lifecycle rule or another program deleted it."
    if len(missing_names) > _MAX_NAMES:
        yield f"Cannot replay {counted(len(missing_names) - _MAX_NAMES, 'more object')} for the same reason."
    for text in history.unreadable:
        yield f"{text}. Restore the object from a copy."


def _notes(history: History) -> Iterator[str]:
    for text in history.foreign:
        yield f"{text}. The replay skips this object."
    for table in history.tables[1:]:
        yield (
            f"Another table had this name before sync {table.first_sync}, or the table was restored to an earlier "
            "state. The replay includes the rows of that table or state."
        )


def _last_refresh(syncs: Sequence[StoredSync]) -> tuple[list[StoredSync], int]:
    """Return the syncs of the last published refresh, and the sequence number of the refresh's first publication.

    A refresh is one or more syncs that replace the table's rows. Returns an empty list and 0 if no sync published a
    refresh.
    """
    published = [sync for sync in syncs if sync.stream.overwrites_table and sync.published is not None]
    if not published:
        return [], 0
    last = max(published, key=lambda sync: sync.published or 0)
    generation = last.stream.overwrite_generation
    if generation is None:
        return [last], last.published or 0
    refresh_syncs = [
        sync for sync in syncs if sync.stream.overwrite_generation == generation and sync.begun <= last.begun
    ]
    # The first publication replaced the earlier rows. Later syncs of the same generation added rows to it.
    return refresh_syncs, min(sync.published for sync in refresh_syncs if sync.published is not None)


def _may_belong_to(sync: StoredSync, refresh_syncs: Sequence[StoredSync]) -> bool:
    """Return whether a sync that a replay cannot run may be one of the syncs of the last refresh."""
    generations = {refresh.stream.overwrite_generation for refresh in refresh_syncs} - {None}
    # Without a first entry and archived objects, the generation of the sync is unknown.
    return bool(generations) and (not sync.entry.catalog or sync.entry.generation in generations)


def as_append(stream: Stream, *, dedup: bool = False) -> Stream:
    """Return a copy of the stream in append mode, without the IDs of the sync.

    With `dedup`, the copy keeps the primary key, and the connector deduplicates rows by it.
    """
    return replace(
        stream,
        overwrite=False,
        generation=None,
        minimum_generation=None,
        sync_id=None,
        dedup=dedup,
        primary_key=stream.primary_key if dedup else (),
    )


# --- Progress ---------------------------------------------------------------------------------------------------------
# Store the progress of a replay in an object in the archive, so that a killed replay can resume.
#
# All writes are conditional. A new run claims the object. If an older run is still active, its next write to the object
# fails, and the older run stops. The new run finds the commits of the older run in the table.


class CompletedSyncSteps(msgspec.Struct, omit_defaults=True):
    """The completed steps of one replayed sync: its start, the numbers of its committed batches, and its end."""

    begun: bool = False
    batches: set[int] = msgspec.field(default_factory=set)
    ended: bool = False


class CompletedSteps(msgspec.Struct, omit_defaults=True):
    """The completed steps of a replay, as stored in the archive.

    `run` is the ID of the run that claimed the object last. `started` is the time at which the replay started with an
    empty target table, in seconds since 1970-01-01 UTC. `syncs` maps the name of each sync to its completed steps. In
    the state "claimed", no run of the replay has created the target table.
    """

    run: str
    started: float
    syncs: dict[str, CompletedSyncSteps] = msgspec.field(default_factory=dict)
    state: Literal["claimed", "replaying", "taking over", "complete"] = "replaying"

    def add(self, steps: Iterable[Step]) -> None:
        """Mark these steps as completed, without storing the progress."""
        for step in steps:
            sync = self.syncs.setdefault(step.sync, CompletedSyncSteps())
            match step.kind:
                case StepKind.BEGIN:
                    sync.begun = True
                case StepKind.BATCH:
                    sync.batches.add(step.batch)
                case StepKind.END:
                    sync.ended = True

    def includes(self, step: Step) -> bool:
        """Return whether a step is marked as completed."""
        sync = self.syncs.get(step.sync, CompletedSyncSteps())
        match step.kind:
            case StepKind.BEGIN:
                return sync.begun
            case StepKind.BATCH:
                return step.batch in sync.batches
            case StepKind.END:
                return sync.ended


_STEPS = msgspec.json.Decoder(CompletedSteps)


class ReplayProgress:
    """Stores the progress of a replay in the object at `uri`, an S3 URI.

    A run of the replay first claims the object. When another run claims the object, all later writes of the first run
    fail.
    """

    def __init__(self, uri: str, access: AwsAccess) -> None:
        self._object = ConditionalObject(uri, access.client("s3"))

    def claim(self, run: str, now: float) -> CompletedSteps:
        """Claim the object for this run. Return the steps that earlier runs have completed.

        If there was no earlier run, stores the state "claimed", and `now` as the start time. Raises ConnectorError if
        another run claims the object at the same time.
        """
        # The first `put` requires that the object does not exist. If it exists, `_read` remembers its ETag, and `save`
        # replaces only this version.
        completed = CompletedSteps(run, now, state="claimed")
        if not self._object.put(msgspec.json.encode(completed)):
            completed = self._read()
            completed.run = run
            self.save(completed)
        return completed

    def save(self, completed: CompletedSteps) -> None:
        """Store the completed steps. Raises ConnectorError if another run has claimed the object."""
        content = msgspec.json.encode(completed)
        # If the response of a write is lost, botocore repeats the write, which then fails because of the first one.
        if not self._object.put(content) and self._object.read() != content:
            raise _displaced()

    def require(self, run: str) -> None:
        """Raise ConnectorError if a run other than `run` has claimed the object."""
        if self._read().run != run:
            raise _displaced()

    def _read(self) -> CompletedSteps:
        return _STEPS.decode(self._object.read())


def _displaced() -> ConnectorError:
    message = (
        "This replay stopped, because a newer replay into the same table, or `delete-rows`, has displaced it. After "
        "`delete-rows`, run the replay again."
    )
    return ConnectorError(Failure(message, message, "config_error"))
