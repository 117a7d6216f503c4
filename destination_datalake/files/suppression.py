"""Who is left out when archived records are replayed: the people whose rows were erased, by the ledger of erasures.

The ledger is a folder for each request, `_deletions/{id}/`: `request.json`, and in `hashes/` the salted hashes of the
ids by the type of the column that they were looked up in. No id is in it.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow.compute as pc

from destination_datalake.aws.address import S3Address
from destination_datalake.aws.objects import get
from destination_datalake.files.ids import HashedIds
from destination_datalake.files.segments import LeftOut
from destination_datalake.records.search import RecordSearch
from destination_datalake.schema.columns import field_at
from destination_datalake.schema.types import List, Struct

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from numpy.typing import NDArray

    from destination_datalake.records.decoded import Decoded, RejectedLine
    from destination_datalake.schema.types import Field

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


def left_out(folder: str, table: str, s3: S3Client) -> tuple[LeftOut, ...]:
    """Return who is left out of a table ("database.table"), also by requests that were not finished.

    `folder` is the ledger's S3 URI, without a slash at the end. Raises errors of AWS.
    """
    return tuple(
        LeftOut(column.column, f"{folder}/{each.id}/{HASHES}/{hashes_name(column.type)}", base64.b64decode(each.salt))
        for each in requests(folder, s3)
        if (column := each.tables.get(table)) is not None
    )


# --- On executors -----------------------------------------------------------------------------------------------------


def _ids_of(rule: LeftOut, s3: S3Client) -> HashedIds:
    """Return the ids of a rule. The latest few objects stay in memory. Raises errors of AWS."""
    if (found := _read.pop(rule.uri, None)) is None:
        found = HashedIds.of(get(s3, rule.uri), rule.salt)
    _read[rule.uri] = found
    while len(_read) > _MOST_READ:
        del _read[next(iter(_read))]
    return found


_MOST_READ = 4
_read: dict[str, HashedIds] = {}


class LeavingOut:
    """Tells which decoded records are left out. `columns` are those that they are decoded to."""

    def __init__(self, rules: Sequence[LeftOut], columns: Sequence[Field], s3: S3Client) -> None:
        self._rules: list[tuple[int, Sequence[str], HashedIds]] = []
        self._searches: list[RecordSearch] = []
        for rule in rules:
            name, *inside = rule.column.split(".")
            column = field_at(columns, (name, *inside))
            if column is None or isinstance(column.type, Struct | List):
                continue  # What a record has is in no such column.
            position = next(place for place, each in enumerate(columns) if each.name.lower() == name.lower())
            ids = _ids_of(rule, s3)
            self._rules.append((position, inside, ids))
            self._searches.append(RecordSearch((column,), ids))

    def rows(self, decoded: Decoded) -> NDArray[np.bool_]:
        """Return a mask of the rows, true for those that are left out."""
        out = np.zeros(decoded.rows, np.bool_)
        for position, inside, ids in self._rules:
            values: Any = decoded.columns[position]
            for step in inside:
                names = [field.name for field in values.type]
                values = pc.struct_field(values, next(each for each in names if each.lower() == step.lower()))
            out |= ids.contains(values)
        return out

    def rejected(self, lines: Sequence[RejectedLine]) -> list[RejectedLine]:
        """Return the refused lines that are not left out."""
        if not lines or not self._searches:
            return [*lines]
        text = b"".join(each.line.replace(b"\n", b" ") + b"\n" for each in lines)
        out = np.logical_or.reduce([search.found(text) for search in self._searches])
        return [each for each, is_out in zip(lines, out.tolist(), strict=True) if not is_out]


def hashes_name(type_: str) -> str:
    """Return the name of the object with the hashes of ids of an Arrow type."""
    return "".join(char if char.isalnum() else "_" for char in type_) + ".bin"
