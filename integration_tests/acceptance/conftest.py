"""Airbyte's data, landed once per version of the types and kind of table; the tests look at what arrived."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from emulated_aws.server import AwsServer

from integration_tests.acceptance.pairs import Pair, find_pairs
from integration_tests.harness.lake import Lake
from integration_tests.harness.messages import configured_catalog, configured_stream, status
from integration_tests.harness.runs.output import Run
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.table_kinds import PARTITIONED_KINDS, TABLE_KINDS, TableKind

APPEND, OVERWRITE = "append", "overwrite"
DESTINATIONS = (APPEND, OVERWRITE)
"""Every pair is sent to two namespaces: one whose tables are appended to, one whose tables are replaced."""

ARCHIVED = "hive-parquet"
"""The kind of table whose records are archived as well."""


@dataclass(frozen=True)
class Sync:
    """One sync of all pairs: what was sent and what came back."""

    sync_id: int
    generations: Mapping[str, int]
    """The generation id of the streams of each destination."""
    lines: Sequence[bytes]
    run: Run


@dataclass(frozen=True)
class Landing:
    """Two syncs of all pairs of a version into one kind of table."""

    kind: TableKind
    lake: Lake
    syncs: tuple[Sync, Sync]

    def namespace(self, pair: Pair, destination: str) -> str:
        """Return where a pair was sent to; it is its own database name."""
        return namespace(self.lake, pair, destination)


def namespace(lake: Lake, pair: Pair, destination: str) -> str:
    return lake.name(f"{pair.name}_{destination}")


@pytest.fixture(scope="session")
def land(
    request: pytest.FixtureRequest, aws: AwsServer, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, str], Landing]:
    """Sync all pairs of a version, twice, into the kind of table with this name; the result is cached."""
    folder: Path = request.config.getoption("--airbyte-data")

    @cache
    def landed(version: str, kind_name: str) -> Landing:
        (kind,) = (kind for kind in (*TABLE_KINDS, *PARTITIONED_KINDS) if kind.name == kind_name)
        pairs = find_pairs(folder / version)
        lake = Lake(aws.endpoint_url)
        platform = Platform(tmp_path_factory.mktemp(f"{version}-{kind_name}"))
        first = _sync(platform, lake, kind, pairs, 1, {APPEND: 0, OVERWRITE: 1}, replaces_by_mode=False)
        second = _sync(platform, lake, kind, pairs, 2, {APPEND: 0, OVERWRITE: 2}, replaces_by_mode=True)
        return Landing(kind, lake, (first, second))

    return landed


@pytest.fixture
def landing(request: pytest.FixtureRequest, land: Callable[[str, str], Landing]) -> Landing:
    """The landing that the test's parameter names: (version, name of the table kind)."""
    return land(*request.param)


def _sync(
    platform: Platform,
    lake: Lake,
    kind: TableKind,
    pairs: Sequence[Pair],
    sync_id: int,
    generations: Mapping[str, int],
    *,
    replaces_by_mode: bool,
) -> Sync:
    """Send every pair to both destinations.

    An overwrite is requested in both ways: by generation ids alone (a truncate refresh, what platforms send
    today), or by the mode `overwrite`.
    """
    streams, lines, statuses = [], [], []
    for pair in pairs:
        for destination in DESTINATIONS:
            where = namespace(lake, pair, destination)
            lines += pair.under(where)
            for name, schema in pair.streams.items():
                statuses.append(status(name, "COMPLETE", namespace=where))
                streams.append(
                    configured_stream(
                        name,
                        schema,
                        namespace=where,
                        mode="overwrite" if destination == OVERWRITE and replaces_by_mode else "append",
                        generation=generations[destination],
                        minimum=generations[destination] if destination == OVERWRITE else 0,
                        sync_id=sync_id,
                    )
                )
    config = lake.config(**kind.options, raw_archive={"enabled": kind.name == ARCHIVED})
    run = platform.write(config, configured_catalog(*streams), [*lines, *statuses])
    return Sync(sync_id, generations, lines, run)
