"""A small share of `make test-cluster`: a sync on a standalone cluster of one worker that shares no disk with it.

The worker's Python does not have the connector: `spark.python: pack` sends it.
"""

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyspark
import pytest
from emulated_aws.server import AwsServer

from integration_tests.cluster import sample
from integration_tests.cluster.harness.standalone import CONF, ROLE, Standalone
from integration_tests.harness.lake import Lake
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.table_kinds import TABLE_KINDS
from integration_tests.harness.warehouse import Warehouse

_ICEBERG = TABLE_KINDS[0]


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """The URL of a cluster whose only worker has no Python packages, and a temporary folder of its own."""
    hidden = {Path("/tmp"), Path(tempfile.gettempdir()).resolve()}
    variables = {**ROLE, "PYSPARK_PYTHON": str(Path(sys.executable).resolve())}
    with Standalone(Path(pyspark.__file__).parent, tmp_path, sorted(hidden), workers=1, variables=variables) as cluster:
        yield cluster.master


@pytest.mark.slow
def test_a_cluster_that_shares_no_disk_makes_the_same_tables(
    lake: Lake, aws: AwsServer, container: Platform, platform: Platform, master: str
) -> None:
    remote = {"spark": {"master": master, "python": "pack", "conf": CONF}}
    cluster = Warehouse(lake, container, replace(_ICEBERG, options={**_ICEBERG.options, **remote}))
    local = Warehouse(Lake(aws.endpoint_url), platform, _ICEBERG)
    sent = sample.lines(500)

    run = cluster.sync(sample.STREAMS, sent)
    local.sync(sample.STREAMS, sent)

    assert len(run.states) == 6
    assert sample.read_all(cluster) == sample.read_all(local)
    assert lake.objects("lake/_staging") == {}
