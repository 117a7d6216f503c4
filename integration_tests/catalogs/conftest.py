"""Catalogs, and clients of theirs: PyIceberg's, and requests by hand where it would not send them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import requests
from emulated_aws.server import AwsServer
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.table import Table

from integration_tests.catalogs.behaviour import Behaviour
from integration_tests.catalogs.reference.server import ReferenceServer
from integration_tests.catalogs.server import CatalogServer
from integration_tests.harness.lake import Lake

ROWS = pa.table({"id": pa.array([1], pa.int64()), "text": ["one"]})

Json = Sequence[Mapping[str, Any]]

Serve = Callable[[Behaviour], CatalogServer]


class Client(RestCatalog):
    """A client of a catalog, which has the account's key unless the catalog hands out others."""

    def __init__(self, uri: str, lake: Lake, **properties: str) -> None:
        super().__init__("test", uri=uri, **lake.s3_properties, **properties)
        self.lake = lake

    def new_table(self, **properties: str) -> Table:
        """Create a table in a namespace of its own, with one row; a commit that is refused is not planned again."""
        namespace = self.lake.name("shop")
        self.create_namespace_if_not_exists(namespace)
        once = {"commit.retry.num-retries": "0"}
        table: Table = self.create_table((namespace, "orders"), ROWS.schema, properties=once | properties)
        table.append(ROWS)
        return table

    def commit(self, name: Sequence[str], requirements: Json, updates: Json) -> tuple[int, str]:
        """Send a commit as it is; return the status of the answer, and the type of the error if it is one."""
        url = self.url("namespaces/{namespace}/tables/{table}", namespace=name[0], table=name[1])
        return told(self._session.post(url, json={"requirements": requirements, "updates": updates}))


def told(response: requests.Response) -> tuple[int, str]:
    """Return an answer's status and, of an error in the specification's form, the type."""
    if response.status_code < 400:
        return response.status_code, ""
    error: dict[str, Any] = response.json()["error"]
    assert error["code"] == response.status_code
    assert error["message"]
    return response.status_code, error["type"]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    asks_iceberg = collection_path.name == "test_agreement.py"
    return True if asks_iceberg and config.getoption("--iceberg-catalog") is None else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "any_catalog" in metafunc.fixturenames:
        kinds = ["ours", "iceberg"] if metafunc.config.getoption("--iceberg-catalog") else ["ours"]
        metafunc.parametrize("any_catalog", kinds, indirect=True)


@pytest.fixture
def any_catalog(request: pytest.FixtureRequest) -> str:
    """The URI of a catalog that does what all do: this one, and Iceberg's own."""
    if request.param == "iceberg":
        uri: str = request.getfixturevalue("iceberg_catalog")
        return uri
    ours: Serve = request.getfixturevalue("serve")
    return ours(Behaviour()).endpoint_url


@pytest.fixture(scope="session")
def iceberg_catalog(pytestconfig: pytest.Config, aws: AwsServer) -> Iterator[str]:
    """The URI of Iceberg's own."""
    lake = Lake(aws.endpoint_url)
    with ReferenceServer(pytestconfig.getoption("--iceberg-catalog"), lake.endpoint_url, lake.bucket) as server:
        yield server.endpoint_url


@pytest.fixture
def serve(lake: Lake) -> Iterator[Serve]:
    """Start a catalog that behaves as a test wants."""
    with ExitStack() as stack:
        yield lambda behaviour: stack.enter_context(CatalogServer(lake.endpoint_url, lake.bucket, behaviour))
