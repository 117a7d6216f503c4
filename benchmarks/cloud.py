"""Run a moto server in a separate process: an emulated AWS without network latency, empty at each start.

`python -m benchmarks.cloud` prints the URL of the server, and serves until standard input is closed.
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
    # The server copies each body several times in newly allocated memory, and writes large bodies to disk. It shares
    # the cores with the measured system. Without these settings, it spends more CPU time on clearing pages in the
    # kernel than on its responses.
    "MOTO_S3_DEFAULT_KEY_BUFFER_SIZE": str(4 << 30),
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": str(4 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(8 << 30),
}


@dataclass(frozen=True)
class Cloud:
    """A running moto server. `url` is the endpoint of all AWS services, and `pid` is the ID of the server's process."""

    url: str
    pid: int

    def cpu_seconds(self) -> float:
        """The CPU time in seconds that the server has used so far."""
        times = psutil.Process(self.pid).cpu_times()
        return float(times.user + times.system)

    def client(self, service: str) -> Any:
        """Return a boto3 client for a service of this server."""
        return boto3.client(  # type: ignore[call-overload]
            service, endpoint_url=self.url, region_name=REGION, aws_access_key_id=KEY, aws_secret_access_key=SECRET
        )

    def iceberg_table(self, table: str) -> StaticTable | None:
        """Return the current state of an Iceberg table, or None for a table of another type."""
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
        """Return the number of rows in a Glue table, from Iceberg's metadata, Parquet footers or JSON lines."""
        if (iceberg := self.iceberg_table(table)) is not None:
            return iceberg.scan().count()
        glue_table = self.client("glue").get_table(DatabaseName=DATABASE, Name=table)["Table"]
        return self.rows_below(glue_table["StorageDescriptor"]["Location"].removeprefix(f"s3://{BUCKET}/"))

    def rows_below(self, prefix: str) -> int:
        """Return the number of rows in the data files below a prefix of the bucket."""
        return sum(self._rows_of_file(key) for key in self._data_files(prefix))

    def file_sizes(self) -> tuple[int, ...]:
        """Return the sizes of all data files in bytes, largest first."""
        return tuple(sorted(self.files().values(), reverse=True))

    def files(self) -> dict[str, int]:
        """Return the sizes of all data files in bytes, by key. Exclude the archive."""
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
        # Request the whole object at once, because the server reads all of it even if the request is for a part.
        body = self.client("s3").get_object(Bucket=BUCKET, Key=key)["Body"]
        return sum(chunk.count(b"\n") for chunk in body.iter_chunks(1 << 20))


@contextmanager
def cloud() -> Iterator[Cloud]:
    """Start a server that contains the bucket and the database. Stop it at the end of the `with` block."""
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
    """Return the environment of this process, without the user's AWS settings."""
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
