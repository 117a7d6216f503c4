"""What the archive of a table consists of, and where it is.

    _raw/{database}.{table}/dt=2026-11-25/{sync}-{batch}-{part}-{attempt}.jsonl.gz   the lines of a unit
                           /catalog/{sha256}.json                                    how a stream was configured
                           /index/{start}-{sync}/begin.json                          a sync has prepared the table
                                                /{batch}.json                        it has committed a batch
                                                /end.json                            it has published the table
    _schema/{database}/{table}.json                                                  the table's present columns

The entries under `index/` are the journal of the table. Lines are published before their batch is committed. The entry
follows the commit, and precedes the states of the batch: no state goes out without it. So the journal has every
acknowledged row, and lines without an entry are of a batch that was not acknowledged.

Entries have the position of what they describe in the table's own history, which orders them whatever clocks say.
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
"""Apart from the archive: a rule that ends old lines must not end what describes the table."""

_TEXT_BYTES = 1600
"""Most bytes of names and keys among an object's metadata, of which S3 takes 2 KB together. The rest are numbers."""


Position = tuple[str, int]
"""A state of a table: what identifies the table, and a number that grows with each of its commits."""


class ArchivedSync(msgspec.Struct, frozen=True, omit_defaults=True):
    """A sync of a stream, as its first index entry describes it.

    `sync` is a name that no other sync has. `started` is when it had prepared the table, in milliseconds since
    1970-01-01 UTC. `catalog` is the SHA-256 hash of the stream's configuration without the three ids of the sync.
    `found_empty`: the table had no rows then. `table` identifies the table among all that had its name, and `position`
    is that of its state then: 0 if it is not known, as in entries of former versions. A sync that does not archive its
    records, to a table that has an archive, has entries all the same, without `keeps_lines`.
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
        """Return what objects of the sync have as metadata: texts in ASCII, as S3 asks for.

        Names and keys that S3 has no room for are left out: the catalog has them.
        """
        members = {
            name: _ascii(value) for name, value in msgspec.to_builtins(self).items() if name not in _IN_ENTRIES_ALONE
        }
        room = _TEXT_BYTES
        for name in _LONG:
            if name in members and (size := len(name) + len(members[name])) <= room:
                room -= size
            else:
                members.pop(name, None)
        return {name.replace("_", "-"): value for name, value in members.items()}

    @classmethod
    def of_metadata(cls, metadata: Mapping[str, str]) -> Self:
        """Return the sync that an object's metadata describe; `key` and `cursor` are not read.

        `stream` is empty, and `namespace` None, if they had no room.
        """
        numbers = {
            name: int(metadata[name.replace("_", "-")]) for name in _NUMBERS if name.replace("_", "-") in metadata
        }
        texts = {name: _text(metadata[name]) for name in _TEXTS if name in metadata}
        return msgspec.convert({"stream": "", **numbers, **texts}, cls)


class ArchivedBatch(msgspec.Struct, frozen=True, omit_defaults=True):
    """The entry of a batch that was committed, `committed` in milliseconds since 1970-01-01 UTC.

    `position` is that of the table's state after it. The sync has written `rows` rows.
    """

    batch: int
    committed: int
    objects: tuple[UnitLines, ...]
    position: int = 0
    rows: int = 0


class ArchivedEnd(msgspec.Struct, frozen=True, omit_defaults=True):
    """The entry of a sync that has published the table, at this position."""

    published: int
    position: int = 0


@dataclass(frozen=True, slots=True)
class ArchiveLocation:
    """Where the lines of one sync of a table are archived. `folder` is the table's, an S3 URI without a slash at its
    end; `day` that on which the sync began, YYYY-MM-DD in UTC.
    """

    folder: str
    day: str
    sync: ArchivedSync

    @property
    def index(self) -> str:
        """The S3 URI of the folder of the sync's index entries."""
        return f"{self.folder}/index/{self.sync.started:013d}-{self.sync.sync}"

    def name(self, attempt: str) -> str:
        """Return the name of the object that an attempt at a unit writes."""
        return f"dt={self.day}/{attempt}.jsonl.gz"

    def metadata(self, archived: UnitLines) -> Mapping[str, str]:
        """Return the metadata of an object: whose it is, and what the index says of it."""
        own = {name.replace("_", "-"): str(value) for name, value in msgspec.to_builtins(archived).items()}
        del own["name"], own["sha256"]  # The hash is known only when the object is written.
        return {**self.sync.metadata(), **own}


def _ascii(value: object) -> str:
    """Return a value as text: one that is no text of printable ASCII, in JSON."""
    plain = isinstance(value, str) and value.isascii() and value.isprintable() and value == value.strip() != ""
    # JSON leaves one control character as it is, which HTTP does not take in a header.
    return str(value) if plain and not str(value).startswith('"') else json.dumps(value).replace("\x7f", "\\u007f")


def _text(value: str) -> str:
    return str(json.loads(value)) if value.startswith('"') else value


_IN_ENTRIES_ALONE = frozenset(("found_empty", "table", "position", "keeps_lines"))
_NUMBERS = ("started", "generation", "minimum_generation", "sync_id")
_TEXTS = ("sync", "stream", "catalog", "mode", "namespace")
_LONG = ("stream", "namespace", "key", "cursor")
"""What may be long, the most useful first."""


def table_folder(root: str, database: str, table: str) -> str:
    """Return the S3 URI of a table's folder in the archive, of which `root` is the URI."""
    return f"{root}/{database}.{table}"


def unit_of(first_id: str) -> str:
    """Return the beginning of the ids of a unit's rows; `first_id` is that of its first line, without hyphens."""
    digits = first_id[:-COUNTED_DIGITS]
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
