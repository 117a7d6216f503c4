"""Plan a replay: read the journal of a table's archive, order the archived batches, and store the replay's progress."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec

from destination_datalake.archive.objects import ArchivedBatch, ArchivedEnd, ArchivedSync, row_id_prefix
from destination_datalake.aws.objects import S3Address, get, is_changed, listed, put
from destination_datalake.errors import ConnectorError, Failure, counted
from destination_datalake.files.plan import UnitLines
from destination_datalake.protocol.catalog import Stream, parse_catalog

if TYPE_CHECKING:
    from mypy_boto3_s3.type_defs import ObjectTypeDef
    from pyroaring import BitMap

    from destination_datalake.aws.access import AwsAccess


# --- History ----------------------------------------------------------------------------------------------------------
# Read the archive of a table from S3: the journal of syncs and batches, and archived lines without a journal entry.
#
# If an object cannot be read, its name is reported, and the other objects are still read.

CONCURRENT_CALLS = 16

SPACING = 1000
"""The difference between the sequence numbers of consecutive journal events. Batches without a journal entry get
numbers in between."""

_ENTRY = re.compile(r"index/(\d+)-([0-9a-f]+)/(begin|end|\d+)\.json")
_LINES = re.compile(r"(dt=[0-9-]+/([0-9a-f]+)-(\d+)-\d+-[0-9a-f]+\.jsonl\.gz)")

_Entry = TypeVar("_Entry", ArchivedSync, ArchivedBatch, ArchivedEnd)


@dataclass(frozen=True, slots=True)
class StoredLines:
    """One object in S3 that contains the archived lines of a unit. `size` is the object's size in bytes.

    `line_numbers` are the numbers of the lines to replay, or None for all lines.
    """

    archived: UnitLines
    uri: str
    etag: str
    size: int
    line_numbers: tuple[int, ...] | None = None

    @property
    def unit(self) -> str:
        """Return the name of the unit whose lines the object contains: the common prefix of the raw IDs of its rows."""
        return row_id_prefix(self.archived.first_id)


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A batch in the journal: its sequence number, its archived objects that still exist, and its number of rows."""

    sequence_number: int
    lines: tuple[StoredLines, ...] = ()
    rows: int = 0


@dataclass
class StoredSync:
    """One sync of one stream, as read from the archive.

    `entry` is the first journal entry of the sync. `batches` maps batch numbers to the batches that have a journal
    entry. `unindexed` maps batch numbers to the lines of batches that have no journal entry. `begun` and `published`
    are the sequence numbers of the sync's start and publication. `published` is None if the sync did not publish the
    table. `catalog` is the stream's configuration without the IDs of the sync.
    """

    entry: ArchivedSync
    catalog: Mapping[str, Any]
    begun: int = 0
    batches: dict[int, StoredBatch] = field(default_factory=dict)
    unindexed: dict[int, list[StoredLines]] = field(default_factory=dict)
    published: int | None = None

    def __str__(self) -> str:
        """Return the name and time of the sync, for messages."""
        return f"{self.name} of {time_text(self.entry.started)}"

    @property
    def name(self) -> str:
        """Return the unique name of the sync."""
        return self.entry.sync

    @property
    def last_event(self) -> int:
        """Return the sequence number of the sync's last known event."""
        return max(self.begun, *(batch.sequence_number for batch in self.batches.values()), self.published or 0)

    @cached_property
    def stream(self) -> Stream:
        """Return the stream as configured for the sync. Raises ConfigError if `catalog` cannot be parsed."""
        [stream] = parse_catalog({"streams": [self.configured]})
        return stream

    @property
    def configured(self) -> Mapping[str, Any]:
        """Return the stream's entry in the sync's configured catalog."""
        ids = {
            "generation_id": self.entry.generation,
            "minimum_generation_id": self.entry.minimum_generation,
            "sync_id": self.entry.sync_id,
        }
        return {**self.catalog, **{name: value for name, value in ids.items() if value is not None}}

    def configure(self, catalog: Mapping[str, Any]) -> None:
        """Set the stream's configuration, as read from the archive.

        If the stream's name and namespace did not fit in the S3 objects' metadata, take them from the configuration.
        """
        self.catalog = catalog
        if not self.entry.stream:
            stream = catalog["stream"]
            names = {"stream": stream["name"], "namespace": stream.get("namespace") or None}
            self.entry = msgspec.structs.replace(self.entry, **names)

    def lines(self) -> Iterator[StoredLines]:
        """Yield the archived lines of all batches, with or without a journal entry."""
        for batch in self.batches.values():
            yield from batch.lines
        for unindexed in self.unindexed.values():
            yield from unindexed


@dataclass(frozen=True, slots=True)
class History:
    """The syncs in a table's archive, in the order in which they began, and the objects that cannot be replayed.

    `missing` contains the names of objects with archived lines that cannot be replayed: the journal lists them but S3
    does not contain them, or the catalog of their sync is missing or unreadable. `unreadable` describes unreadable
    entries and catalogs. `foreign` describes copies, and objects that do not belong to this archive. Each description
    starts with the object's name.
    """

    syncs: Sequence[StoredSync]
    missing: Sequence[str]
    unreadable: Sequence[str] = ()
    foreign: Sequence[str] = ()


def read_history(folder: str, access: AwsAccess) -> History:
    """Read the archive of a table. `folder` is the S3 URI of its folder. Raises the errors of the S3 client."""
    listing = {uri.removeprefix(f"{folder}/"): object_ for uri, object_ in listed(access.client("s3"), folder)}
    reader = _Reader(folder, listing)
    entries = {name: match for name in listing if (match := _ENTRY.fullmatch(name)) is not None}
    contents = dict(zip(entries, _read_objects(folder, entries, access), strict=True))
    for name, match in entries.items():
        if match[3] == "begin":
            reader.add_sync(name, contents[name])
    for name, match in entries.items():
        if match[3] != "begin" and match[2] in reader.syncs:
            reader.add_event(name, match, contents[name])
    unindexed = [match for name in listing if name not in reader.indexed and (match := _LINES.fullmatch(name))]
    for match, metadata in zip(
        unindexed, _read_metadata(folder, [match[1] for match in unindexed], access), strict=True
    ):
        reader.add_unindexed(match, metadata)
    reader.assign_sequence_numbers()
    hashes = sorted({hash_ for sync in reader.syncs.values() if _catalog_name(hash_ := sync.entry.catalog) in listing})
    catalogs = dict(zip(hashes, _read_objects(folder, map(_catalog_name, hashes), access), strict=True))
    for name, sync in [*reader.syncs.items()]:
        if not reader.configure(sync, catalogs.get(sync.entry.catalog)):
            reader.missing += [lines.archived.name for lines in reader.syncs.pop(name).lines()]
    syncs = sorted(reader.syncs.values(), key=lambda sync: (sync.begun, sync.name))
    return History(syncs, reader.missing, reader.unreadable, reader.foreign)


class _Reader:
    """Assemble the history of a table from the objects in its archive.

    `listing` maps the names of all objects to their entries in S3's listing.
    """

    def __init__(self, folder: str, listing: Mapping[str, ObjectTypeDef]) -> None:
        self._folder = folder
        self._listing = listing
        self._events: list[tuple[StoredSync, int, int, Callable[[int], None]]] = []
        self._units: dict[str, str] = {}
        self.syncs: dict[str, StoredSync] = {}
        self.indexed: set[str] = set()
        self.missing: list[str] = []
        self.unreadable: list[str] = []
        self.foreign: list[str] = []

    def add_sync(self, name: str, content: bytes) -> None:
        """Add the sync that begins with the journal entry `content`."""
        entry = self._entry(name, content, ArchivedSync)
        if entry is not None:
            self._add(entry)

    def add_event(self, name: str, match: re.Match[str], content: bytes) -> None:
        """Add the journal entry of a batch or a publication."""
        sync = self.syncs[match[2]]
        if match[3] == "end":
            if (end := self._entry(name, content, ArchivedEnd)) is not None:

                def publish(sequence_number: int) -> None:
                    sync.published = sequence_number

                self._events.append((sync, end.position, end.published, publish))
            return
        if (batch := self._entry(name, content, ArchivedBatch)) is None:
            return
        self.missing += [archived.name for archived in batch.objects if archived.name not in self._listing]
        lines = tuple(self._stored(archived) for archived in batch.objects if archived.name in self._listing)
        self.indexed.update(stored.archived.name for stored in lines)
        self._units |= {stored.archived.first_id: stored.archived.name for stored in lines}

        def commit(sequence_number: int) -> None:
            sync.batches[batch.batch] = StoredBatch(sequence_number, lines, batch.rows)

        self._events.append((sync, batch.position, batch.committed, commit))

    def add_unindexed(self, match: re.Match[str], metadata: Mapping[str, str]) -> None:
        """Add an object of archived lines that has no journal entry. Its S3 metadata names its sync and its unit."""
        name = match[1]
        try:
            described = ArchivedSync.from_metadata(metadata)
            count, bytes_, first_record = (int(metadata[key]) for key in ("lines", "bytes", "first-record"))
            lines = self._stored(UnitLines(name, count, bytes_, first_record, metadata["first-id"]))
        except (KeyError, ValueError):  # Errors of msgspec and JSON are ValueErrors.
            self.foreign.append(f"{name} has no archive metadata")
            return
        original = self._units.setdefault(lines.archived.first_id, name)
        if described.sync != match[2] or original != name:
            self.foreign.append(f"{name} is a copy of another object")
            return
        sync = self.syncs.get(described.sync) or self._add(described)
        sync.unindexed.setdefault(int(match[3]), []).append(lines)

    def assign_sequence_numbers(self) -> None:
        """Assign sequence numbers to all journal events.

        The events are ordered by the first event of their table, then by position, then by time.
        """
        table_starts: dict[str, int] = {}
        for sync, _, milliseconds, _ in self._events:
            table_starts[sync.entry.table] = min(milliseconds, table_starts.get(sync.entry.table, milliseconds))
        in_order = sorted(self._events, key=lambda event: (table_starts[event[0].entry.table], *event[1:3]))
        for number, (*_, set_sequence_number) in enumerate(in_order, start=1):
            set_sequence_number(number * SPACING)

    def configure(self, sync: StoredSync, catalog: bytes | None) -> bool:
        """Set the stream's configuration of a sync. Return False if the configuration is missing or unreadable."""
        if catalog is None:
            return False
        try:
            sync.configure(json.loads(catalog))
            _ = sync.stream
        except (KeyError, TypeError, ValueError, ConnectorError):
            self.unreadable.append(f"{_catalog_name(sync.entry.catalog)} is not a stream's catalog")
            return False
        return True

    def _add(self, entry: ArchivedSync) -> StoredSync:
        sync = self.syncs.setdefault(entry.sync, StoredSync(entry, {}))

        def begin(sequence_number: int) -> None:
            sync.begun = sequence_number

        self._events.append((sync, entry.position, entry.started, begin))
        return sync

    def _entry(self, name: str, content: bytes, kind: type[_Entry]) -> _Entry | None:
        try:
            return msgspec.json.decode(content, type=kind)
        except msgspec.MsgspecError:
            self.unreadable.append(f"{name} is not an entry of the journal")
            return None

    def _stored(self, archived: UnitLines) -> StoredLines:
        object_ = self._listing[archived.name]
        return StoredLines(archived, f"{self._folder}/{archived.name}", object_["ETag"], object_["Size"])


def time_text(milliseconds: int) -> str:
    """Return a time as text, from milliseconds since 1970-01-01 UTC."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="seconds")


def _catalog_name(hash_: str) -> str:
    return f"catalog/{hash_}.json"


def _read_objects(folder: str, names: Iterable[str], access: AwsAccess) -> Iterator[bytes]:
    s3 = access.client("s3")
    with ThreadPoolExecutor(CONCURRENT_CALLS, "archive") as pool:
        yield from pool.map(lambda name: get(s3, f"{folder}/{name}"), names)


def _read_metadata(folder: str, names: Sequence[str], access: AwsAccess) -> Iterator[Mapping[str, str]]:
    s3, root = access.client("s3"), S3Address.parse(f"{folder}/")
    with ThreadPoolExecutor(CONCURRENT_CALLS, "archive") as pool:
        yield from pool.map(lambda name: s3.head_object(Bucket=root.bucket, Key=f"{root.key}{name}")["Metadata"], names)


# --- Plan -------------------------------------------------------------------------------------------------------------
# Plan which archived batches a replay writes, and in which order. This section performs no I/O.
#
# Each replayed sync prepares the table with its own stream configuration, commits its batches and publishes the table.
# The steps follow the order of the journal, even if syncs overlapped. The plan skips the batches whose rows the last
# refresh replaced, but keeps the columns of their syncs.


_MAX_NAMES = 20
"""The maximum number of missing archived objects that messages list by name."""


@dataclass(frozen=True, slots=True)
class TableFacts:
    """The facts about an existing table that a plan depends on.

    `published_by` is the sync that published the last overwrite, or None if unknown. `has_pending` is true if the table
    contains rows that are committed but not yet merged. `commits_whole` is true if a commit publishes its whole batch
    atomically.
    """

    published_by: str | None
    has_pending: bool
    commits_whole: bool


class StepKind(IntEnum):
    """The kind of a step. Steps with the same sequence number are ordered by kind."""

    BEGIN = 0
    BATCH = 1
    END = 2


@dataclass(frozen=True, slots=True, order=True)
class Step:
    """A step of a replayed sync: prepare the table, commit the batch with number `batch`, or publish the table."""

    sequence_number: int
    sync: str
    kind: StepKind
    batch: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps of a replay, in order.

    `columns` contains the streams of skipped syncs, in append mode and without the IDs of the syncs. The replay
    prepares the table for each of these streams, which adds their columns. `gaps` are sentences about rows of the table
    that are missing from the archive. `notes` are other sentences for the user. `skipped` contains the URIs of archived
    lines from uncommitted batches. These lines are not needed, because the source sent their records again in the next
    sync.
    """

    steps: Sequence[Step]
    syncs: Mapping[str, StoredSync]
    columns: Sequence[Stream]
    gaps: Sequence[str]
    notes: Sequence[str]
    skipped: Sequence[str]
    replaced_batches: Mapping[str, Sequence[int]]
    """The numbers of the batches whose rows a refresh replaced, by the name of the sync."""

    @property
    def is_complete(self) -> bool:
        """Return whether the archive contains all rows of the table since its creation or since its last refresh."""
        return bool(self.syncs) and not self.gaps

    @property
    def records(self) -> int:
        """Return the number of archived records that the plan replays."""
        return sum(stored.archived.lines for stored in self.lines(self.steps))

    @property
    def bytes(self) -> int:
        """Return the uncompressed size of the archived records that the plan replays, in bytes."""
        return sum(stored.archived.bytes for stored in self.lines(self.steps))

    def lines(self, steps: Iterable[Step]) -> list[StoredLines]:
        """Return the archived lines of all batches in these steps. Steps that are not batches are ignored."""
        batches = (self.syncs[step.sync].batches[step.batch] for step in steps if step.kind is StepKind.BATCH)
        return [stored for batch in batches for stored in batch.lines]


def unindexed_units(history: History) -> frozenset[str]:
    """Return the names of the units whose archived lines have no journal entry.

    Only the rows of the table show whether these lines were committed.
    """
    batches = (lines for sync in history.syncs for lines in sync.unindexed.values())
    return frozenset(stored.unit for lines in batches for stored in lines)


def build_plan(history: History, state: TableFacts | None, committed_rows: Mapping[str, BitMap]) -> Plan:
    """Return the plan of a replay.

    `state` describes the archived table, or is None if the table does not exist. `committed_rows` maps each unit
    without a journal entry to the line numbers of its rows in the table. Raises ConfigError if the archived
    configuration of a stream cannot be parsed.
    """
    syncs = [
        replace(sync, batches={**sync.batches}, published=sync.published or _published_without_entry(sync, state))
        for sync in history.syncs
    ]
    refresh_syncs, refreshed = _last_refresh(syncs)
    skipped: list[str] = []
    selected: dict[str, StoredSync] = {}
    replaced: dict[str, Sequence[int]] = {}
    columns: list[Stream] = []
    for sync in syncs:
        replaced_until = 0 if sync in refresh_syncs else refreshed
        _add_committed_unindexed(sync, replaced_until, state, committed_rows, skipped)
        replaced_batches = [number for number, batch in sync.batches.items() if batch.sequence_number <= replaced_until]
        if replaced_batches:
            replaced[sync.name] = replaced_batches
        if sync in refresh_syncs or sync.last_event > refreshed:
            remaining = {number: batch for number, batch in sync.batches.items() if number not in replaced_batches}
            selected[sync.name] = replace(sync, batches=remaining)
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
        yield Step(max(sync.published, sync.last_event), sync.name, StepKind.END)


def _published_without_entry(sync: StoredSync, state: TableFacts | None) -> int | None:
    """Return the sequence number for a publication that has no journal entry, or None if the sync did not publish.

    The entry is missing if the sync was killed after it published the table, but before it wrote the entry.
    """
    if state is None or not (sync.stream.overwrites_table or sync.stream.dedup):
        return None
    is_published = state.published_by == sync.name if sync.stream.overwrites_table else not state.has_pending
    return sync.last_event if is_published else None


def _add_committed_unindexed(
    sync: StoredSync,
    replaced_until: int,
    state: TableFacts | None,
    committed_rows: Mapping[str, BitMap],
    skipped: list[str],
) -> None:
    """Add the lines of a sync that have no journal entry but exist as rows in the table.

    If an object without a journal entry has no rows in the table, add the object's URI to `skipped`.

    The batches of the added lines follow all other batches of the sync, and have sequence numbers greater than
    `replaced_until`.
    """
    for number, unindexed in sorted(sync.unindexed.items()):
        for lines in unindexed:
            if rows := committed_rows.get(lines.unit):
                line_numbers = None if state is not None and state.commits_whole else tuple(rows)
                batch = sync.batches.get(number) or StoredBatch(max(sync.last_event, replaced_until) + 1)
                committed = replace(lines, line_numbers=line_numbers)
                sync.batches[number] = replace(batch, lines=(*batch.lines, committed))
            else:
                skipped.append(lines.uri)


def _gaps(history: History, selected: Mapping[str, StoredSync], has_refresh: bool) -> Iterator[str]:
    """Yield sentences about rows of the table that are missing from the archive."""
    sync_names = {stored.name for stored in history.syncs}
    if not has_refresh:
        for stored in _first_of_each_table(history):
            if not stored.entry.found_empty:
                yield f"The table had rows before sync {stored}, which is the first in the archive."
    for sync in selected.values():
        if not sync.entry.keeps_lines and (rows := sum(batch.rows for batch in sync.batches.values())):
            yield f"Sync {sync} did not archive its records: {counted(rows, 'row')}."
    missing_names = [name for name in history.missing if _is_missing(name, selected, has_refresh, sync_names)]
    for name in missing_names[:_MAX_NAMES]:
        yield f"{name} is missing: a lifecycle rule or another program has deleted it, or the catalog of its sync."
    if len(missing_names) > _MAX_NAMES:
        yield f"{len(missing_names) - _MAX_NAMES:,} more objects are missing."
    for text in history.unreadable:
        yield f"{text}. Restore it from a copy."


def _notes(history: History) -> Iterator[str]:
    for text in history.foreign:
        yield f"{text}. The replay skips it."
    for stored in _first_of_each_table(history)[1:]:
        yield f"Before sync {stored}, another table had this name. The replay includes its rows."


def _first_of_each_table(history: History) -> list[StoredSync]:
    """Return the first sync of each table that has had this name, oldest table first.

    Journal entries written by earlier versions of the connector do not identify their table. They are assumed to belong
    to the same table as the entry after them.
    """
    first: dict[str, StoredSync] = {}
    for stored in history.syncs:
        first.setdefault(stored.entry.table, stored)
    unnamed = first.pop("", None)
    named = [*first.values()]
    return named if unnamed is None else [unnamed, *named[1:]]


def _last_refresh(syncs: Sequence[StoredSync]) -> tuple[list[StoredSync], int]:
    """Return the syncs of the last published refresh, and the sequence number of the refresh's first publication.

    If no refresh was published, return an empty list and 0.
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
    return refresh_syncs, min(sync.published for sync in refresh_syncs if sync.published is not None)


def _is_missing(lines: str, selected: Mapping[str, StoredSync], has_refresh: bool, syncs: Collection[str]) -> bool:
    """Return whether the table should contain rows whose archived lines are missing. `lines` is the name of the object.

    The object's name identifies its batch.

    The rows of batches that are not selected were replaced by a refresh. The lines of a sync that is not in `syncs`
    count as missing, unless the table was refreshed.
    """
    sync, batch, *_ = lines.rpartition("/")[2].split("-")
    return int(batch) in selected[sync].batches if sync in selected else not has_refresh and sync not in syncs


def as_append(stream: Stream, *, dedup: bool = False) -> Stream:
    """Return a copy of the stream in append mode, without the IDs of a sync.

    With `dedup`, the copy is deduplicated and keeps the stream's primary key.
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
# All writes are conditional. A new replay claims the object. If an older replay still runs, its next write to the
# object fails, and it stops. The new replay finds the commits of the older replay in the table.


class CompletedSyncSteps(msgspec.Struct, omit_defaults=True):
    """The completed steps of one replayed sync."""

    begun: bool = False
    batches: set[int] = msgspec.field(default_factory=set)
    ended: bool = False


class CompletedSteps(msgspec.Struct, omit_defaults=True):
    """The completed steps of a replay.

    `started` is the time in seconds since 1970-01-01 UTC at which the target table was empty.
    """

    run: str
    started: float
    syncs: dict[str, CompletedSyncSteps] = msgspec.field(default_factory=dict)
    state: Literal["replaying", "taking over", "complete"] = "replaying"

    def add(self, steps: Iterable[Step]) -> None:
        """Mark these steps as completed."""
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
        """Return whether a step is completed."""
        sync = self.syncs.get(step.sync, CompletedSyncSteps())
        match step.kind:
            case StepKind.BEGIN:
                return sync.begun
            case StepKind.BATCH:
                return step.batch in sync.batches
            case StepKind.END:
                return sync.ended


class ReplayProgress:
    """The object at the S3 URI `uri` that stores the progress of a replay.

    A replay claims the object first. Its later writes fail if another replay has claimed the object in between.
    """

    def __init__(self, uri: str, access: AwsAccess) -> None:
        self._uri = uri
        self._s3 = access.client("s3")
        self._etag: str | None = None

    def claim(self, run: str, now: float) -> CompletedSteps:
        """Claim the progress object for this run. Return the completed steps of earlier runs. Raises ConnectorError."""
        completed = CompletedSteps(run, now)
        try:
            # Write before reading, because S3 answers a read of a missing object with an access denial if the caller
            # may not list the folder.
            self._etag = put(self._s3, self._uri, msgspec.json.encode(completed), if_none_match=True)
        except self._s3.exceptions.ClientError as error:
            if not is_changed(error):
                raise
            completed = self._read()
            completed.run = run
            self.save(completed)
        return completed

    def save(self, completed: CompletedSteps) -> None:
        """Store the completed steps. Raises ConnectorError if another replay has claimed the progress object."""
        content = msgspec.json.encode(completed)
        try:
            if self._etag is None:
                self._etag = put(self._s3, self._uri, content, if_none_match=True)
            else:
                self._etag = put(self._s3, self._uri, content, if_match=self._etag)
        except self._s3.exceptions.ClientError as error:
            if is_changed(error):
                raise _displaced() from error
            raise

    def require(self, run: str) -> None:
        """Raise ConnectorError if another replay has claimed the progress object."""
        if self._read().run != run:
            raise _displaced()

    def _read(self) -> CompletedSteps:
        address = S3Address.parse(self._uri)
        answer = self._s3.get_object(Bucket=address.bucket, Key=address.key)
        self._etag = answer["ETag"]
        return msgspec.json.decode(answer["Body"].read(), type=CompletedSteps)


def _displaced() -> ConnectorError:
    message = (
        "This replay was stopped: a newer replay into the same table, or `delete-rows`, has displaced it. After "
        "`delete-rows`, run the replay again."
    )
    return ConnectorError(Failure(message, message, "config_error"))
