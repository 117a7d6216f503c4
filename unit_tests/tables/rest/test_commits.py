"""Commits to a REST catalog: what became of a commit whose response does not say so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from uuid import uuid4

import pytest
from emulated_aws.server import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY, AwsServer
from pyiceberg.catalog import Catalog as PyIcebergCatalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.table import Table as PyIcebergTable

from destination_datalake.aws.access import AccessKeys, AwsAccess
from destination_datalake.config.services import NO_LIMITS, CatalogLimits, RestCatalogOptions
from destination_datalake.errors import ConnectorError
from destination_datalake.lake_formation.governance import Governance
from destination_datalake.lake_formation.policy import Policy
from destination_datalake.tables.catalog import TableCatalog
from destination_datalake.tables.iceberg.commit import TableOperations, set_property
from destination_datalake.tables.iceberg.maintenance.cleanup import claim_daily_run
from destination_datalake.tables.rest.catalog import RestTableCatalog
from destination_datalake.tables.table import CommitStateUnknown
from integration_tests.catalogs.behaviour import Behaviour
from integration_tests.catalogs.interference import (
    Catalog,
    Interference,
    after,
    before,
    cut,
    garbled,
    lost,
    refused,
    sent_twice,
)
from integration_tests.catalogs.server import CatalogServer
from integration_tests.harness.loopback import Answer, HungUp, Request
from unit_tests.tables.iceberg.lake import Lake, no_rewrite


class RestLake(Lake):
    """A bucket of its own, and the table `orders` in a REST catalog of its own."""

    limits = NO_LIMITS

    def __init__(self, access: AwsAccess) -> None:
        super().__init__(access)
        self.server = CatalogServer(str(access.endpoint_url), self.bucket, Behaviour())

    def catalog(self) -> TableCatalog:
        governance = Governance(Policy(f"arn:aws:s3:::{self.bucket}"), self.access)
        options = RestCatalogOptions(type="rest", uri=self.server.endpoint_url)
        return RestTableCatalog(options, self.access, governance, self.limits)

    def load(self) -> PyIcebergTable:
        return self._client().load_table(self.name)

    def interfere(self, how: Interference, operation: str = "updateTable") -> None:
        """Let something become of every request for an operation, from now on."""
        for number in range(1, 50):
            self.server.interfere(operation, how, number)

    def _client(self) -> PyIcebergCatalog:
        properties = {
            "s3.endpoint": str(self.access.endpoint_url),
            "s3.access-key-id": ACCESS_KEY_ID,
            "s3.secret-access-key": SECRET_ACCESS_KEY,
            "s3.region": REGION,
        }
        return RestCatalog("other", uri=self.server.endpoint_url, **properties)


@pytest.fixture
def lake(server: AwsServer) -> Iterator[RestLake]:
    lake = RestLake(AwsAccess(REGION, AccessKeys(ACCESS_KEY_ID, SECRET_ACCESS_KEY), server.endpoint_url))
    with lake.server:
        yield lake


@pytest.mark.parametrize(
    "how", [lost(), lost(504), cut, garbled, sent_twice], ids=["reset", "504", "cut", "garbled", "sent twice"]
)
def test_a_commit_without_a_valid_response_is_found(lake: RestLake, how: Interference) -> None:
    syncing = lake.open()
    lake.server.interfere("updateTable", how)

    lake.commit(syncing, 1)
    lake.commit(syncing, 2)

    assert lake.ids() == [1, 2]


@pytest.mark.parametrize("how", [cut, garbled], ids=["cut", "garbled"])
def test_a_table_whose_creation_has_no_valid_response_is_found(lake: RestLake, how: Interference) -> None:
    lake.server.interfere("createTable", how)

    lake.commit(lake.open(), 1)

    assert lake.ids() == [1]


TOO_LARGE = CatalogLimits(metadata_bytes=2500)


@pytest.mark.parametrize(
    ("search", "limits", "reason"),
    [
        (refused(403), NO_LIMITS, "denied access"),
        (refused(401), NO_LIMITS, "rejected the credentials"),
        (refused(404), NO_LIMITS, "NoSuchTableError"),
        (garbled, NO_LIMITS, "did not respond as an Iceberg catalog"),
        (cut, NO_LIMITS, "did not respond. Check"),
        (None, TOO_LARGE, "is close to the catalog's limit"),
    ],
    ids=["403", "401", "404", "garbled", "cut", "too large"],
)
def test_no_file_is_deleted_if_a_commit_without_a_response_cannot_be_searched_for(
    lake: RestLake, search: Interference | None, limits: CatalogLimits, reason: str
) -> None:
    lake.limits = limits
    syncing = lake.open()
    file = lake.write(syncing, 1)
    lake.server.interfere("updateTable", lost(504))
    if search is not None:
        lake.interfere(search, "loadTable")

    with pytest.raises(CommitStateUnknown, match=reason):
        syncing.commit([file], no_rewrite)

    lake.interfere(after(lambda: None), "loadTable")
    assert lake.ids() == [1]


def claims(lake: RestLake, number: int) -> None:
    """Make commits without snapshots, as other syncs do."""
    for _ in range(number):
        TableOperations(lake.name, lake.catalog()).commit(lambda _, change: set_property("n", uuid4().hex, change))


def test_a_commit_without_a_snapshot_is_found_behind_others(lake: RestLake) -> None:
    lake.commit(lake.open(), 1)
    claims(lake, 1)
    lake.server.interfere("updateTable", after_which(lambda: claims(lake, 3)))

    is_claimed = claim_daily_run(TableOperations(lake.name, lake.catalog()), datetime.now(UTC))

    assert is_claimed


def test_a_commit_without_a_snapshot_is_unknown_behind_many_others(lake: RestLake) -> None:
    lake.commit(lake.open(), 1)
    claims(lake, 1)
    lake.server.interfere("updateTable", after_which(lambda: claims(lake, 10)))

    with pytest.raises(CommitStateUnknown, match="does not show"):
        claims(lake, 1)


def test_no_file_is_deleted_if_the_snapshot_of_a_commit_without_a_response_has_expired(lake: RestLake) -> None:
    syncing = lake.open()
    lake.commit(syncing, 1)
    lake.server.interfere("updateTable", after_which(lake.compact_and_expire))
    file = lake.write(syncing, 2)

    with pytest.raises(CommitStateUnknown, match="does not show"):
        syncing.commit([file], no_rewrite)

    assert file.uri in lake.uris()
    assert lake.ids() == [1, 2]


def test_a_refused_commit_is_made_again_although_snapshots_have_expired_since(lake: RestLake) -> None:
    syncing = lake.open()
    lake.commit(syncing, 1)
    lake.server.interfere("updateTable", before(lake.compact_and_expire))

    lake.commit(syncing, 2)

    assert lake.ids() == [1, 2]


def after_which(act: Callable[[], object]) -> Interference:
    """Act when the catalog has done what it was asked for, and lose its answer."""

    def interfere(request: Request, catalog: Catalog) -> Answer:
        catalog(request)
        act()
        raise HungUp

    return interfere


@pytest.mark.parametrize("status", [400, 401, 403, 422])
def test_files_of_a_refused_commit_are_deleted(lake: RestLake, status: int) -> None:
    syncing = lake.open()
    file = lake.write(syncing, 1)
    lake.interfere(refused(status))

    with pytest.raises(ConnectorError, match="Not for you"):
        syncing.commit([file], no_rewrite)

    assert file.uri not in lake.uris()
