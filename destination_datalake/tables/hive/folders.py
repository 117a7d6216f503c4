"""The folders of a Hive table on S3, and the files in them that readers see."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from destination_datalake.aws.objects import S3Address, delete
from destination_datalake.tables.naming import GENERATIONS_SUFFIX

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess

_OUR_FOLDER = re.compile(r"(?P<parent>.+)/generation-\d+-[0-9a-f]{12}")
"""A folder created by this connector."""

_AROUND = re.compile(rf"({_OUR_FOLDER.pattern})/.+")

CONCURRENT_CALLS = 8
"""Requests to S3 that one step of a table makes at a time."""


@dataclass(frozen=True, slots=True)
class Folders:
    """Folders are S3 URIs without a trailing slash; the first folder of a new table is created in `root`."""

    root: str
    access: AwsAccess

    def for_new_table(self, generation: int | None) -> str:
        """Return an unused folder for a new table."""
        return f"{self.root}/{_unique_name(generation)}"

    def for_table_at(self, location: str, generation: int | None) -> str:
        """Return an unused folder for new content of a table at `location`.

        It is never inside the table's location, because engines read folders to any depth.
        """
        if ours := _OUR_FOLDER.fullmatch(location):
            parent = ours["parent"]
        else:
            inside = f"{self.root}/".startswith(f"{location}/")
            parent = f"{location}{GENERATIONS_SUFFIX}" if inside else self.root
        return f"{parent}/{_unique_name(generation)}"

    @staticmethod
    def is_ours(folder: str) -> bool:
        """Whether this connector created the folder, so that it holds nothing but the table's files."""
        return _OUR_FOLDER.fullmatch(folder) is not None

    @staticmethod
    def ours_around(location: str) -> str | None:
        """Return the folder created by this connector that a location is in; None if it is in none."""
        found = _AROUND.fullmatch(location)
        return found[1] if found else None

    def files(self, folder: str) -> dict[str, str]:
        """Return the files that readers see in a folder, at any depth: names relative to it, with their ETags.

        Hive, Spark, Trino and Athena ignore names that begin with `_` or `.`; empty objects are not files.
        """
        return {name: each["ETag"] for name, each in self.visible(folder)}

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the sizes in bytes of the same files, by their URIs."""
        return {f"{folder}/{name}": each["Size"] for name, each in self.visible(folder)}

    def is_empty(self, folder: str) -> bool:
        """Whether a folder has no object at all."""
        return next(self._objects(folder), None) is None

    def copy(self, names: Iterable[str], source: str, target: str) -> None:
        """Copy files of a folder into another under the same names. Idempotent."""
        s3 = self.access.client("s3")

        def copy(name: str) -> None:
            old, new = S3Address.parse(f"{source}/{name}"), S3Address.parse(f"{target}/{name}")
            s3.copy({"Bucket": old.bucket, "Key": old.key}, new.bucket, new.key)

        with ThreadPoolExecutor(CONCURRENT_CALLS, "copy") as pool:
            list(pool.map(copy, names))

    def delete(self, uris: Iterable[str]) -> None:
        """Delete objects; those that do not exist are ignored."""
        s3 = self.access.client("s3")
        with ThreadPoolExecutor(CONCURRENT_CALLS, "delete") as pool:
            list(pool.map(partial(delete, s3), uris))

    def delete_folder(self, folder: str) -> None:
        """Delete all objects in a folder. Raises ValueError if this connector did not create it."""
        if not self.is_ours(folder):
            raise ValueError(f"{folder} is not a folder that this connector has created")
        bucket = S3Address.parse(folder).bucket
        self.delete([str(S3Address(bucket, each["Key"])) for each in self._objects(folder)])

    def visible(self, folder: str) -> Iterator[tuple[str, Any]]:
        """Yield the same files' names, with what S3 lists of each."""
        start = len(_prefix(folder).key)
        for each in self._objects(folder):
            name = each["Key"][start:]
            if each["Size"] and not any(part[:1] in ("_", ".") for part in name.split("/")):
                yield name, each

    def _objects(self, folder: str) -> Iterator[Any]:
        prefix = _prefix(folder)
        pages = self.access.client("s3").get_paginator("list_objects_v2")
        for page in pages.paginate(Bucket=prefix.bucket, Prefix=prefix.key):
            yield from page.get("Contents", [])


def _unique_name(generation: int | None) -> str:
    return f"generation-{generation or 0}-{uuid.uuid4().hex[:12]}"


def _prefix(folder: str) -> S3Address:
    return S3Address.parse(f"{folder}/")
