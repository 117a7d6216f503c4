"""Write a sync's RECORD lines to the archive, and its commits to the journal of each table's archive.

For each batch, the sync first publishes the batch's lines in the archive. It then commits the batch to the table, and
finally records the commit in the journal.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from destination_datalake.archive.lines import ArchiveSink
from destination_datalake.archive.objects import (
    ARCHIVE_FOLDER,
    BATCH_DECODER,
    SCHEMA_FOLDER,
    ArchivedBatch,
    ArchivedEnd,
    ArchivedSync,
    ArchiveLocation,
    ConditionalObject,
    table_folder,
)
from destination_datalake.aws.errors import explain
from destination_datalake.aws.objects import S3Address, delete_uncommitted, listed, publish_all, put
from destination_datalake.errors import ConnectorError
from destination_datalake.files.plan import LineFile
from destination_datalake.schema.glue import glue_type
from destination_datalake.tables.table import CommitListener

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.files.plan import LineSink
    from destination_datalake.protocol.catalog import Stream, StreamId
    from destination_datalake.tables.table import Table, TablePosition

_logger = logging.getLogger(__name__)

_IDS = ("generation_id", "minimum_generation_id", "sync_id")


class ArchiveLedger(CommitListener):
    """Publishes a sync's archived lines, and records the sync's commits in the journals of its tables. Thread-safe.

    `root` is the S3 URI of the archive, without a trailing slash. `streams` pairs each stream with its entry in the
    configured catalog. With `keeps_lines=False`, the ledger archives no records. It then only writes the journals of
    tables that earlier syncs archived, so that a replay can report the missing rows.
    """

    def __init__(
        self,
        root: str,
        sync: str,
        streams: Iterable[tuple[Stream, Mapping[str, Any]]],
        access: AwsAccess,
        clock: Callable[[], float] = time.time,
        *,
        keeps_lines: bool = True,
    ) -> None:
        self._keeps_lines = keeps_lines
        self._root = root
        self._sync = sync
        self._streams = {stream.id: (stream, configured) for stream, configured in streams}
        self._access = access
        self._clock = clock
        # Fixed at the start, so that all objects of a sync are in one folder even if the sync runs past midnight.
        self._day = datetime.fromtimestamp(clock(), UTC).date().isoformat()
        self._locations: dict[StreamId, ArchiveLocation] = {}
        self._batches: dict[StreamId, set[int]] = {}

    def begin(self, stream_id: StreamId, table: Table) -> None:
        """Record in the journal that the sync has prepared a stream's table, and whether the table was empty.

        Does nothing if this sync archives no records and no earlier sync archived records of the table. Raises
        ConnectorError for AWS errors with a known cause, and any other error of the S3 client unchanged.
        """
        if not (self._keeps_lines or table.is_archived()):
            return
        stream, configured = self._streams[stream_id]
        catalog, position = _encode_catalog(configured), table.position()
        sync = ArchivedSync(
            sync=self._sync,
            started=int(self._clock() * 1000),
            stream=stream.id.name,
            namespace=stream.id.namespace,
            catalog=hashlib.sha256(catalog).hexdigest(),
            mode=str(configured.get("destination_sync_mode", "append")),
            key=stream.primary_key,
            cursor=stream.cursor_field,
            generation=stream.generation,
            minimum_generation=stream.minimum_generation,
            sync_id=stream.sync_id,
            found_empty=table.is_empty(),
            table=position.table,
            position=position.number,
            keeps_lines=self._keeps_lines,
        )
        location = ArchiveLocation(table_folder(self._root, *table.name), self._day, sync)
        # Write the configuration before the entry that refers to it. A kill in between leaves an unused configuration,
        # not an entry that a replay cannot use.
        with _raise_connector_errors(f"{location.folder}/"):
            self._write_catalog(f"{location.folder}/catalog/{sync.catalog}.json", catalog)
        self._put_entry(location, "begin", sync)
        # Set last, because `add` and `end` take the location as the sign that the first entry exists.
        self._locations[stream_id], self._batches[stream_id] = location, set()

    def sinks(self, stream: StreamId) -> tuple[LineSink, ...]:
        """Return the sinks to which executors write the stream's lines, or an empty tuple if `keeps_lines` is false."""
        return (ArchiveSink(self._locations[stream]),) if self._keeps_lines else ()

    def publish(self, files: Sequence[LineFile]) -> None:
        """Make the archived lines of a batch visible to readers. Raises errors of the S3 client.

        Call this method before you commit the batch, so that the archive contains every committed row.
        """
        publish_all([file.pending_upload for file in files], self._access.client("s3"))

    def add(self, stream: StreamId, batch: int, files: Sequence[LineFile], position: TablePosition, rows: int) -> None:
        """Record in the journal that the sync has committed a batch, which wrote `rows` rows.

        `files` contains the batch's archived lines. `position` is the position of the commit in the table's history.
        Call this method before you release the batch's states, so that the journal contains every acknowledged row.
        Does nothing if `begin` wrote no entry for the stream, or if there are neither files nor rows. Raises the same
        errors as `begin`.
        """
        if (location := self._locations.get(stream)) is not None and (files or rows):
            objects = tuple(file.content for file in files)
            entry = ArchivedBatch(batch, int(self._clock() * 1000), objects, position.number, rows, position.table)
            self._put_entry(location, f"{batch:06d}", entry)
            self._batches[stream].add(batch)

    def end(self, stream: StreamId, table: Table) -> None:
        """Record in the journal that the sync has published the stream's table, and update the table's description.

        The description is a JSON object in the folder `_schema`. It contains the table's columns and the folder of the
        table's files. If this method cannot write the description, it logs a warning. Does nothing if `begin` wrote no
        entry for the stream. Raises the same errors as `begin`.
        """
        if (location := self._locations.get(stream)) is None:
            return
        position, batches = table.position(), len(self._batches[stream])
        self._put_entry(
            location, "end", ArchivedEnd(int(self._clock() * 1000), position.number, position.table, batches)
        )
        (database, name), plan = table.name, table.plan()
        columns = [
            {"name": column.name, "type": glue_type(column.type), "origin": column.origin}
            for column in (*plan.metadata, *plan.columns)
        ]
        uri = f"{self._root.removesuffix(ARCHIVE_FOLDER)}{SCHEMA_FOLDER}/{database}/{name}.json"
        schema = {"database": database, "table": name, "stream": str(stream), "files": plan.folder, "columns": columns}
        try:
            # Names can contain unpaired surrogates, which UTF-8 cannot encode.
            content = json.dumps(schema, indent=1, ensure_ascii=False).encode(errors="replace")
            description = ConditionalObject(uri, self._access.client("s3"))
            # An equal description costs no second write.
            if not description.put(content):
                description.update(lambda _: content)
        except Exception:
            # The archive already contains the lines. Only the replay or erasure of a dropped table needs the
            # description.
            _logger.warning(
                "Cannot update the description of table %s.%s in %s. The next sync updates it.",
                database,
                name,
                uri,
                exc_info=True,
            )

    def delete_uncommitted(self, files: Sequence[LineFile]) -> None:
        """Delete the archived lines of a batch that the sync did not commit, even if `publish` has published them."""
        delete_uncommitted(files, self._access.client("s3"))

    def _write_catalog(self, uri: str, catalog: bytes) -> None:
        """Write a stream's configuration to the archive, unless the archive already contains a recent copy.

        Rewrites a copy of an earlier day (UTC). Otherwise, a lifecycle rule could delete the copy before the lines of
        this sync: S3 rounds the end of an object's life up to the next midnight.
        """
        s3, address = self._access.client("s3"), S3Address.parse(uri)
        # The object's name is the hash of its content, so only the age of an existing object matters.
        if not ConditionalObject(uri, s3).put(catalog):
            modified = s3.head_object(Bucket=address.bucket, Key=address.key)["LastModified"]
            if modified.date() < datetime.fromtimestamp(self._clock(), UTC).date():
                put(s3, uri, catalog)

    def _put_entry(self, location: ArchiveLocation, name: str, entry: msgspec.Struct) -> None:
        uri = f"{location.index}/{name}.json"
        with _raise_connector_errors(uri):
            # Without a condition: the name contains the unique name of the sync, so no other sync writes this object,
            # and a retry writes the same content.
            put(self._access.client("s3"), uri, msgspec.json.encode(entry))


@contextmanager
def _raise_connector_errors(uri: str) -> Iterator[None]:
    """Convert AWS errors of the body to ConnectorError if their cause is known. The body writes the journal."""
    try:
        yield
    except Exception as error:
        failure = explain(error, doing="write the journal of the archive", resource=uri)
        if failure is None:
            raise
        raise ConnectorError(failure) from error


def remove_hashes(folder: str, objects: Iterable[str], access: AwsAccess) -> None:
    """Remove the hashes of archived objects from the journal.

    Call this function before an erasure rewrites the objects, because a replay rejects an object whose hash differs
    from the journal. `folder` is the S3 URI of the table's archive. `objects` contains the S3 URIs of the archived
    objects. Skips invalid journal entries, because a replay ignores them. Raises the errors of
    `ConditionalObject.update`.
    """
    s3, names = access.client("s3"), {uri.removeprefix(f"{folder}/") for uri in objects}
    # The name of an archived object begins with its sync and its batch. They select the journal entries to read.
    batches = {tuple(name.rpartition("/")[2].split("-")[:2]) for name in names}
    for uri, _ in listed(s3, f"{folder}/index") if names else ():
        # The end of the name is `{start}-{sync}/{batch}.json`.
        *_, sync_folder, batch = uri.removesuffix(".json").split("/")
        if (sync_folder.partition("-")[2], batch) in batches:
            ConditionalObject(uri, s3).update(partial(_without_hashes, names))


def _without_hashes(names: Collection[str], content: bytes) -> bytes:
    """Return a journal entry without the hashes of the objects with these names. Return an invalid entry unchanged."""
    try:
        entry = BATCH_DECODER.decode(content)
    except msgspec.MsgspecError:
        return content
    unhashed = tuple(replace(lines, sha256="") if lines.name in names else lines for lines in entry.objects)
    if unhashed == entry.objects:
        return content
    return msgspec.json.encode(msgspec.structs.replace(entry, objects=unhashed))


def _encode_catalog(configured: Mapping[str, Any]) -> bytes:
    """Return a stream's configuration as JSON, without the three IDs that differ between syncs.

    Equal configurations result in equal bytes, and therefore in equal hashes. The JSON keeps the order of members,
    because this order determines the order of columns.
    """
    # `json.dumps` escapes unpaired surrogates, which `encode` would reject.
    catalog = {name: value for name, value in configured.items() if name not in _IDS}
    return json.dumps(catalog, indent=1).encode()
