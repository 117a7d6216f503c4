"""A lake whose Iceberg tables are in a REST catalog instead of Glue."""

import gzip
import json
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, cast

from pyiceberg.catalog.glue import _IcebergSchemaToGlueType
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.schema import Schema, visit
from pyiceberg.types import LongType, NestedField

from integration_tests.catalogs.behaviour import Behaviour, OAuth
from integration_tests.catalogs.server import CatalogServer
from integration_tests.harness.lake import PREFIX, Lake

if TYPE_CHECKING:
    from types import TracebackType

    from mypy_boto3_glue.type_defs import TableTypeDef

CLIENT = OAuth(scope="PRINCIPAL_ROLE:ALL", path="/identity/oauth2/token")
REALM = {"Polaris-Realm": "TEST"}


class RestLake(Lake):
    """A lake with its own REST catalog, which requires OAuth2, a realm and a warehouse.

    The catalog's server runs within a `with` block.
    """

    def __init__(self, endpoint_url: str, behaviour: Behaviour | None = None) -> None:
        super().__init__(endpoint_url)
        ways = behaviour or Behaviour(prefix="lakes/main", warehouse="main", headers=REALM, authorization=CLIENT)
        self.server = CatalogServer(endpoint_url, self.bucket, ways)

    def __enter__(self) -> Self:
        self.server.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: "TracebackType | None"
    ) -> None:
        self.server.__exit__(kind, error, trace)

    @property
    def catalog(self) -> dict[str, object]:
        """The value of the connector's option `catalog` for this lake."""
        return {
            "type": "rest",
            "uri": self.server.endpoint_url,
            "warehouse": "main",
            "client_id": CLIENT.client_id,
            "client_secret": CLIENT.client_secret,
            "scope": CLIENT.scope,
            "oauth2_server_uri": f"{self.server.endpoint_url}{CLIENT.path}",
            "realm": REALM["Polaris-Realm"],
        }

    def config(self, **overrides: object) -> dict[str, object]:
        """Return the connector's configuration for this lake. `overrides` sets or replaces options.

        Hive tables are configured in Glue.
        """
        in_glue = overrides.get("table_type") == "HIVE"
        return super().config(**{**({} if in_glue else {"catalog": self.catalog}), **overrides})

    def glue_table(self, database: str, table: str) -> "TableTypeDef":
        """Return a table in the form of a Glue entry, so that tests can treat both catalogs alike.

        Raises EntityNotFoundException if the table does not exist.
        """
        try:
            loaded = self._iceberg.load_table((database, table))
        except NoSuchTableError as error:
            response: Any = {"Error": {"Code": "EntityNotFoundException", "Message": str(error)}}
            raise self.glue.exceptions.EntityNotFoundException(response, "GetTable") from error
        columns = [
            {"Name": field.name, "Type": visit(field.field_type, _IcebergSchemaToGlueType())}
            for field in loaded.schema().fields
        ]
        entry = {
            "Name": table,
            "DatabaseName": database,
            "Parameters": {**loaded.properties, "table_type": "ICEBERG", "metadata_location": loaded.metadata_location},
            "StorageDescriptor": {"Columns": columns, "Location": loaded.location()},
        }
        return cast("TableTypeDef", entry)

    def drop_table(self, database: str, table: str) -> None:
        """Remove a table from the catalog. Its objects in S3 remain."""
        self._iceberg.drop_table((database, table))

    def put_foreign_table(self, name: str) -> None:
        """Create a table in a new namespace of the catalog, at a location outside bucket_prefix."""
        self._iceberg.create_namespace(self.database)
        location = f"s3://{self.bucket}/elsewhere/{name}"
        self._iceberg.create_table((self.database, name), Schema(NestedField(1, "id", LongType())), location)

    def rejects(self) -> list[dict[str, Any]]:
        """Return all rejects, read from S3 in the order of the records. This catalog has no table of rejects."""
        rejects = []
        for key in self.objects(f"{PREFIX}/_errors/"):
            reason, stream, day, _ = key.removeprefix(f"{PREFIX}/_errors/").split("/")
            content = self.s3.get_object(Bucket=self.bucket, Key=key)["Body"].read()
            for line in gzip.decompress(content).splitlines():
                row = {name.lower(): value for name, value in json.loads(line).items()}
                rejects.append(row | {"reason": reason, "stream": stream, "dt": day.removeprefix("dt=")})
        return sorted(rejects, key=lambda row: (row["sequencenumber"], row["subsequencenumber"]))

    def tables(self) -> list[tuple[str, str]]:
        """Return (database, table) for every table in the catalog, sorted."""
        databases = [identifier[0] for identifier in self._iceberg.list_namespaces()]
        return sorted(
            (identifier[0], identifier[1])
            for database in databases
            for identifier in self._iceberg.list_tables(database)
        )

    @cached_property
    def _iceberg(self) -> RestCatalog:  # type: ignore[override]
        return RestCatalog(
            "lake",
            **{
                "uri": self.server.endpoint_url,
                "warehouse": "main",
                "credential": f"{CLIENT.client_id}:{CLIENT.client_secret}",
                "scope": CLIENT.scope,
                "oauth2-server-uri": f"{self.server.endpoint_url}{CLIENT.path}",
                "header.Polaris-Realm": REALM["Polaris-Realm"],
                **self.s3_properties,
            },
        )
