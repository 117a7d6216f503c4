"""A moto server in a process of its own: an AWS without a network, empty at each start.

`python -m benchmarks.cloud` prints the server's URL and serves until its standard input closes.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import boto3
import psutil
import pyarrow.parquet as pq
from pyarrow.fs import S3FileSystem
from pyiceberg.table import StaticTable

BUCKET = "benchmark"
DATABASE = "benchmark"
REGION = "us-east-1"
KEY, SECRET = "benchmark", "benchmark"

_KEEPS_ITS_MEMORY = {
    # The server copies each body a few times, in memory that it allocates again and again, and to disk if it is large.
    # What is measured shares its cores with it: left alone, it spends more of them on the system's clearing of pages
    # than on answering.
    "MOTO_S3_DEFAULT_KEY_BUFFER_SIZE": str(4 << 30),
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": str(4 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(8 << 30),
}


@dataclass(frozen=True)
class Cloud:
    """One running server; `url` answers for every service."""

    url: str
    pid: int

    def cpu_seconds(self) -> float:
        """CPU time of the server so far."""
        times = psutil.Process(self.pid).cpu_times()
        return float(times.user + times.system)

    def client(self, service: str) -> Any:
        """A boto3 client of this server."""
        return boto3.client(  # type: ignore[call-overload]
            service, endpoint_url=self.url, region_name=REGION, aws_access_key_id=KEY, aws_secret_access_key=SECRET
        )

    def iceberg_table(self, table: str) -> StaticTable | None:
        """The current state of an Iceberg table; None for a table of another type."""
        parameters = self.client("glue").get_table(DatabaseName=DATABASE, Name=table)["Table"].get("Parameters", {})
        if parameters.get("table_type", "").upper() != "ICEBERG":
            return None
        access = {
            "s3.endpoint": self.url,
            "s3.region": REGION,
            "s3.access-key-id": KEY,
            "s3.secret-access-key": SECRET,
        }
        return StaticTable.from_metadata(parameters["metadata_location"], access)

    def rows(self, table: str) -> int:
        """How many rows a reader of the Glue table finds: Iceberg's own count, Parquet footers, or lines."""
        if (iceberg := self.iceberg_table(table)) is not None:
            return iceberg.scan().count()
        glue_table = self.client("glue").get_table(DatabaseName=DATABASE, Name=table)["Table"]
        return self.rows_below(glue_table["StorageDescriptor"]["Location"].removeprefix(f"s3://{BUCKET}/"))

    def rows_below(self, prefix: str) -> int:
        """How many rows the data files below a prefix of the bucket have."""
        return sum(self._rows_of_file(key) for key in self._data_files(prefix))

    def file_sizes(self) -> tuple[int, ...]:
        """Sizes of all data files, in bytes, the largest first."""
        return tuple(sorted(self.files().values(), reverse=True))

    def files(self) -> dict[str, int]:
        """Sizes of all data files by their keys, in bytes."""
        pages = self.client("s3").get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
        entries = [entry for page in pages for entry in page.get("Contents", ())]
        sizes = {e["Key"]: e["Size"] for e in entries if e["Key"].endswith((".parquet", ".jsonl", ".jsonl.gz"))}
        return {key: size for key, size in sizes.items() if "/_raw/" not in key}

    def _data_files(self, prefix: str) -> list[str]:
        prefix = prefix.rstrip("/") + "/"
        pages = self.client("s3").get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        keys = [entry["Key"] for page in pages for entry in page.get("Contents", ())]
        return [key for key in keys if not any(part[:1] in ("_", ".") for part in key.removeprefix(prefix).split("/"))]

    def _rows_of_file(self, key: str) -> int:
        if key.endswith(".parquet"):
            store = S3FileSystem(endpoint_override=self.url, access_key=KEY, secret_key=SECRET, region=REGION)
            return int(pq.read_metadata(f"{BUCKET}/{key}", filesystem=store).num_rows)
        # In one request: the server reads a whole object to answer for a part of it.
        body = self.client("s3").get_object(Bucket=BUCKET, Key=key)["Body"]
        return sum(chunk.count(b"\n") for chunk in body.iter_chunks(1 << 20))


@contextmanager
def cloud() -> Iterator[Cloud]:
    """A fresh server with the bucket and the database in it, gone at the end."""
    command = [sys.executable, "-m", "benchmarks.cloud"]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment() | _KEEPS_ITS_MEMORY,
        text=True,
    ) as server:
        assert server.stdout is not None
        try:
            running = Cloud(server.stdout.readline().strip(), server.pid)
            running.client("s3").create_bucket(Bucket=BUCKET)
            running.client("glue").create_database(DatabaseInput={"Name": DATABASE})
            yield running
        finally:
            server.kill()


def environment() -> dict[str, str]:
    """This process's environment without any AWS settings of the person who runs the benchmark."""
    return {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}


def _serve() -> None:
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    print(f"http://{host}:{port}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    _serve()
