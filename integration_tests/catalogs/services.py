"""Lakes whose tables are in one of AWS's own REST catalogs, which has the endpoint of an AWS service."""

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Self

import pyarrow as pa
from emulated_aws.server import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY
from pyiceberg.catalog.rest import RestCatalog

from integration_tests.catalogs.behaviour import Behaviour, SigV4
from integration_tests.catalogs.server import CatalogServer
from integration_tests.harness.aws_proxy import AwsProxy
from integration_tests.harness.loopback import Answer, Request
from integration_tests.harness.rest_lake import RestLake

_OBJECT = re.compile(r"/[^/?]+--table-s3/[^?]+")


class ServiceEndpoint(AwsProxy):
    """The endpoint of an account's services: below `/iceberg` is the catalog.

    In the buckets of tables S3 does what it does in those of S3 Tables, and `refused` has all that it does not:
    https://docs.aws.amazon.com/AmazonS3/latest/API/developing-s3-tables-APIs.html
    """

    def __init__(self, account_url: str, catalog: CatalogServer) -> None:
        super().__init__(account_url)
        self._catalog = catalog
        self.refused: list[str] = []

    def __enter__(self) -> Self:
        super().__enter__()
        self._catalog.endpoint_url = f"{self.endpoint_url}/iceberg"
        return self

    def answer(self, request: Request) -> Answer:
        """Answer a request, or have the catalog or the account answer it."""
        if request.path.startswith("/iceberg/"):
            return self._catalog.answer(replace(request, path=request.path.removeprefix("/iceberg")))
        if "--table-s3" in request.path.partition("?")[0] and not _is_taken(request):
            self.refused.append(f"{request.method} {request.path}")
            return Answer(405, {}, b"<Error><Code>MethodNotAllowed</Code></Error>")
        return self.pass_on(request)


def _is_taken(request: Request) -> bool:
    if request.header("x-amz-copy-source") or request.header("x-amz-server-side-encryption"):
        return False
    path, _, query = request.path.partition("?")
    aborts = request.method == "DELETE" and "uploadId=" in query
    return _OBJECT.fullmatch(path) is not None and (request.method in ("GET", "HEAD", "PUT", "POST") or aborts)


class ServiceLake(RestLake):
    """Its tables are in a catalog that is a service of AWS. `option` is the option `catalog`."""

    def __init__(self, endpoint_url: str, behaviour: Behaviour, option: Mapping[str, object]) -> None:
        super().__init__(endpoint_url, behaviour)
        self.endpoint = ServiceEndpoint(endpoint_url, self.server)
        self._option = option

    def __enter__(self) -> Self:
        self.endpoint.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.endpoint.__exit__(None, None, None)

    @property
    def catalog(self) -> dict[str, object]:
        """The option `catalog`."""
        return {**self._option}

    def config(self, **overrides: object) -> dict[str, object]:
        """Return a configuration of the connector for this lake, with these options set or replaced."""
        return super().config(**{"endpoint_url": self.endpoint.endpoint_url, **overrides})

    def read(self, database: str, table: str) -> pa.Table:
        """Return every row of a table; of one in a bucket of its own, as PyIceberg reads it."""
        if not self.server.behaviour.assigns_locations:
            return super().read(database, table)
        return self.iceberg_table(database, table).scan().to_arrow()

    @cached_property
    def _iceberg(self) -> RestCatalog:  # type: ignore[override]
        authorization = self.server.behaviour.authorization
        assert isinstance(authorization, SigV4)
        return RestCatalog(
            "lake",
            **{
                "uri": self.server.endpoint_url,
                "warehouse": self.server.behaviour.warehouse,
                "rest.sigv4-enabled": "true",
                "rest.signing-name": authorization.service,
                "rest.signing-region": REGION,
                "client.access-key-id": ACCESS_KEY_ID,
                "client.secret-access-key": SECRET_ACCESS_KEY,
                "client.region": REGION,
                **self.s3_properties,
            },
        )
