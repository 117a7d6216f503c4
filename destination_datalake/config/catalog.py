"""Options of the catalog that tables are in: Glue, or one that speaks Iceberg's REST protocol.

Glue's own REST endpoint and Amazon S3 Tables are of the latter; what they do not take is refused before a sync begins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

from pydantic import Field, SecretStr

from destination_datalake.config.base import REGION, Options


@dataclass(frozen=True, slots=True)
class CatalogLimits:
    """What a catalog does not take, and what it does itself."""

    name: str = ".+"
    """What names of databases and tables match, as a regular expression, and in words."""
    name_in_words: str = "any characters"
    assigns_locations: bool = False
    """Whether tables lie where the catalog says: it maintains them there, and nobody else deletes their files."""
    metadata_bytes: int | None = None
    """How long metadata files may be."""

    def takes(self, name: str) -> bool:
        """Whether a database or a table may have this name."""
        return re.fullmatch(self.name, name) is not None


NO_LIMITS = CatalogLimits()
"""Those of a catalog that takes everything, or of which nothing is known."""

_S3_TABLES = CatalogLimits(
    # https://docs.aws.amazon.com/AmazonS3/latest/userguide/s3-tables-buckets-naming.html
    r"(?!aws)[0-9a-z][0-9a-z_]{0,254}",
    "lower-case letters, digits and underscores, the first no underscore, and do not begin with aws",
    assigns_locations=True,
    metadata_bytes=50 * 1024**2,
)


class GlueCatalogOptions(Options, title="Glue Data Catalog"):
    """In the AWS Glue Data Catalog, under Lake Formation where it governs."""

    type: Literal["glue"]
    limits: ClassVar[CatalogLimits] = NO_LIMITS
    vended_credentials: ClassVar[bool] = False
    """Whether tables are read and written with what it lends."""


class RestCatalogOptions(Options, title="Iceberg REST Catalog"):
    """In a catalog that speaks Iceberg's REST protocol, as Polaris, Lakekeeper, Nessie, Gravitino and Unity do."""

    fields_in_form: ClassVar = (
        *("type", "uri", "warehouse", "client_id", "client_secret", "scope", "oauth2_server_uri", "token", "realm"),
        *("signing_name", "signing_region", "ca_certificates", "vended_credentials"),
    )

    type: Literal["rest"]
    uri: Annotated[str, Field(pattern=r"^https?://[^\s@?#]+$")]
    warehouse: Annotated[str | None, Field(min_length=1)] = None
    client_id: Annotated[str | None, Field(pattern=r"^[^:]+$")] = None  # RFC 7617: what is before the first colon.
    client_secret: Annotated[SecretStr | None, Field(min_length=1)] = None
    scope: Annotated[str, Field(min_length=1)] = "catalog"
    oauth2_server_uri: Annotated[str | None, Field(pattern=r"^https?://[^\s@?#]+$")] = None
    token: Annotated[SecretStr | None, Field(min_length=1)] = None
    realm: Annotated[str | None, Field(pattern=r"^[^\x00-\x1f\x7f]+$")] = None
    signing_name: Annotated[str | None, Field(pattern=r"^[a-z0-9-]+$")] = None
    signing_region: Annotated[str | None, Field(pattern=REGION)] = None
    ca_certificates: Annotated[str | None, Field(pattern=r"-----BEGIN CERTIFICATE-----")] = None
    vended_credentials: bool = True
    limits: ClassVar[CatalogLimits] = NO_LIMITS


class GlueRestCatalogOptions(Options, title="Glue Iceberg REST Endpoint"):
    """In the AWS Glue Data Catalog, or in a catalog that it has of others, through Glue's Iceberg REST endpoint."""

    type: Literal["glue_rest"]
    warehouse: Annotated[str | None, Field(pattern=r"^[0-9]{12}(:[^\s:]+)?$")] = None
    vended_credentials: bool = False

    @property
    def limits(self) -> CatalogLimits:
        """What it does not take (https://docs.aws.amazon.com/glue/latest/dg/limitation-glue-iceberg-rest-api.html)."""
        if self.warehouse is not None and ":s3tablescatalog/" in self.warehouse:
            return replace(_S3_TABLES, metadata_bytes=_GLUE_REST_METADATA_BYTES)
        return CatalogLimits(metadata_bytes=_GLUE_REST_METADATA_BYTES)


_GLUE_REST_METADATA_BYTES = 20 * 1024**2


class S3TablesCatalogOptions(Options, title="Amazon S3 Tables"):
    """In a table bucket, through the REST endpoint of Amazon S3 Tables, which also maintains the tables."""

    type: Literal["s3_tables"]
    table_bucket_arn: Annotated[
        str, Field(pattern=r"^arn:aws[a-z-]*:s3tables:[a-z0-9-]+:[0-9]{12}:bucket/[a-z0-9-]{3,63}$")
    ]
    limits: ClassVar[CatalogLimits] = _S3_TABLES
    vended_credentials: ClassVar[bool] = False
    """Whether tables are read and written with what it lends."""


Catalog = GlueCatalogOptions | RestCatalogOptions | GlueRestCatalogOptions | S3TablesCatalogOptions


def contradictory_catalog(
    catalog: Catalog, glue_only: Mapping[str, bool], of_services: Mapping[str, bool], *, spark_is_local: bool
) -> Iterator[str]:
    """Yield a sentence for each pair of options that contradict each other.

    `glue_only` are options that mean something in Glue alone, and whether they are set; `of_services` those that say
    how files are kept, which S3 Tables does itself.
    """
    if isinstance(catalog, GlueCatalogOptions):
        return
    for name, is_set in glue_only.items():
        if is_set and not (name in _OF_THE_DATA_CATALOG and isinstance(catalog, GlueRestCatalogOptions)):
            yield (
                f"{name} is for tables in Glue, and catalog.type is {catalog.type}. Leave it out, or set "
                "catalog.type to glue."
            )
    if catalog.limits.assigns_locations:
        for name, is_set in of_services.items():
            if is_set:
                yield f"{name} is not for tables in a table bucket, which Amazon S3 Tables keeps. Leave it out."
    if catalog.vended_credentials and not spark_is_local:
        # What executors elsewhere are sent in S3 lies outside the tables that the catalog lends credentials for.
        yield (
            "catalog.vended_credentials are for executors on this machine, and spark has others. Set "
            "catalog.vended_credentials to false."
        )
    if isinstance(catalog, RestCatalogOptions):
        yield from _contradictory_ways(catalog)


_OF_THE_DATA_CATALOG = ("glue_catalog_id", "glue_region")


def _contradictory_ways(catalog: RestCatalogOptions) -> Iterator[str]:
    ways = {
        "catalog.client_secret": catalog.client_secret is not None,
        "catalog.token": catalog.token is not None,
        "catalog.signing_name": catalog.signing_name is not None,
    }
    if sum(ways.values()) > 1:
        given = " and ".join(name for name, is_given in ways.items() if is_given)
        yield f"{given} each say how the catalog knows the connector. Keep one of them."
    if catalog.client_id is not None and catalog.client_secret is None:
        yield "catalog.client_id is of a client whose catalog.client_secret is not set. Set it, or leave both out."
    if catalog.client_secret is not None and catalog.client_id is None:
        yield "catalog.client_secret is of a client whose catalog.client_id is not set. Set it."
    if catalog.signing_region is not None and catalog.signing_name is None:
        yield "catalog.signing_region is for signed requests. Set catalog.signing_name too, or leave it out."
