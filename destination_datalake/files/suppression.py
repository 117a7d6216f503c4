"""Who is left out when archived records are replayed: the people whose rows were erased, by the ledger of erasures.

The ledger is a folder for each request, `_deletions/{id}/`: `request.json`, and in `hashes/` the salted hashes of the
ids by the type of the column that they were looked up in. No id is in it.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from destination_datalake.aws.address import S3Address
from destination_datalake.aws.objects import get
from destination_datalake.files.ids import HashedIds

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

DELETIONS_FOLDER = "_deletions"
"""The folder of the ledger, under bucket_prefix."""

REQUEST = "request.json"
HASHES = "hashes"


class ErasedColumn(msgspec.Struct, frozen=True):
    """The column of a table that ids were looked up in, and its Arrow type as a text."""

    column: str
    type: str


class RequestRecord(msgspec.Struct, frozen=True):
    """A request, as the ledger has it. `salt` is in base64, `ids` how many there were; times are in ISO 8601.

    `check` is a sum of salted hashes by which the same ids are recognized; `target` is what the command line named.
    `suppress`: later syncs reject such records, too.
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


@dataclass(frozen=True, slots=True)
class Suppression:
    """Who is left out of one table by one request: rows with one of `ids` in `column`, which had this Arrow type."""

    request: str
    column: str
    type: str
    ids: HashedIds
    suppress: bool


def requests(folder: str, s3: S3Client) -> Iterator[RequestRecord]:
    """Yield all requests of a ledger, the oldest first. `folder` is its S3 URI, without a slash at the end."""
    root = S3Address.parse(f"{folder}/")
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=root.bucket, Prefix=root.key, Delimiter="/"):
        for prefix in page.get("CommonPrefixes", []):
            try:
                content = get(s3, str(S3Address(root.bucket, f"{prefix['Prefix']}{REQUEST}")))
            except s3.exceptions.NoSuchKey:
                continue
            yield msgspec.json.decode(content, type=RequestRecord)


def suppressions(folder: str, table: str, s3: S3Client) -> Iterator[Suppression]:
    """Yield who is left out of a table ("database.table"), also by requests that were not finished."""
    for each in requests(folder, s3):
        if (column := each.tables.get(table)) is not None:
            digests = get(s3, f"{folder}/{each.id}/{HASHES}/{hashes_name(column.type)}")
            ids = HashedIds.of(digests, base64.b64decode(each.salt))
            yield Suppression(each.id, column.column, column.type, ids, each.suppress)


def hashes_name(type_: str) -> str:
    """Return the name of the object with the hashes of ids of an Arrow type."""
    return "".join(char if char.isalnum() else "_" for char in type_) + ".bin"
