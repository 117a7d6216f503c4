"""The S3 folders of a Hive table, and the files that readers see in them."""

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

_CREATED_FOLDER = re.compile(r"(?P<parent>.+)/generation-\d+-[0-9a-f]{12}")
"""Matches the folders that this connector creates, `generation-<number>-<12 hex digits>`."""

_INSIDE_CREATED_FOLDER = re.compile(rf"({_CREATED_FOLDER.pattern})/.+")

CONCURRENT_CALLS = 8
"""Maximum number of concurrent S3 requests while files are copied or deleted."""


@dataclass(frozen=True, slots=True)
class Folders:
    """The folders of a table, as S3 URIs without a trailing slash. A new table's first folder is inside `root`."""

    root: str
    access: AwsAccess

    def for_new_table(self, generation: int | None) -> str:
        """Return the URI of an unused folder for a new table. The folder is not created."""
        return f"{self.root}/{_unique_name(generation)}"

    def for_table_at(self, location: str, generation: int | None) -> str:
        """Return the URI of an unused folder for new content of the table at `location`.

        The folder is never inside `location`, because engines read a table's location recursively.
        """
        if match := _CREATED_FOLDER.fullmatch(location):
            parent = match["parent"]
        else:
            # The trailing slashes prevent that `/orders` counts as a parent of `/orders2`.
            inside = f"{self.root}/".startswith(f"{location}/")
            parent = f"{location}{GENERATIONS_SUFFIX}" if inside else self.root
        return f"{parent}/{_unique_name(generation)}"

    def owns(self, folder: str, location: str) -> bool:
        """Return whether a folder is one that `for_new_table` or `for_table_at` creates for the table at `location`.

        Other programs can change or copy the parameters of a table, so a folder that the parameters name may belong to
        another table.
        """
        created, present = _CREATED_FOLDER.fullmatch(folder), _CREATED_FOLDER.fullmatch(location)
        parents = (self.root, present["parent"] if present else f"{location}{GENERATIONS_SUFFIX}")
        return created is not None and created["parent"] in parents

    @staticmethod
    def is_created_by_connector(folder: str) -> bool:
        """Return whether the folder's name shows that this connector created the folder.

        Such a folder contains only files of one table.
        """
        return _CREATED_FOLDER.fullmatch(folder) is not None

    @staticmethod
    def created_folder_around(location: str) -> str | None:
        """Return the folder created by this connector that contains `location`, or None."""
        match = _INSIDE_CREATED_FOLDER.fullmatch(location)
        return match[1] if match else None

    def files(self, folder: str) -> dict[str, str]:
        """Map the relative names of the files that readers see in a folder and its subfolders to the files' ETags.

        The result omits files whose names, or whose folders' names, begin with `_` or `.`, because Hive, Spark, Trino
        and Athena ignore these files. It also omits empty objects, because they are folder markers.
        """
        return {name: listed["ETag"] for name, listed in self.visible(folder)}

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the URIs and sizes in bytes of the files that readers see in a folder (see `files`)."""
        return {f"{folder}/{name}": listed["Size"] for name, listed in self.visible(folder)}

    def is_empty(self, folder: str) -> bool:
        """Return whether a folder contains no objects. Objects that readers ignore count too."""
        return next(self._objects(folder), None) is None

    def copy(self, names: Iterable[str], source: str, target: str) -> None:
        """Copy files to another folder under the same names. Callers may repeat the call."""
        s3 = self.access.client("s3")

        def copy(name: str) -> None:
            old, new = S3Address.parse(f"{source}/{name}"), S3Address.parse(f"{target}/{name}")
            # `copy` splits large objects, because CopyObject accepts at most 5 GB.
            s3.copy({"Bucket": old.bucket, "Key": old.key}, new.bucket, new.key)

        with ThreadPoolExecutor(CONCURRENT_CALLS, "copy") as pool:
            list(pool.map(copy, names))

    def delete(self, uris: Iterable[str]) -> None:
        """Delete objects. Ignore missing objects."""
        s3 = self.access.client("s3")
        with ThreadPoolExecutor(CONCURRENT_CALLS, "delete") as pool:
            list(pool.map(partial(delete, s3), uris))

    def delete_folder(self, folder: str) -> None:
        """Delete all objects in a folder. Raises ValueError if this connector did not create the folder."""
        if not self.is_created_by_connector(folder):
            raise ValueError(f"Cannot delete {folder}, because this connector did not create that folder.")
        bucket = S3Address.parse(folder).bucket
        self.delete([str(S3Address(bucket, listed["Key"])) for listed in self._objects(folder)])

    def visible(self, folder: str) -> Iterator[tuple[str, Any]]:
        """Yield the relative name and S3 listing entry of each file that readers see in a folder (see `files`)."""
        start = len(_prefix(folder).key)
        for listed in self._objects(folder):
            name = listed["Key"][start:]
            if listed["Size"] and not any(part[:1] in ("_", ".") for part in name.split("/")):
                yield name, listed

    def _objects(self, folder: str) -> Iterator[Any]:
        prefix = _prefix(folder)
        pages = self.access.client("s3").get_paginator("list_objects_v2")
        for page in pages.paginate(Bucket=prefix.bucket, Prefix=prefix.key):
            yield from page.get("Contents", [])


def _unique_name(generation: int | None) -> str:
    # The random part keeps two syncs of one generation apart. A sync without a generation uses 0.
    return f"generation-{generation or 0}-{uuid.uuid4().hex[:12]}"


def _prefix(folder: str) -> S3Address:
    return S3Address.parse(f"{folder}/")
