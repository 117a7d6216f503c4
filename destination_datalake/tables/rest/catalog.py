"""The `TableCatalog` for Iceberg REST catalogs, including the REST endpoints of AWS Glue and Amazon S3 Tables."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from destination_datalake.aws.access import catalog_id
from destination_datalake.config.services import (
    NO_LIMITS,
    CatalogLimits,
    GlueRestCatalogOptions,
    RestCatalogOptions,
    S3TablesCatalogOptions,
)
from destination_datalake.tables.catalog import ListedDatabase, ListedTable

if TYPE_CHECKING:
    from mypy_boto3_glue.type_defs import TableTypeDef
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.lake_formation.governance import Governance
    from destination_datalake.tables.rest.client import CertainRestCatalog
    from destination_datalake.tables.table import TableName

RestOptions = RestCatalogOptions | GlueRestCatalogOptions | S3TablesCatalogOptions

_CREATED_BY_CONNECTOR = {"created-by": "destination-datalake"}
"""A property that this connector sets on the namespaces that it creates, to recognise these namespaces later."""


class RestTableCatalog:
    """The namespaces and tables of an Iceberg REST server. Grants no Lake Formation permissions on namespaces."""

    compares_metadata = False

    def __init__(
        self, options: RestOptions, access: AwsAccess, governance: Governance, limits: CatalogLimits = NO_LIMITS
    ) -> None:
        self.governance = governance
        self._options = options
        self._limits = limits
        self._access = access
        self._existing: set[str] = set()
        self._lock = threading.Lock()
        self._client: CertainRestCatalog | None = None

    def pyiceberg(self) -> Catalog:
        """Return the PyIceberg catalog that all tables share. The first call connects to the server.

        Raises ConnectorError if the connection fails.
        """
        return self._connected()

    def access_of(self, table: TableName) -> AwsAccess:
        """Return access to the table's files with the credentials that the server vends for the table.

        If the server vends no credentials, return the configured access. Raises ConnectorError if a request to the
        server fails.
        """
        return self._connected().access_of(table)

    def ensure(self, database: str) -> None:
        """Create the namespace if it does not exist. Send requests only in the first call for each namespace.

        Raises ConnectorError if a request to the server fails.
        """
        # Without a lock: if two threads create the namespace, the second one finds that it exists.
        if database not in self._existing:
            self._connected().ensure_namespace(database, _CREATED_BY_CONNECTOR)
            self._existing.add(database)

    def govern(self, database: str) -> None:
        """Do nothing, because the connector grants no Lake Formation permissions on namespaces of REST catalogs."""

    def find(self, table: TableName) -> TableTypeDef | None:
        """Load the table and return it in Glue's format. Return None if the table does not exist."""
        iceberg_table = self._connected().find_table(table)
        return _in_glue_format(iceberg_table) if iceberg_table is not None else None

    def databases(self) -> Iterator[ListedDatabase]:
        """Yield all top-level namespaces, without creation times."""
        for name, properties in self._connected().namespaces():
            yield ListedDatabase(name, _CREATED_BY_CONNECTOR.items() <= properties.items(), None)

    def tables(self, database: str) -> Iterator[ListedTable]:
        """Load and yield all tables of a namespace. Send one request per table."""
        for table in self._connected().tables(database):
            yield ListedTable(database, _in_glue_format(table))

    def _connected(self) -> CertainRestCatalog:
        # Connect only when needed: importing PyIceberg takes a second, and the client sends a request.
        from destination_datalake.tables.rest.client import CertainRestCatalog

        # Several streams use the catalog at the same time, but must share one client.
        with self._lock:
            if self._client is None:
                options = rest_options(self._options, self._access)
                self._client = CertainRestCatalog(options, self._access, self._limits)
            return self._client


def rest_options(options: RestOptions, access: AwsAccess) -> RestCatalogOptions:
    """Return the options of a generic REST catalog that have the same effect as `options`.

    If the user has configured neither the `warehouse` nor the catalog ID of a Glue catalog, send a request to STS for
    the account ID of the credentials. Raises errors from this request.

    https://docs.aws.amazon.com/glue/latest/dg/connect-glu-iceberg-rest.html
    https://docs.aws.amazon.com/AmazonS3/latest/userguide/s3-tables-integrating-open-source.html
    """
    match options:
        case RestCatalogOptions():
            return options
        case GlueRestCatalogOptions():
            return RestCatalogOptions(
                type="rest",
                uri=_iceberg_uri(access.client("glue").meta.endpoint_url),
                warehouse=options.warehouse or catalog_id(access),
                signing_name="glue",
                signing_region=access.glue_region or access.region,
                vended_credentials=options.vended_credentials,
            )
        case S3TablesCatalogOptions():
            return RestCatalogOptions(
                type="rest",
                uri=_iceberg_uri(access.client("s3tables").meta.endpoint_url),
                warehouse=options.table_bucket_arn,
                signing_name="s3tables",
                vended_credentials=False,
            )


def _iceberg_uri(endpoint: str) -> str:
    return f"{endpoint.rstrip('/')}/iceberg"


def _in_glue_format(table: Table) -> TableTypeDef:
    """Return a table in the format of Glue's API, with only the members that this connector reads."""
    name = table.name()
    parameters = {**table.properties, "table_type": "ICEBERG", "metadata_location": table.metadata_location}
    return cast(
        "TableTypeDef",
        {
            "DatabaseName": ".".join(name[:-1]),
            "Name": name[-1],
            "Parameters": parameters,
            "StorageDescriptor": {"Location": table.location()},
        },
    )
