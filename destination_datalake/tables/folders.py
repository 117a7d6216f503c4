"""The folders of a Hive table on S3: its own, and one beside it for every generation of its content."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from destination_datalake.aws.address import S3Address

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess

GENERATIONS = "__generations"
"""Ends the name of the folder beside a table's own in which generations of its content are made."""


@dataclass(frozen=True, slots=True)
class Folders:
    """S3 URIs without a slash at the end: the table's `root`, and where folders of generations are made."""

    root: str
    generations: str
    access: AwsAccess

    @classmethod
    def of(cls, root: str, location: str, access: AwsAccess) -> Self:
        """Return the folders of a table whose content is now at `location`.

        Locations stand beside each other, never one inside another, because engines read folders to any depth.
        """
        return cls(root, f"{root}{GENERATIONS}" if location == root else root, access)

    def new(self, generation: int | None) -> str:
        """Return a folder for a generation's content that nobody has used."""
        return f"{self.generations}/generation-{generation or 0}-{uuid.uuid4().hex[:12]}"

    def files(self, folder: str) -> list[str]:
        """Return the URIs of the objects in a folder, at any depth."""
        return list(self._objects(f"{folder}/"))

    def empty(self, folder: str) -> bool:
        """Whether nothing at all lies in a folder."""
        return next(iter(self._objects(f"{folder}/")), None) is None

    def copy(self, source: str, target: str) -> None:
        """Copy a folder's files into another under the same names, so that doing it twice does no harm."""
        s3 = self.access.client("s3")
        for uri in self.files(source):
            old, new = S3Address.parse(uri), S3Address.parse(f"{target}/{uri.rpartition('/')[2]}")
            s3.copy({"Bucket": old.bucket, "Key": old.key}, new.bucket, new.key)

    def delete(self, uris: Iterable[str]) -> None:
        """Delete objects; one that is not there is no error."""
        for uri in uris:
            where = S3Address.parse(uri)
            self.access.client("s3").delete_object(Bucket=where.bucket, Key=where.key)

    def sweep(self, keep: set[str]) -> None:
        """Delete what lies in folders of the table's content that no reader can be in any more."""
        everything = [*self._objects(f"{self.generations}/generation-"), *self._objects(f"{self.root}/data/")]
        self.delete(uri for uri in everything if not any(uri.startswith(f"{folder}/") for folder in keep))

    def _objects(self, prefix: str) -> Iterator[str]:
        where = S3Address.parse(prefix)
        pages = self.access.client("s3").get_paginator("list_objects_v2")
        for page in pages.paginate(Bucket=where.bucket, Prefix=where.key):
            for entry in page.get("Contents", []):
                yield str(S3Address(where.bucket, entry["Key"]))
