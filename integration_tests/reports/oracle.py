"""What a sync did, counted without its report: from the lines that were sent, and from what lies in the bucket.

The bucket keeps the versions of what is deleted: a merge deletes the files of the batches that it has merged.
"""

import gzip
import io
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import fastavro
import numpy as np
import pyarrow.parquet as pq
import zstandard

from integration_tests.harness.lake import PREFIX, Lake
from integration_tests.harness.messages import Json

_BATCH_FILE = r"/{run}-\d{{6}}-\d{{4}}-[0-9a-f]{{8}}-\d{{4}}\.(parquet|jsonl)[^/]*$"
"""The names of files with the records of a batch; those of merges and of rewritten files are others."""


@dataclass(frozen=True)
class Table:
    """A table as readers see it: its columns, and the ids of its rows; both empty while there is none."""

    columns: Mapping[str, str]
    ids: frozenset[str]


class Oracle:
    """Counts in one lake, whose bucket it tells to keep versions."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        lake.s3.put_bucket_versioning(Bucket=lake.bucket, VersioningConfiguration={"Status": "Enabled"})

    def table(self, name: str) -> Table:
        """Return a table as it is now."""
        if (self._lake.database, name) not in self._lake.tables():
            return Table({}, frozenset())
        rows = self._lake.read(self._lake.database, name)
        columns = self._lake.columns(self._lake.database, name)
        return Table(columns, frozenset(map(str, rows.column("_airbyte_raw_id").to_pylist())))

    def files(self, run: str, table: str) -> Mapping[str, int]:
        """Return what is known of the files of a stream's batches that were committed: members of its line."""
        ours = re.compile(_BATCH_FILE.format(run=run))
        prefix = f"{PREFIX}/{self._lake.database}/{table}/"
        versions = [version for version in self._versions(prefix) if ours.search(version["Key"])]
        if (committed := self._in_manifests(prefix)) is not None:
            versions = [version for version in versions if f"s3://{self._lake.bucket}/{version['Key']}" in committed]
        # A file has several versions if a request was repeated whose answer was lost, and it keeps its name when it is
        # rewritten in another folder: the first is what the batch has written.
        versions.sort(key=lambda version: (version["LastModified"], version["IsLatest"]), reverse=True)
        versions = [*{version["Key"].rpartition("/")[2]: version for version in versions}.values()]
        sizes = [version["Size"] for version in versions]
        figures = {
            "files": len(sizes),
            "bytes_written": sum(sizes),
            "row_count": sum(self._rows(version) for version in versions),
        }
        if sizes:
            quantiles = {"min": 0, "p50": 50, "p90": 90, "max": 100}
            figures |= {f"file_bytes_{q}": int(np.percentile(sizes, at, method="lower")) for q, at in quantiles.items()}
        return figures

    def rejects(self, run: str, stream: str) -> list[Mapping[str, Any]]:
        """Return the rejects of a stream that the catalog leads to, also those of a batch that was not committed."""
        if (self._lake.database, "airbyte_rejects") not in self._lake.tables():
            return []
        return [reject for reject in self._lake.rejects() if (reject["run_id"], reject["stream_name"]) == (run, stream)]

    def _versions(self, prefix: str) -> Iterator[Any]:
        pages = self._lake.s3.get_paginator("list_object_versions").paginate(Bucket=self._lake.bucket, Prefix=prefix)
        return (version for page in pages for version in page.get("Versions", []))

    def _content(self, version: Any) -> bytes:
        got = self._lake.s3.get_object(Bucket=self._lake.bucket, Key=version["Key"], VersionId=version["VersionId"])
        return got["Body"].read()

    def _rows(self, version: Any) -> int:
        content = self._content(version)
        if version["Key"].endswith(".parquet"):
            return pq.ParquetFile(io.BytesIO(content)).metadata.num_rows
        return _lines(content, version["Key"]).count(b"\n")

    def _in_manifests(self, prefix: str) -> set[str] | None:
        """Return the files of all snapshots that the table ever had, also expired ones; None of a Hive table.

        A commit that another writer has overtaken leaves metadata, which no later metadata refers to.
        """
        contents = {
            f"s3://{self._lake.bucket}/{version['Key']}": version for version in self._versions(f"{prefix}metadata/")
        }
        documents = {
            uri: json.loads(self._content(version))
            for uri, version in contents.items()
            if uri.endswith(".metadata.json")
        }
        if not documents:
            return None
        committed = {entry["metadata-file"] for document in documents.values() for entry in document["metadata-log"]}
        committed |= {
            self._lake.glue_table(self._lake.database, prefix.split("/")[-2])["Parameters"]["metadata_location"]
        }
        lists = {
            snapshot["manifest-list"]
            for uri in committed & documents.keys()
            for snapshot in documents[uri]["snapshots"]
        }
        manifests = {entry["manifest_path"] for uri in lists for entry in self._records(contents[uri])}
        return {entry["data_file"]["file_path"] for uri in manifests for entry in self._records(contents[uri])}

    def _records(self, version: Any) -> Iterator[Any]:
        return iter(fastavro.reader(io.BytesIO(self._content(version))))


def _lines(content: bytes, key: str) -> bytes:
    if key.endswith(".gz"):
        return gzip.decompress(content)
    return zstandard.decompress(content) if key.endswith(".zst") else content


def records(lines: Sequence[bytes], stream: str) -> list[bytes]:
    """Return the RECORD lines of a stream."""
    parsed = [(line, json.loads(line)) for line in lines]
    return [line for line, message in parsed if message["type"] == "RECORD" and message["record"]["stream"] == stream]


def expected_rejects(rejects: Sequence[Mapping[str, Any]]) -> list[Json]:
    """Return the member `rejects` of a line, by the rejects in the lake."""
    # Of a path to a value within.
    columns = [(reject["column_name"] or "").partition(".")[0] or None for reject in rejects]
    reasons = Counter((column, reject["errorcode"]) for column, reject in zip(columns, rejects, strict=True))
    ranked = sorted(reasons.items(), key=lambda counted: (-counted[1], counted[0][0] or "", counted[0][1]))
    return [{"column_name": column, "reason": reason, "count": count} for (column, reason), count in ranked]
