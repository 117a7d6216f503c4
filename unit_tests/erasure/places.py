"""Places in an account, as the command asks them: and an oracle that reads every object, and every version of it."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from destination_datalake.aws.access import AwsAccess
from destination_datalake.config.options import Config
from destination_datalake.erasure.elsewhere import places
from destination_datalake.erasure.ids import IdsFile
from destination_datalake.erasure.place import ErasedObject, FoundObject, Place, Request
from destination_datalake.tables.table import TableName
from unit_tests.cloud import BUCKET, Cloud, ungoverned
from unit_tests.config.examples import options
from unit_tests.tables.jobs import in_process


def request(folder: Path, access: AwsAccess, column: str, *ids: object, **changes: Any) -> Request:
    """What is asked for: rows whose column has one of these ids."""
    file = folder / "ids.txt"
    file.write_text("".join(f"{each}\n" for each in ids))
    given = {"bucket_name": BUCKET, "table_type": "HIVE", "lakeformation_database_name": "shop", **changes}
    config = Config.parse(options(**given))
    jobs = in_process(folder)
    scratch = (folder / "scratch").as_uri()
    return Request("r", column, IdsFile(file), config, access, ungoverned(access), jobs, scratch=scratch)


def erased(asked: Request, *tables: TableName) -> list[ErasedObject]:
    """Erase in all places, as the command does: what became of objects. The second search must find nothing."""
    found = places(asked, tables)
    for place in found:
        place.require()
    done = [each for place in found for each in place.erase()]
    left = {each.uri for each in done if each.outcome == "left"}
    assert [each for each in second_search(asked, *tables) if each.uri not in left] == []
    return done


def second_search(asked: Request, *tables: TableName) -> list[FoundObject]:
    return [each for place in places(asked, tables) for each in place.find()]


def named(asked: Request, name: str, *tables: TableName) -> Place:
    """The place of this name."""
    (place,) = [each for each in places(asked, tables) if each.name == name]
    return place


def traces(cloud: Cloud, needle: str) -> list[str]:
    """The keys of all objects and versions with a text in them: content, footers, names and metadata."""
    pattern = re.compile(rf"(?<![0-9A-Za-z]){re.escape(needle)}(?![0-9A-Za-z])")
    s3 = cloud.access.client("s3")
    found = []
    for page in s3.get_paginator("list_object_versions").paginate(Bucket=BUCKET):
        for version in page.get("Versions", []):
            answer = s3.get_object(Bucket=BUCKET, Key=version["Key"], VersionId=version["VersionId"])
            texts = [version["Key"], str(answer["Metadata"]), *texts_of(answer["Body"].read())]
            if any(pattern.search(text) for text in texts):
                found.append(version["Key"])
        found += [each["Key"] for each in page.get("DeleteMarkers", []) if pattern.search(each["Key"])]
    return found


def texts_of(body: bytes) -> Iterator[str]:
    """All that an object says, as text: rows and statistics of Parquet files, lines decoded, base64 too."""
    if body.startswith(b"PAR1"):
        file = pq.ParquetFile(pa.BufferReader(body))
        yield from map(str, file.read().to_pylist())
        yield str(file.metadata.to_dict())
        return
    text = (gzip.decompress(body) if body.startswith(b"\x1f\x8b") else body).decode("utf-8", "replace")
    yield text
    for encoded in re.findall(r'"rawData":"([A-Za-z0-9+/=]+)"', text):
        import base64

        yield base64.b64decode(encoded).decode("utf-8", "replace")


def outcomes(done: Sequence[ErasedObject]) -> dict[str, str]:
    """What became of each object, by the last part of its key."""
    return {each.uri.rpartition("/")[2]: each.outcome for each in done}
