"""The platform of the conformance suite: runs are forked and share one Spark (see `warm`)."""

from collections.abc import Sequence
from zlib import crc32

import pytest

from integration_tests.harness.lake import Lake
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.table_kinds import PARTITIONED_KINDS, TABLE_KINDS, TableKind
from integration_tests.harness.warehouse import Warehouse


@pytest.fixture
def warehouse(lake: Lake, platform: Platform, table_kind: TableKind) -> Warehouse:
    """A new lake for each kind of table, and the platform that syncs into it."""
    return Warehouse(lake, platform, table_kind)


@pytest.fixture
def table_kind(request: pytest.FixtureRequest) -> TableKind:
    """Each kind of table in turn; of partitioned ones, those that `_partitioned` says."""
    kind: TableKind = request.param
    return kind


ALSO_PARTITIONED = ("airbyte", "records", "tables")
"""The folders whose scenarios are also played with partitioned tables."""

SHARE = 16
"""Without `--partitioned-kinds` one scenario of so many is."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Let scenarios that do not say for which kinds of table they are be played with all."""
    chosen = any("table_kind" in mark.args[0] for mark in metafunc.definition.iter_markers("parametrize"))
    chosen |= hasattr(metafunc.module, "pytest_generate_tests")
    if "table_kind" in metafunc.fixturenames and not chosen:
        kinds = (*TABLE_KINDS, *_partitioned(metafunc))
        metafunc.parametrize("table_kind", kinds, ids=lambda kind: kind.name, indirect=True)


def _partitioned(metafunc: pytest.Metafunc) -> Sequence[TableKind]:
    if metafunc.definition.path.parent.name not in ALSO_PARTITIONED:
        return ()
    if metafunc.config.getoption("--partitioned-kinds"):
        return PARTITIONED_KINDS
    drawn, number = divmod(crc32(metafunc.definition.nodeid.encode()), len(PARTITIONED_KINDS))
    return () if drawn % SHARE else (PARTITIONED_KINDS[number],)
