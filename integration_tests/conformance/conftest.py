"""The platform of the conformance suite: runs are forked and share one Spark (see `warm`)."""

import pytest

from integration_tests.harness.table_kinds import PARTITIONED_KINDS, TABLE_KINDS, TableKind

ALSO_PARTITIONED = ("airbyte", "records", "tables")
"""The folders whose scenarios are also played with partitioned tables."""


@pytest.fixture
def table_kind(request: pytest.FixtureRequest) -> TableKind:
    """Each kind of table in turn, the partitioned ones too in the folders that `ALSO_PARTITIONED` names."""
    kind: TableKind = request.param
    return kind


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Let scenarios that do not say for which kinds of table they are be played with all."""
    chosen = any("table_kind" in mark.args[0] for mark in metafunc.definition.iter_markers("parametrize"))
    chosen |= hasattr(metafunc.module, "pytest_generate_tests")
    if "table_kind" in metafunc.fixturenames and not chosen:
        partitioned = PARTITIONED_KINDS if metafunc.definition.path.parent.name in ALSO_PARTITIONED else ()
        kinds = [*TABLE_KINDS, *(pytest.param(kind, marks=pytest.mark.slow) for kind in partitioned)]
        metafunc.parametrize("table_kind", kinds, ids=lambda kind: kind.name, indirect=True)
