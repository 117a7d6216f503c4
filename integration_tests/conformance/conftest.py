"""The platform of the conformance suite: runs are forked and share one Spark (see `warm`)."""

from collections.abc import Sequence
from zlib import crc32

import pytest

from integration_tests.harness.table_kinds import PARTITIONED_KINDS, TABLE_KINDS, TableKind


@pytest.fixture
def table_kind(request: pytest.FixtureRequest) -> TableKind:
    """Each kind of table in turn; of partitioned ones, those that `_partitioned` says."""
    kind: TableKind = request.param
    return kind


ALSO_PARTITIONED = ("airbyte", "records", "tables")
"""The folders whose scenarios are also played with partitioned tables."""

SHARE = 16
"""Without `--all-kinds` one scenario of so many is."""

TAKE_TURNS = (
    "test_basic_functionality",
    "test_basic_refreshes",
    "test_failures",
    "test_refreshes",
    "test_states",
)
"""Modules whose scenarios are about syncs, which end in Hive tables of either format alike; without `--all-kinds` each
is played with one of them. Values and their types are not."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Let scenarios that do not say for which kinds of table they are be played with all."""
    chosen = any("table_kind" in mark.args[0] for mark in metafunc.definition.iter_markers("parametrize"))
    chosen |= hasattr(metafunc.module, "pytest_generate_tests")
    if "table_kind" in metafunc.fixturenames and not chosen:
        kinds = (*_kinds(metafunc), *_partitioned(metafunc))
        metafunc.parametrize("table_kind", kinds, ids=lambda kind: kind.name, indirect=True)


def _kinds(metafunc: pytest.Metafunc) -> Sequence[TableKind]:
    if metafunc.config.getoption("--all-kinds") or metafunc.definition.path.stem not in TAKE_TURNS:
        return TABLE_KINDS
    iceberg, *hive = TABLE_KINDS
    return (iceberg, hive[crc32(metafunc.definition.nodeid.encode()) % len(hive)])


def _partitioned(metafunc: pytest.Metafunc) -> Sequence[TableKind]:
    if metafunc.definition.path.parent.name not in ALSO_PARTITIONED:
        return ()
    if metafunc.config.getoption("--all-kinds"):
        return PARTITIONED_KINDS
    drawn, number = divmod(crc32(metafunc.definition.nodeid.encode()), len(PARTITIONED_KINDS))
    return () if drawn % SHARE else (PARTITIONED_KINDS[number],)
