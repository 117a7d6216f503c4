"""More streams than a process may have files open."""

from dataclasses import replace
from pathlib import Path

import pytest

from integration_tests.harness.messages import configured_stream, record, state, status
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.runs.warm import WarmLaunch
from integration_tests.harness.table_kinds import TABLE_KINDS
from integration_tests.harness.warehouse import INTEGER, Warehouse, object_schema

STREAMS = 100


@pytest.mark.slow
@pytest.mark.parametrize(
    ("table_kind", "soft", "hard"),
    [
        *(pytest.param(kind, 90, 90, id=f"{kind.name}-the limit is final") for kind in TABLE_KINDS),
        # Raised at the start, before there are tables of any kind.
        pytest.param(TABLE_KINDS[0], 64, 4096, id=f"{TABLE_KINDS[0].name}-the limit can be raised"),
    ],
)
def test_more_streams_than_file_descriptors_land(
    warehouse: Warehouse, tmp_path: Path, launch: WarmLaunch, soft: int, hard: int
) -> None:
    """Every stream has records waiting when the first of them lands."""
    few = replace(warehouse, platform=Platform(tmp_path, launch.with_descriptors(soft, hard)))
    names = [f"s{number}" for number in range(STREAMS)]
    lines = [record(name, {"id": id_}) for id_ in range(2) for name in names]
    ends = [line for name in names for line in (state(name, 1), status(name, "COMPLETE"))]

    run = few.sync([configured_stream(name, object_schema(id=INTEGER)) for name in names], [*lines, *ends])

    assert len(run.states) == STREAMS
    sample = names[::30]
    assert [warehouse.ids(name) for name in sample] == [[0, 1]] * len(sample)
