"""`python -m benchmarks.latency`: measure syncs with one and with many streams while each AWS request takes longer.

Each sync is run twice: into new tables, and again into the existing tables. A proxy delays each response.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.cloud import Cloud, cloud
from benchmarks.systems import CONNECTOR, WITH_ARCHIVE, config, measured, saved
from integration_tests.harness.aws_proxy import AwsProxy
from integration_tests.harness.loopback import Answer, Request
from integration_tests.harness.messages import configured_catalog, configured_stream, record, state, status

SIZES = ((1, 1_000), (100, 10), (300, 10))
"""Pairs of the number of streams and the number of records per stream."""

DELAYS = (0, 50, 100)
"""The delays per request in milliseconds."""

_SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}, "name": {"type": "string"}}}


class SlowAws(AwsProxy):
    """A proxy that delays each response by `seconds`.

    `calls` contains the start and the end of each request, in seconds of the monotonic clock.
    """

    def __init__(self, endpoint_url: str, seconds: float) -> None:
        super().__init__(endpoint_url)
        self.calls: list[tuple[float, float]] = []
        self._seconds = seconds
        self._lock = threading.Lock()

    def answer(self, request: Request) -> Answer:
        """Wait, pass the request on to the emulated AWS, and return its response."""
        started = time.monotonic()
        time.sleep(self._seconds)
        answer = self.pass_on(request)
        with self._lock:
            self.calls.append((started, time.monotonic()))
        return answer


def longest_chain(calls: Sequence[tuple[float, float]]) -> int:
    """Return the length of the longest chain of requests in which each request began after the previous one had ended.

    `calls` contains the start and the end of each request.
    """
    events = [(started, 1, number) for number, (started, _) in enumerate(calls)]
    events += [(ended, 0, number) for number, (_, ended) in enumerate(calls)]
    longest, chains = 0, dict[int, int]()  # The longest ended chain, and the longest chain by its last request.
    for _, begins, number in sorted(events):
        if begins:
            chains[number] = longest + 1
        else:
            longest = max(longest, chains[number])
    return longest


@dataclass(frozen=True)
class Measured:
    """The cost of a sync: its seconds, the number of AWS requests, and the longest chain of sequential requests."""

    seconds: float
    calls: int
    chain: int


def run(streams: int, records: int, delay: int, options: dict[str, object], folder: Path) -> tuple[Measured, Measured]:
    """Sync twice to a new lake. Return the costs of the first sync, into new tables, and of the second sync.

    `delay` is the delay of each response in milliseconds.
    """
    with cloud() as lake:
        first, second = (_sync(streams, records, delay, options, folder, lake, number) for number in (1, 2))
        for name in _names(streams):
            rows = lake.rows(name)
            if rows != 2 * records:
                raise SystemExit(f"table {name} has {rows} rows, {2 * records} were sent")
    return first, second


def _sync(
    streams: int, records: int, delay: int, options: dict[str, object], folder: Path, lake: Cloud, number: int
) -> Measured:
    configured = [configured_stream(name, _SCHEMA, generation=1, sync_id=number) for name in _names(streams)]
    catalog = saved(folder / "catalog.json", configured_catalog(*configured))
    with SlowAws(lake.url, delay / 1000) as aws:
        behind = saved(folder / "config.json", config(replace(lake, url=aws.endpoint_url), options))
        command = [*CONNECTOR, "write", "--config", behind, "--catalog", catalog]
        (folder / "messages").write_bytes(_messages(streams, records))
        cost = measured(command, folder / "messages", folder, WITH_ARCHIVE)
        calls = [*aws.calls]
    return Measured(cost.seconds, len(calls), longest_chain(calls))


def _messages(streams: int, records: int) -> bytes:
    lines = list[bytes]()
    for name in _names(streams):
        lines += [record(name, {"id": id_, "name": f"name {id_}"}) for id_ in range(records)]
        lines += [state(name, records), status(name, "COMPLETE")]
    return b"".join(line + b"\n" for line in lines)


def _names(streams: int) -> list[str]:
    return [f"s{number}" for number in range(streams)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure every size with every delay, and print a table. Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.latency", description=__doc__)
    parser.add_argument("--streams", type=int, action="append", help="measure this size (can be repeated; default all)")
    parser.add_argument("--table-type", choices=("ICEBERG", "HIVE"), default="ICEBERG")
    asked = parser.parse_args(arguments)
    sizes = [size for size in SIZES if not asked.streams or size[0] in asked.streams]
    table = Table(
        "streams", "records each", "delay, ms", "new tables: s", "calls", "chain", "again: s", "calls", "chain"
    )
    for streams, records in sizes:
        for delay in DELAYS:
            with tempfile.TemporaryDirectory() as folder:
                syncs = run(streams, records, delay, {"table_type": asked.table_type}, Path(folder))
            cells = [f"{streams:,}", f"{records:,}", str(delay)]
            for sync in syncs:
                cells += [f"{sync.seconds:.1f}", f"{sync.calls:,}", f"{sync.chain:,}"]
            table.add_row(*cells)
    Console(width=110).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
