"""Suppress records that contain erased IDs. The ledger of erasure requests contains hashes of these IDs.

Replays omit archived records that contain an erased ID. If the user makes a request with the option `--suppress`
(`delete-rows --suppress`), syncs also reject new records that contain one of its IDs. These records count as rejects,
but the connector stores no part of them.

The ledger contains a folder `_deletions/{id}/` for each request. In this folder, the object `request.json` describes
the request, and the folder `hashes/` contains salted hashes of the IDs, in one object per column type. The ledger does
not contain the IDs themselves.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import msgspec
import numpy as np

from destination_datalake.aws.errors import explain
from destination_datalake.aws.objects import folders_in, get_or_none, naming_object
from destination_datalake.errors import ConfigError, ConnectorError
from destination_datalake.files.ids import HashedIds
from destination_datalake.files.segments import Content
from destination_datalake.protocol.json_text import line_bounds
from destination_datalake.records.search import RecordSearch
from destination_datalake.schema.columns import field_at
from destination_datalake.schema.types import Field, List, Struct

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from destination_datalake.aws.access import AwsAccess

DELETIONS_FOLDER = "_deletions"
"""The folder, under bucket_prefix, of the ledger of erasure requests."""

REQUEST = "request.json"
REPORT = "report.json"
HASHES = "hashes"

RECORD_SUPPRESSED = "DESTINATION_RECORD_SUPPRESSED"
"""The reject reason for suppressed records. The connector counts such records, but does not store them."""


@dataclass(frozen=True, slots=True)
class SuppressionRule:
    """A line filter that omits the records whose value in one column is an erased ID.

    `column` is the column's name or dotted path. The object at `uri` contains the hashes of the IDs, which are salted
    with `salt`. Executors read this object themselves, so that tasks stay small.
    """

    column: str
    uri: str
    salt: bytes

    def open(self, columns: Sequence[Field], s3: S3Client) -> SuppressionFilter | None:
        """Return the filter for a stream with these columns, or None if the rule's column is missing or nested.

        Raises ObjectFailed if the object with the hashes cannot be read, and ConfigError if the object does not exist.
        """
        column = field_at(columns, self.column.split("."))
        if column is None or isinstance(column.type, Struct | List):
            return None
        return SuppressionFilter(RecordSearch((column,), self._ids(s3)))

    def _ids(self, s3: S3Client) -> HashedIds:
        """Return the hashed IDs. The IDs of the four most recently used objects stay in memory.

        Raises the same errors as `open`.
        """
        # Remove and insert the IDs, so that the dict is in the order of use.
        ids = _recent.pop(self.uri, None)
        if ids is None:
            with naming_object("read the suppressed IDs from", self.uri):
                if (content := get_or_none(s3, self.uri)) is None:
                    raise ConfigError(
                        f"{self.uri} does not exist. This object contains the hashes of the IDs whose records are "
                        "suppressed. Restore the object from a copy. To end the suppression instead, delete the "
                        "folder of this erasure request."
                    )
                ids = HashedIds.from_digests(content, self.salt)
        _recent[self.uri] = ids
        while len(_recent) > _MAX_RECENT:
            del _recent[next(iter(_recent))]
        return ids


_MAX_RECENT = 4
_recent: dict[str, HashedIds] = {}


class SuppressionFilter:
    """An open line filter, which omits the lines that contain a suppressed ID. `search` finds these lines."""

    reason = RECORD_SUPPRESSED

    def __init__(self, search: RecordSearch) -> None:
        self._search = search

    def apply(self, content: Content) -> Content:
        """Return the content with an empty line in place of each line that contains a suppressed ID."""
        if not len(content.lines):
            return content
        octets = np.frombuffer(content.lines, np.uint8)
        starts, ends = line_bounds(octets)
        is_left_out = np.zeros(len(ends), np.bool_)
        present = starts < ends
        # The search accepts no empty lines, so remove their newlines.
        is_left_out[present] = self._search.match_lines(np.delete(octets, ends[~present]).tobytes())
        return content.without(is_left_out)


SuppressionRules: TypeAlias = Mapping[str, tuple[SuppressionRule, ...]]
"""The suppression rules of each table. Keys are table names such as "database.table"."""

_CONCURRENT_CALLS = 16


class ErasedColumn(msgspec.Struct, frozen=True):
    """The column of a table in which an erasure request searches for IDs, and the column's Arrow type as a string."""

    column: str
    type: str


class RequestRecord(msgspec.Struct, frozen=True):
    """An erasure request as the ledger stores it, in `request.json`.

    - `column`, `target`: the column and the target from the command line.
    - `ids`: the number of IDs.
    - `salt`: the salt of the hashes, in base64.
    - `check`: a checksum of the IDs' salted hashes, with which the command recognises that a request repeats an
      unfinished one.
    - `started`, `finished`: times in ISO 8601. `finished` is None until the erasure is complete.
    - `tables`: the searched column of each table. Keys are table names such as "database.table".
    - `suppress`: whether syncs reject new records that contain one of the IDs.
    """

    id: str
    column: str
    target: tuple[str, ...]
    ids: int
    salt: str
    check: str
    started: str
    finished: str | None = None
    tables: Mapping[str, ErasedColumn] = {}
    suppress: bool = False


REQUEST_DECODER = msgspec.json.Decoder(RequestRecord)
"""The decoder is created when this module is imported, because msgspec crashes (SIGSEGV) if two threads decode a type
concurrently before any thread has decoded it."""


def requests(folder: str, s3: S3Client) -> Iterator[RequestRecord]:
    """Yield all erasure requests in a ledger, oldest first. `folder` is the ledger's S3 URI, without a trailing slash.

    Raises AWS errors, and ConfigError for an invalid request.
    """
    if ids := folders_in(s3, folder):
        with ThreadPoolExecutor(_CONCURRENT_CALLS, "requests") as pool:
            yield from filter(None, pool.map(lambda id_: _request(s3, f"{folder}/{id_}/{REQUEST}"), ids))


def _request(s3: S3Client, uri: str) -> RequestRecord | None:
    if (content := get_or_none(s3, uri)) is None:
        return None
    try:
        request = REQUEST_DECODER.decode(content)
        base64.b64decode(request.salt, validate=True)
    except ValueError as error:
        raise ConfigError(
            f"{uri} is not a valid erasure request. Restore the object from a copy. Alternatively, delete its folder. "
            "Replays and syncs then stop suppressing the records of this request."
        ) from error
    return request


def rules_of(folder: str, requests: Iterable[RequestRecord]) -> SuppressionRules:
    """Return the suppression rules of these erasure requests, which may be unfinished, by table.

    `folder` is the ledger's S3 URI, without a trailing slash.
    """
    rules: dict[str, tuple[SuppressionRule, ...]] = {}
    for request in requests:
        for table, column in request.tables.items():
            uri = f"{folder}/{request.id}/{HASHES}/{hashes_name(column.type)}"
            rule = SuppressionRule(column.column, uri, base64.b64decode(request.salt))
            rules[table] = (*rules.get(table, ()), rule)
    return rules


def unfinished(folder: str, table: str, s3: S3Client) -> list[str]:
    """Return the request IDs of unfinished erasure requests that search `table`, a name such as "database.table".

    `folder` is the ledger's S3 URI, without a trailing slash. Raises the same errors as `requests`.
    """
    return [request.id for request in requests(folder, s3) if request.finished is None and table in request.tables]


def read_suppressed(folder: str, access: AwsAccess) -> SuppressionRules:
    """Return the rules by which syncs reject records. `folder` is the ledger's S3 URI, without a trailing slash.

    Raises ConnectorError if a request cannot be read, because the sync would otherwise write suppressed records.
    """
    doing, resource = "read the suppression requests (`delete-rows --suppress`) from", f"{folder}/"
    try:
        return rules_of(folder, (request for request in requests(folder, access.client("s3")) if request.suppress))
    except ConfigError as error:
        raise ConfigError(
            f"Cannot {doing} {resource}: a {REQUEST} in this folder is not valid. This sync wrote no records. "
            f"Restore the {REQUEST} from a copy. Alternatively, delete the folder that contains it. Syncs then stop "
            "suppressing the records of this request."
        ) from error
    except Exception as error:
        if (failure := explain(error, doing=doing, resource=resource)) is None:
            raise
        raise ConnectorError(failure) from error


def hashes_name(type_: str) -> str:
    """Return the name of the object that contains the hashes of the IDs for columns of the Arrow type `type_`."""
    return "".join(char if char.isalnum() else "_" for char in type_) + ".bin"
