"""Plan a replay of a table's archive: read its journal, order its batches, and store the progress."""

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
# Read the archive of a table from S3: the journal of syncs and batches, and lines without an entry.
#
# An object that cannot be read is reported by name; reading continues with the others.

CONCURRENT_CALLS = 16

SPACING = 1000
"""The gap between the sequence numbers of two events, so that batches without an entry can be numbered in between."""

_ENTRY = re.compile(r"index/(\d+)-([0-9a-f]+)/(begin|end|\d+)\.json")
_LINES = re.compile(r"(dt=[0-9-]+/([0-9a-f]+)-(\d+)-\d+-[0-9a-f]+\.jsonl\.gz)")

_Entry = TypeVar("_Entry", ArchivedSync, ArchivedBatch, ArchivedEnd)


@dataclass(frozen=True, slots=True)
class StoredLines:
    """An object of archived lines in S3; `size` in bytes. `only` are the numbers of the lines to replay; None: all."""

    archived: UnitLines
    uri: str
    etag: str
    size: int
    only: tuple[int, ...] | None = None

    @property
    def unit(self) -> str:
        """Return the common prefix of the raw IDs of its rows."""
        return row_id_prefix(self.archived.first_id)


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A batch in the journal: its sequence number, its lines that still exist, and the number of rows written."""

    sequence_number: int
    lines: tuple[StoredLines, ...] = ()
    rows: int = 0


@dataclass
class StoredSync:
    """A sync of one stream. `batches` have an entry in the journal, `unindexed` are the lines of batches without one.

    `begun` and `published` are sequence numbers. `catalog` is the stream's configuration without the ids of the sync.
    """

    sync: ArchivedSync
    catalog: Mapping[str, Any]
    begun: int = 0
    batches: dict[int, StoredBatch] = field(default_factory=dict)
    unindexed: dict[int, list[StoredLines]] = field(default_factory=dict)
    published: int | None = None

    def __str__(self) -> str:
        """Return the sync's name and time, for messages."""
        return f"{self.name} of {time_text(self.sync.started)}"

    @property
    def name(self) -> str:
        """Return the unique name of the sync."""
        return self.sync.sync

    @property
    def last(self) -> int:
        """Return the sequence number of the sync's last known event."""
        return max(self.begun, *(batch.sequence_number for batch in self.batches.values()), self.published or 0)

    @cached_property
    def stream(self) -> Stream:
        """Return the stream as configured for the sync. Raises ConfigError if the catalog has none."""
        [stream] = parse_catalog({"streams": [self.configured]})
        return stream

    @property
    def configured(self) -> Mapping[str, Any]:
        """Return the stream's entry in the configured catalog of the sync."""
        sync = self.sync
        ids = {
            "generation_id": sync.generation,
            "minimum_generation_id": sync.minimum_generation,
            "sync_id": sync.sync_id,
        }
        return {**self.catalog, **{name: value for name, value in ids.items() if value is not None}}

    def configure(self, catalog: Mapping[str, Any]) -> None:
        """Set the stream's configuration. It also gives the names that were too long for an object's metadata."""
        self.catalog = catalog
        if not self.sync.stream:
            stream = catalog["stream"]
            named = {"stream": stream["name"], "namespace": stream.get("namespace") or None}
            self.sync = msgspec.structs.replace(self.sync, **named)

    def lines(self) -> Iterator[StoredLines]:
        """Yield the lines of all batches."""
        for batch in self.batches.values():
            yield from batch.lines
        for unindexed in self.unindexed.values():
            yield from unindexed


@dataclass(frozen=True, slots=True)
class History:
    """All syncs in the order in which they began.

    `missing` are the names of lines that the journal lists and S3 lacks, or whose catalog S3 lacks. `unreadable` are
    entries that cannot be read. `foreign` are objects that do not belong to this archive, or are copies. The texts of
    both begin with the object's name.
    """

    syncs: Sequence[StoredSync]
    missing: Sequence[str]
    unreadable: Sequence[str] = ()
    foreign: Sequence[str] = ()


def read_history(folder: str, access: AwsAccess) -> History:
    """Read the archive of the table with this folder, an S3 URI. Raises the errors of the S3 client."""
    present = {uri.removeprefix(f"{folder}/"): each for uri, each in listed(access.client("s3"), folder)}
    reader = _Reader(folder, present)
    entries = {name: match for name in present if (match := _ENTRY.fullmatch(name)) is not None}
    contents = dict(zip(entries, _read(folder, entries, access), strict=True))
    for name, match in entries.items():
        if match[3] == "begin":
            reader.begin(name, contents[name])
    for name, match in entries.items():
        if match[3] != "begin" and match[2] in reader.syncs:
            reader.event(name, match, contents[name])
    unindexed = [match for name in present if name not in reader.indexed and (match := _LINES.fullmatch(name))]
    for match, metadata in zip(unindexed, _heads(folder, [match[1] for match in unindexed], access), strict=True):
        reader.unindexed(match, metadata)
    reader.order()
    hashes = sorted({hash_ for sync in reader.syncs.values() if _catalog_name(hash_ := sync.sync.catalog) in present})
    catalogs = dict(zip(hashes, _read(folder, map(_catalog_name, hashes), access), strict=True))
    for name, sync in [*reader.syncs.items()]:
        if not reader.configure(sync, catalogs.get(sync.sync.catalog)):
            reader.missing += [lines.archived.name for lines in reader.syncs.pop(name).lines()]
    syncs = sorted(reader.syncs.values(), key=lambda sync: (sync.begun, sync.name))
    return History(syncs, reader.missing, reader.unreadable, reader.foreign)


class _Reader:
    """Assembles a history from the objects of a folder."""

    def __init__(self, folder: str, present: Mapping[str, ObjectTypeDef]) -> None:
        self._folder = folder
        self._present = present
        self._events: list[tuple[StoredSync, int, int, Callable[[int], None]]] = []
        self._units: dict[str, str] = {}
        self.syncs: dict[str, StoredSync] = {}
        self.indexed: set[str] = set()
        self.missing: list[str] = []
        self.unreadable: list[str] = []
        self.foreign: list[str] = []

    def begin(self, name: str, content: bytes) -> None:
        """Add the first entry of a sync."""
        entry = self._entry(name, content, ArchivedSync)
        if entry is not None:
            self._add(entry)

    def event(self, name: str, match: re.Match[str], content: bytes) -> None:
        """Add the entry of a batch or of a publication."""
        sync = self.syncs[match[2]]
        if match[3] == "end":
            if (end := self._entry(name, content, ArchivedEnd)) is not None:

                def publish(sequence_number: int) -> None:
                    sync.published = sequence_number

                self._events.append((sync, end.position, end.published, publish))
            return
        if (batch := self._entry(name, content, ArchivedBatch)) is None:
            return
        self.missing += [archived.name for archived in batch.objects if archived.name not in self._present]
        lines = tuple(self._stored(archived) for archived in batch.objects if archived.name in self._present)
        self.indexed.update(stored.archived.name for stored in lines)
        self._units |= {stored.archived.first_id: stored.archived.name for stored in lines}

        def commit(sequence_number: int) -> None:
            sync.batches[batch.batch] = StoredBatch(sequence_number, lines, batch.rows)

        self._events.append((sync, batch.position, batch.committed, commit))

    def unindexed(self, match: re.Match[str], metadata: Mapping[str, str]) -> None:
        """Add lines without an entry, as described by their object's metadata."""
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

    def order(self) -> None:
        """Assign each event its sequence number, ordered by table, position in the table, and time."""
        first: dict[str, int] = {}
        for sync, _, milliseconds, _ in self._events:
            first[sync.sync.table] = min(milliseconds, first.get(sync.sync.table, milliseconds))
        in_order = sorted(self._events, key=lambda event: (first[event[0].sync.table], *event[1:3]))
        for number, (*_, set_sequence_number) in enumerate(in_order, start=1):
            set_sequence_number(number * SPACING)

    def configure(self, sync: StoredSync, catalog: bytes | None) -> bool:
        """Set a sync's catalog; return False if it is missing or cannot be read."""
        if catalog is None:
            return False
        try:
            sync.configure(json.loads(catalog))
            _ = sync.stream
        except (KeyError, TypeError, ValueError, ConnectorError):
            self.unreadable.append(f"{_catalog_name(sync.sync.catalog)} is not a stream's catalog")
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
        listing = self._present[archived.name]
        return StoredLines(archived, f"{self._folder}/{archived.name}", listing["ETag"], listing["Size"])


def time_text(milliseconds: int) -> str:
    """Return a time, in milliseconds since 1970-01-01 UTC, as text."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="seconds")


def _catalog_name(hash_: str) -> str:
    return f"catalog/{hash_}.json"


def _read(folder: str, names: Iterable[str], access: AwsAccess) -> Iterator[bytes]:
    s3 = access.client("s3")
    with ThreadPoolExecutor(CONCURRENT_CALLS, "archive") as pool:
        yield from pool.map(lambda name: get(s3, f"{folder}/{name}"), names)


def _heads(folder: str, names: Sequence[str], access: AwsAccess) -> Iterator[Mapping[str, str]]:
    s3, root = access.client("s3"), S3Address.parse(f"{folder}/")
    with ThreadPoolExecutor(CONCURRENT_CALLS, "archive") as pool:
        yield from pool.map(lambda name: s3.head_object(Bucket=root.bucket, Key=f"{root.key}{name}")["Metadata"], names)


# --- Plan -------------------------------------------------------------------------------------------------------------
# Plan a replay: which archived batches to replay, and in which order. Pure: performs no I/O.
#
# Each sync prepares the table with its own catalog, commits its batches and publishes. The steps follow the order of
# the journal, also for overlapping syncs. The plan skips the batches that the last refresh replaced, but keeps the
# columns of their syncs.


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


# --- Progress ---------------------------------------------------------------------------------------------------------
# Store the progress of a replay in an object beside the archive, so that a killed replay resumes.
#
# All writes are conditional. A new replay claims the object. A replay that is still running then finds the object
# changed, and stops; the new one finds its commits in the table.


class CompletedSyncSteps(msgspec.Struct, omit_defaults=True):
    """The completed steps of one sync."""

    begun: bool = False
    batches: set[int] = msgspec.field(default_factory=set)
    ended: bool = False


class CompletedSteps(msgspec.Struct, omit_defaults=True):
    """The completed steps of a replay. `started`: when its table was empty, in seconds since 1970-01-01 UTC."""

    run: str
    started: float
    syncs: dict[str, CompletedSyncSteps] = msgspec.field(default_factory=dict)
    state: Literal["replaying", "taking over", "complete"] = "replaying"

    def add(self, steps: Iterable[Step]) -> None:
        """Record completed steps."""
        for step in steps:
            sync = self.syncs.setdefault(step.sync, CompletedSyncSteps())
            match step.kind:
                case StepKind.BEGIN:
                    sync.begun = True
                case StepKind.BATCH:
                    sync.batches.add(step.batch)
                case StepKind.END:
                    sync.ended = True

    def has(self, step: Step) -> bool:
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
    """The progress object at `uri`, with the ETag that this replay last saw."""

    def __init__(self, uri: str, access: AwsAccess) -> None:
        self._uri = uri
        self._s3 = access.client("s3")
        self._etag: str | None = None

    def claim(self, run: str, now: float) -> CompletedSteps:
        """Claim the object for this run and return the completed steps of earlier runs. Raises ConnectorError."""
        done = CompletedSteps(run, now)
        try:
            # Write first, read second: without permission to list the folder, S3 denies a read of a missing object.
            self._etag = put(self._s3, self._uri, msgspec.json.encode(done), if_none_match=True)
        except self._s3.exceptions.ClientError as error:
            if not is_changed(error):
                raise
            done = self._read()
            done.run = run
            self.save(done)
        return done

    def save(self, done: CompletedSteps) -> None:
        """Write the completed steps. Raises ConnectorError if another replay has claimed the object."""
        content = msgspec.json.encode(done)
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
        """Raise ConnectorError if another replay has claimed the object."""
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
