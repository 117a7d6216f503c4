"""The archive of a table as anybody reads it: objects of gzip, lines, and JSON."""

import gzip
import json
from collections.abc import Sequence
from typing import Any

from integration_tests.harness.lake import PREFIX, Lake


def folder(lake: Lake, table: str, database: str | None = None) -> str:
    """Return the folder of a table's archive, with a slash at its end."""
    return f"{PREFIX}/_raw/{database or lake.database}.{table}/"


def objects(lake: Lake, table: str, database: str | None = None) -> dict[str, list[bytes]]:
    """Return the lines of each object in a table's archive, by key."""
    keys = lake.objects(f"{folder(lake, table, database)}dt=")
    return {key: gzip.decompress(content(lake, key)).splitlines(keepends=True) for key in keys}


def lines(lake: Lake, table: str, database: str | None = None) -> list[bytes]:
    """Return all lines of a table's archive, sorted."""
    return sorted(line for object_lines in objects(lake, table, database).values() for line in object_lines)


def index(lake: Lake, table: str) -> dict[str, dict[str, Any]]:
    """Return the entries of a table's index by their keys, in order."""
    return {key: json.loads(content(lake, key)) for key in sorted(lake.objects(f"{folder(lake, table)}index/"))}


def content(lake: Lake, key: str) -> bytes:
    return lake.s3.get_object(Bucket=lake.bucket, Key=key)["Body"].read()


def as_archived(sent: Sequence[bytes]) -> list[bytes]:
    """Return what the archive should have of these lines, which have no newline: the RECORD lines, sorted."""
    return sorted(line + b"\n" for line in sent if b'"RECORD"' in line)
