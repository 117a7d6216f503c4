"""The objects in a table's archive, and the names of these objects.

    _raw/{database}.{table}/dt=2026-11-25/{sync}-{batch}-{part}-{attempt}.jsonl.gz   the lines of a unit
                           /catalog/{sha256}.json                                    the configuration of a stream
                           /index/{start}-{sync}/begin.json                          a sync has prepared the table
                                                /{batch}.json                        the sync has committed a batch
                                                /end.json                            the sync has published the table
    _schema/{database}/{table}.json                                                  the table's present columns

The entries under `index/` are the table's journal. For each batch, a sync publishes the archived lines, commits the
batch, writes the journal entry, and then releases the batch's states. Therefore, the journal contains every
acknowledged row. Lines without a journal entry belong to a batch that was not acknowledged.

Each entry contains a position: the number of the table's commit at that time. Positions order the entries independently
of clocks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import msgspec

from destination_datalake.files.plan import COUNTED_DIGITS, UnitLines

ARCHIVE_FOLDER = "_raw"

SCHEMA_FOLDER = "_schema"
"""The folder that contains the descriptions of tables. It is separate from the archive, so that a lifecycle rule for
old lines does not delete the descriptions."""

_TEXT_BYTES = 1600
"""The maximum number of bytes of names and keys in an object's metadata. S3 allows 2 KB in total, and the metadata also
contains numbers."""

Position = tuple[str, int]
"""A position in a table's history: the table's identifier, and a number that increases with each commit to the
table."""


class ArchivedSync(msgspec.Struct, frozen=True, omit_defaults=True):
    """The first journal entry of a sync of a stream.

    `sync` is the unique name of the sync. `started` is the time just after the sync prepared the table, in milliseconds
    since 1970-01-01 UTC. `position` is the number of the table's last commit at that time, or 0 if unknown, as in
    entries written by earlier versions of the connector. `found_empty` is true if the table contained no rows at that
    time. `table` identifies the table among all tables that have had the same name.

    `catalog` is the SHA-256 hash of the stream's configuration without the three IDs of the sync. If `keeps_lines` is
    false, the sync did not archive its records. It wrote journal entries only because its table has an archive.
    """

    sync: str
    started: int
    stream: str
    catalog: str
    mode: str
    namespace: str | None = None
    key: tuple[str, ...] = ()
    cursor: tuple[str, ...] = ()
    generation: int | None = None
    minimum_generation: int | None = None
    sync_id: int | None = None
    found_empty: bool = False
    table: str = ""
    position: int = 0
    keeps_lines: bool = True

    def metadata(self) -> dict[str, str]:
        """Return the metadata for the sync's archived objects, in ASCII as S3 requires.

        Omits names and keys that exceed S3's size limit. Readers find them in the archived configuration of the stream.
        """
        members = {
            name: _encode_ascii(value)
            for name, value in msgspec.to_builtins(self).items()
            if name not in _NOT_IN_METADATA
        }
        remaining_bytes = _TEXT_BYTES
        for name in _UNBOUNDED_TEXTS:
            if name in members and (size := len(name) + len(members[name])) <= remaining_bytes:
                remaining_bytes -= size
            else:
                members.pop(name, None)
        return {name.replace("_", "-"): value for name, value in members.items()}

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, str]) -> Self:
        """Return the sync that an object's metadata describes, without `key` and `cursor`.

        If the metadata omits the stream's name or namespace, `stream` is empty or `namespace` is None.
        """
        numbers = {
            name: int(metadata[name.replace("_", "-")]) for name in _NUMBERS if name.replace("_", "-") in metadata
        }
        texts = {name: _decode_text(metadata[name]) for name in _TEXTS if name in metadata}
        return msgspec.convert({"stream": "", **numbers, **texts}, cls)


class ArchivedBatch(msgspec.Struct, frozen=True, omit_defaults=True):
    """The journal entry of a committed batch.

    `committed` is the time of the commit in milliseconds since 1970-01-01 UTC. `position` is the number of the commit
    in the table's history, and `rows` is the number of rows written.
    """

    batch: int
    committed: int
    objects: tuple[UnitLines, ...]
    position: int = 0
    rows: int = 0


class ArchivedEnd(msgspec.Struct, frozen=True, omit_defaults=True):
    """The journal entry that a sync writes after it has published the table.

    `published` is the time in milliseconds since 1970-01-01 UTC. `position` is the number of the table's last commit
    after the publication.
    """

    published: int
    position: int = 0


@dataclass(frozen=True, slots=True)
class ArchiveLocation:
    """The location of one sync in the archive.

    `folder` is the S3 URI of the table's folder, without a trailing slash. `day` is the day on which the sync started,
    as YYYY-MM-DD in UTC.
    """

    folder: str
    day: str
    sync: ArchivedSync

    @property
    def index(self) -> str:
        """Return the S3 URI of the folder that contains the sync's journal entries."""
        return f"{self.folder}/index/{self.sync.started:013d}-{self.sync.sync}"

    def name(self, attempt: str) -> str:
        """Return the name of the object that one attempt at a unit writes, relative to the table's folder."""
        return f"dt={self.day}/{attempt}.jsonl.gz"

    def metadata(self, archived: UnitLines) -> Mapping[str, str]:
        """Return the S3 metadata of an object of archived lines: a description of its sync and of its unit."""
        unit = {name.replace("_", "-"): str(value) for name, value in msgspec.to_builtins(archived).items()}
        del unit["name"], unit["sha256"]  # S3 receives the metadata before the hash is known.
        return {**self.sync.metadata(), **unit}


def _encode_ascii(value: object) -> str:
    """Return printable ASCII text unchanged, and encode any other value as JSON."""
    plain = isinstance(value, str) and value.isascii() and value.isprintable() and value == value.strip() != ""
    # JSON does not escape the control character DEL, which is invalid in an HTTP header.
    return str(value) if plain and not str(value).startswith('"') else json.dumps(value).replace("\x7f", "\\u007f")


def _decode_text(value: str) -> str:
    return str(json.loads(value)) if value.startswith('"') else value


_NOT_IN_METADATA = frozenset(("found_empty", "table", "position", "keeps_lines"))
_NUMBERS = ("started", "generation", "minimum_generation", "sync_id")
_TEXTS = ("sync", "stream", "catalog", "mode", "namespace")
_UNBOUNDED_TEXTS = ("stream", "namespace", "key", "cursor")
"""Fields whose texts can have any length, in decreasing order of importance. The least important ones are omitted
first."""


def table_folder(root: str, database: str, table: str) -> str:
    """Return the S3 URI of a table's folder in an archive. `root` is the URI of the archive."""
    return f"{root}/{database}.{table}"


def row_id_prefix(first_id: str) -> str:
    """Return the common prefix of the raw IDs of a unit.

    `first_id` is the raw ID of its first line, without hyphens.
    """
    digits = first_id[:-COUNTED_DIGITS]
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
