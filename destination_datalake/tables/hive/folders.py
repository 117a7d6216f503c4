"""The folders of a Hive table on S3, and the files in them that readers see."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from destination_datalake.aws.address import S3Address
from destination_datalake.tables.location import GENERATIONS_SUFFIX

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess

_OURS = re.compile(r"(?P<beside>.+)/generation-\d+-[0-9a-f]{12}")
"""The name of a folder that this connector has made."""

_CALLS_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Folders:
    """Folders are S3 URIs without a slash at the end; `root` is where the first one of a new table is made."""

    root: str
    access: AwsAccess

    def first(self, generation: int | None) -> str:
        """Return a folder that nobody has used, for a new table."""
        return f"{self.root}/{_name(generation)}"

    def new(self, location: str, generation: int | None) -> str:
        """Return a folder that nobody has used, for a table whose content is at `location`.

        It is never inside the table's location, because engines read folders to any depth.
        """
        if ours := _OURS.fullmatch(location):
            beside = ours["beside"]
        else:
            beside = f"{location}{GENERATIONS_SUFFIX}" if f"{self.root}/".startswith(f"{location}/") else self.root
        return f"{beside}/{_name(generation)}"

    @staticmethod
    def ours(folder: str) -> bool:
        """Whether this connector has made the folder, so that all in it was the table's."""
        return _OURS.fullmatch(folder) is not None

    def files(self, folder: str) -> dict[str, str]:
        """Return the files that readers see in a folder, at any depth: names relative to it, with their ETags.

        Names that begin with `_` or `.` are hidden from Hive, Spark, Trino and Athena, and empty objects are no files.
        """
        found = ((each["Key"][len(_prefix(folder).key) :], each) for each in self._objects(folder))
        return {
            name: each["ETag"]
            for name, each in found
            if each["Size"] and not any(part[:1] in ("_", ".") for part in name.split("/"))
        }

    def empty(self, folder: str) -> bool:
        """Whether nothing at all lies in a folder."""
        return next(self._objects(folder), None) is None

    def copy(self, names: Iterable[str], source: str, target: str) -> None:
        """Copy files of a folder into another under the same names, so that doing it twice does no harm."""
        s3 = self.access.client("s3")

        def copy(name: str) -> None:
            old, new = S3Address.parse(f"{source}/{name}"), S3Address.parse(f"{target}/{name}")
            s3.copy({"Bucket": old.bucket, "Key": old.key}, new.bucket, new.key)

        with ThreadPoolExecutor(_CALLS_AT_ONCE, "copy") as pool:
            list(pool.map(copy, names))

    def delete(self, uris: Iterable[str]) -> None:
        """Delete objects; one that is not there is no error."""
        s3 = self.access.client("s3")

        def delete(uri: str) -> None:
            where = S3Address.parse(uri)
            s3.delete_object(Bucket=where.bucket, Key=where.key)

        with ThreadPoolExecutor(_CALLS_AT_ONCE, "delete") as pool:
            list(pool.map(delete, uris))

    def clear(self, folder: str) -> None:
        """Delete all that lies in a folder that is ours and dead. Raises ValueError for any other folder."""
        if not self.ours(folder):
            raise ValueError(f"{folder} is not a folder that this connector has made")
        bucket = S3Address.parse(folder).bucket
        self.delete([str(S3Address(bucket, each["Key"])) for each in self._objects(folder)])

    def _objects(self, folder: str) -> Iterator[Any]:
        where = _prefix(folder)
        pages = self.access.client("s3").get_paginator("list_objects_v2")
        for page in pages.paginate(Bucket=where.bucket, Prefix=where.key):
            yield from page.get("Contents", [])


def _name(generation: int | None) -> str:
    return f"generation-{generation or 0}-{uuid.uuid4().hex[:12]}"


def _prefix(folder: str) -> S3Address:
    return S3Address.parse(f"{folder}/")
