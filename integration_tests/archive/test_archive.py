"""The archive: the RECORD lines of every acknowledged row, byte for byte, and whose they are."""

import pytest

from integration_tests.archive import archived
from integration_tests.harness.lake import Lake
from integration_tests.harness.messages import configured_stream, record, state, status
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.table_kinds import TableKind
from integration_tests.harness.warehouse import INTEGER, STRING, Warehouse, object_schema

SCHEMA = object_schema(id=INTEGER, name=STRING)
ORDERS = configured_stream("orders", SCHEMA)
ARCHIVE = {"raw_archive": {"enabled": True}}
SENT = [
    record("orders", {"id": 1, "name": "a"}),
    b' {"type":"RECORD", "x":1, "record":{"stream":"orders","emitted_at":1700000000000,"data":{"name":"\xc3\xa9"}}} ',
    record("orders", {"id": "no number"}),
    state("orders", 3),
    record("orders", {"id": 2**40}),
    state("orders", 4),
    status("orders", "COMPLETE"),
]


@pytest.fixture
def warehouse(lake: Lake, platform: Platform, table_kind: TableKind) -> Warehouse:
    return Warehouse(lake, platform, table_kind)


def test_records_are_archived_byte_for_byte(warehouse: Warehouse) -> None:
    warehouse.sync([ORDERS], SENT, **ARCHIVE)

    assert archived.lines(warehouse.lake, "orders") == archived.as_archived(SENT)
    assert not warehouse.lake.unfinished_uploads()
