"""Doors, and a warehouse that the console script fills through each."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from zlib import crc32

import pytest
from emulated_aws.server import AwsServer

from integration_tests.cluster.doors import DOORS, Cluster, Door
from integration_tests.harness.lake import Lake
from integration_tests.harness.runs.launch import launch_command
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.runs.warm import WarmLaunch
from integration_tests.harness.table_kinds import TABLE_KINDS, TableKind
from integration_tests.harness.warehouse import Warehouse


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, default=4027, help="what happens to executors at random")


@pytest.fixture(scope="session", params=[pytest.param(door, id=door.name) for door in DOORS])
def door(request: pytest.FixtureRequest) -> Door:
    """Each door in turn."""
    chosen: Door = request.param
    return chosen


@pytest.fixture(scope="session")
def cluster(door: Door, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster behind a door, up for all tests of this process that need one and leave it sound."""
    with ExitStack() as up:
        yield up.enter_context(door.open(tmp_path_factory.mktemp(door.name)))


@pytest.fixture
def platform(tmp_path: Path) -> Platform:
    """Airbyte, about to run the console script."""
    return Platform(tmp_path, launch_command)


@pytest.fixture
def local(aws: AwsServer, tmp_path: Path, launch: WarmLaunch, table_kind: TableKind) -> Warehouse:
    """A lake beside it, which is filled by a local Spark."""
    return Warehouse(Lake(aws.endpoint_url), Platform(tmp_path, launch), table_kind)


@pytest.fixture
def table_kind(request: pytest.FixtureRequest) -> TableKind:
    """A kind of table: with doors and scenarios they take turns."""
    return TABLE_KINDS[crc32(request.node.nodeid.encode()) % len(TABLE_KINDS)]


@pytest.fixture
def warehouse(lake: Lake, platform: Platform, table_kind: TableKind, cluster: Cluster) -> Warehouse:
    """A new lake that is filled through the door."""
    return Warehouse(lake, platform, replace(table_kind, options={**table_kind.options, "spark": cluster.option}))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let one process have all tests of a door: a cluster for each of two would take their time from both."""
    for item in items:
        callspec = getattr(item, "callspec", None)
        if callspec is not None and "door" in callspec.params:
            item.add_marker(pytest.mark.xdist_group(callspec.params["door"].name.partition("-")[0]))
