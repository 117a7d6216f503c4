"""What a stream costs in requests to AWS: with thousands of streams, that is how long a sync takes."""

import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest

from integration_tests.harness.aws_proxy import AwsProxy
from integration_tests.harness.loopback import Answer, Request
from integration_tests.harness.messages import configured_stream, record, state, status
from integration_tests.harness.warehouse import INTEGER, STRING, Warehouse, object_schema

STREAMS = 6
SCHEMA = object_schema(id=INTEGER, name=STRING)

# Requests per stream by kind of table: (empty and new, empty, 10 records and new, 10 records).
# Iceberg, new: GetTable, metadata, CreateTable; with records also the data file, a manifest, a list of them, metadata,
# and the entry, read and updated. A table that exists is read once, with its metadata and its list of manifests.
# Hive, new: GetTable, CreateTable, GetTable, and the entry read and updated at the end; of a table that exists, the
# token is one update more. With records the data file, the commit's note in the entry, read and updated, and another
# read.
AT_MOST = {"iceberg": (3, 2, 9, 8), "hive-parquet": (5, 4, 9, 8), "hive-jsonl": (5, 4, 9, 8)}

LEDGER = "GET  list-type&prefix&delimiter&encoding-type"
"""A sync lists the ledger of erasures once, however many streams it has."""


class CountingAws(AwsProxy):
    """`asked` counts the requests by what they ask for."""

    def __init__(self, endpoint_url: str) -> None:
        super().__init__(endpoint_url)
        self.asked: Counter[str] = Counter()
        self._lock = threading.Lock()

    def answer(self, request: Request) -> Answer:
        with self._lock:
            self.asked[request.operation or _asked_of_s3(request)] += 1
        return self.pass_on(request)


def _asked_of_s3(request: Request) -> str:
    address = urlsplit(request.path)
    folder = next((name for name in ("metadata", "data", "generation") if f"/{name}" in address.path), "")
    return f"{request.method} {folder} {re.sub('=[^&]*', '', address.query)}".strip()


@pytest.mark.slow
def test_a_stream_costs_few_requests(warehouse: Warehouse) -> None:
    new_empty, empty, new, existing = AT_MOST[warehouse.kind.name]

    with _at_most(new_empty, warehouse) as url:
        _sync(warehouse, "a", 0, url)
    with _at_most(empty, warehouse) as url:
        _sync(warehouse, "a", 0, url)
    with _at_most(new, warehouse) as url:
        _sync(warehouse, "b", 10, url)
    with _at_most(existing, warehouse) as url:
        _sync(warehouse, "b", 10, url)

    assert warehouse.ids("b0") == sorted([*range(10), *range(10)])


@pytest.mark.slow
def test_a_sync_asks_for_its_database_once_and_not_for_every_stream(
    warehouse: Warehouse, pytestconfig: pytest.Config
) -> None:
    in_glue = not pytestconfig.getoption("--rest-catalog")
    with CountingAws(warehouse.lake.endpoint_url) as aws:
        _sync(warehouse, "a", 0, aws.endpoint_url, streams=40)

    assert aws.asked["GetDatabase"] == aws.asked["CreateDatabase"] == int(in_glue)


@contextmanager
def _at_most(requests: int, warehouse: Warehouse) -> Iterator[str]:
    with CountingAws(warehouse.lake.endpoint_url) as aws:
        yield aws.endpoint_url
    asked = {operation: times for operation, times in aws.asked.items() if not operation.endswith("Database")}
    assert asked.pop(LEDGER) == 1, asked
    assert sum(asked.values()) <= requests * STREAMS, asked


def _sync(warehouse: Warehouse, prefix: str, records: int, url: str, streams: int = STREAMS) -> None:
    names = [f"{prefix}{number}" for number in range(streams)]
    lines = [
        line
        for name in names
        for line in (
            *(record(name, {"id": id_, "name": "x"}) for id_ in range(records)),
            state(name, 1),
            status(name, "COMPLETE"),
        )
    ]
    warehouse.sync([configured_stream(name, SCHEMA) for name in names], lines, endpoint_url=url, sync_reports=False)
