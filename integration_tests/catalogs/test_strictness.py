"""What this catalog refuses, and others let pass or fail at: by the specification, or as no client means it."""

import uuid
from typing import Any

import pytest

from integration_tests.catalogs.behaviour import Behaviour
from integration_tests.catalogs.conftest import Client, Serve
from integration_tests.harness.lake import Lake

SNAPSHOT = {"snapshot-id": 77, "summary": {"operation": "append"}, "manifest-list": "s3://nowhere/list.avro"}
SNAPSHOT |= {"schema-id": 0, "sequence-number": 77, "timestamp-ms": 4102444800000}
FILE = {"statistics-path": "s3://nowhere/stats", "file-size-in-bytes": 1, "file-footer-size-in-bytes": 1}


@pytest.fixture
def client(serve: Serve, lake: Lake) -> Client:
    return Client(serve(Behaviour()).endpoint_url, lake)


@pytest.mark.parametrize(
    "update",
    [
        {"action": "no-such-update"},
        {"action": "assign-uuid", "uuid": str(uuid.UUID(int=7))},
        {"action": "set-default-spec", "spec-id": 77},
        {"action": "set-default-sort-order", "sort-order-id": 77},
        {"action": "set-statistics", "statistics": {"snapshot-id": 77, **FILE, "blob-metadata": []}},
        {"action": "set-partition-statistics", "partition-statistics": {"snapshot-id": 77, **FILE}},
        {"action": "add-snapshot", "snapshot": {**SNAPSHOT, "schema-id": 77}},
        {"action": "add-snapshot", "snapshot": {**SNAPSHOT, "parent-snapshot-id": 78}},
        {"action": "add-snapshot", "snapshot": {**SNAPSHOT, "timestamp-ms": 1}},
    ],
    ids=lambda update: "-".join(map(str, update.values()))[:40],
)
def test_an_update_is_refused_and_nothing_changes(client: Client, update: dict[str, Any]) -> None:
    table = client.new_table()

    answer = client.commit(table.name(), [], [{"action": "set-properties", "updates": {"a": "b"}}, update])

    assert answer == (400, "BadRequestException")
    assert client.load_table(table.name()).metadata == table.metadata


def test_main_is_not_a_tag(client: Client) -> None:
    table = client.new_table()
    head = {"snapshot-id": table.metadata.current_snapshot_id}

    answer = client.commit(
        table.name(), [], [{"action": "set-snapshot-ref", "ref-name": "main", "type": "tag", **head}]
    )

    assert answer == (400, "BadRequestException")


@pytest.mark.parametrize("requirement", [{"type": "assert-properties"}, {"type": "assert-table-uuid"}])
def test_a_requirement_that_is_unknown_or_incomplete_is_refused(client: Client, requirement: dict[str, str]) -> None:
    assert client.commit(client.new_table().name(), [requirement], []) == (400, "BadRequestException")
