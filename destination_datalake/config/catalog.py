"""Options of the tables' catalog: Glue, or a catalog with Iceberg's REST protocol.

Glue's REST endpoint and Amazon S3 Tables are REST catalogs with limits, which are checked before a sync begins.
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
    """The limits of a catalog, and the work that it does itself."""

    name: str = ".+"
    """The regular expression of valid names of databases and tables; `name_in_words` describes it."""
    name_in_words: str = "any characters"
    assigns_locations: bool = False
    """Whether the catalog assigns the tables' locations. Such a catalog also maintains the tables."""
    metadata_bytes: int | None = None
    """The maximum size of a metadata file in bytes."""

    def is_valid_name(self, name: str) -> bool:
        """Return whether a database or a table may have this name."""
        return re.fullmatch(self.name, name) is not None


NO_LIMITS = CatalogLimits()
"""The limits of a catalog without any, or with unknown ones."""

_S3_TABLES = CatalogLimits(
    # https://docs.aws.amazon.com/AmazonS3/latest/userguide/s3-tables-buckets-naming.html
    r"(?!aws)[0-9a-z][0-9a-z_]{0,254}",
    "lower-case letters, digits and underscores; the first character is not an underscore, and the name does not begin "
    "with aws",
    assigns_locations=True,
    metadata_bytes=50 * 1024**2,
)


class GlueCatalogOptions(Options, title="Glue Data Catalog"):
    """Tables in the AWS Glue Data Catalog, optionally governed by Lake Formation."""

    type: Literal["glue"]
    limits: ClassVar[CatalogLimits] = NO_LIMITS
    vended_credentials: ClassVar[bool] = False
    """Whether tables are read and written with credentials vended by the catalog."""


class RestCatalogOptions(Options, title="Iceberg REST Catalog"):
    """Tables in a catalog with Iceberg's REST protocol, such as Polaris, Lakekeeper, Nessie, Gravitino and Unity."""

    fields_in_form: ClassVar = (
        *("type", "uri", "warehouse", "client_id", "client_secret", "scope", "oauth2_server_uri", "token", "realm"),
        *("signing_name", "signing_region", "ca_certificates", "vended_credentials"),
    )

    type: Literal["rest"]
    uri: Annotated[str, Field(pattern=r"^https?://[^\s@?#]+$")]
    warehouse: Annotated[str | None, Field(min_length=1)] = None
    client_id: Annotated[str | None, Field(pattern=r"^[^:]+$")] = None  # RFC 7617: a colon ends the id.
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
    """Tables in the AWS Glue Data Catalog or a catalog federated into it, through Glue's Iceberg REST endpoint."""

    type: Literal["glue_rest"]
    warehouse: Annotated[str | None, Field(pattern=r"^[0-9]{12}(:[^\s:]+)?$")] = None
    vended_credentials: bool = False

    @property
    def limits(self) -> CatalogLimits:
        """The endpoint's limits (https://docs.aws.amazon.com/glue/latest/dg/limitation-glue-iceberg-rest-api.html)."""
        if self.warehouse is not None and ":s3tablescatalog/" in self.warehouse:
            return replace(_S3_TABLES, metadata_bytes=_GLUE_REST_METADATA_BYTES)
        return CatalogLimits(metadata_bytes=_GLUE_REST_METADATA_BYTES)


_GLUE_REST_METADATA_BYTES = 20 * 1024**2


class S3TablesCatalogOptions(Options, title="Amazon S3 Tables"):
    """Tables in a table bucket, through the REST endpoint of Amazon S3 Tables, which also maintains the tables."""

    type: Literal["s3_tables"]
    table_bucket_arn: Annotated[
        str, Field(pattern=r"^arn:aws[a-z-]*:s3tables:[a-z0-9-]+:[0-9]{12}:bucket/[a-z0-9-]{3,63}$")
    ]
    limits: ClassVar[CatalogLimits] = _S3_TABLES
    vended_credentials: ClassVar[bool] = False
    """Whether tables are read and written with credentials vended by the catalog."""


Catalog = GlueCatalogOptions | RestCatalogOptions | GlueRestCatalogOptions | S3TablesCatalogOptions


def contradictory_catalog(
    catalog: Catalog, glue_only: Mapping[str, bool], storage: Mapping[str, bool], *, spark_is_local: bool
) -> Iterator[str]:
    """Yield a message for each pair of contradictory options.

    `glue_only` has the options that only Glue supports, and `storage` the options of file storage, which S3 Tables
    manages itself. Both map an option's name to whether it is set.
    """
    if isinstance(catalog, GlueCatalogOptions):
        return
    for name, is_set in glue_only.items():
        if is_set and not (name in _DATA_CATALOG_OPTIONS and isinstance(catalog, GlueRestCatalogOptions)):
            yield (
                f"{name} is only for tables in Glue, but catalog.type is {catalog.type}. Remove it, or set "
                "catalog.type to glue."
            )
    if catalog.limits.assigns_locations:
        for name, is_set in storage.items():
            if is_set:
                yield f"{name} does not apply to table buckets, which Amazon S3 Tables manages. Remove it."
    if catalog.vended_credentials and not spark_is_local:
        # Vended credentials cover only the tables, not the staging folder of remote executors.
        yield (
            "catalog.vended_credentials requires executors on this machine, but spark.mode is not local. Set "
            "catalog.vended_credentials to false."
        )
    if isinstance(catalog, RestCatalogOptions):
        yield from _contradictory_authentication(catalog)


_DATA_CATALOG_OPTIONS = ("glue_catalog_id", "glue_region")


def _contradictory_authentication(catalog: RestCatalogOptions) -> Iterator[str]:
    methods = {
        "catalog.client_secret": catalog.client_secret is not None,
        "catalog.token": catalog.token is not None,
        "catalog.signing_name": catalog.signing_name is not None,
    }
    if sum(methods.values()) > 1:
        names = " and ".join(name for name, is_set in methods.items() if is_set)
        yield f"{names} are alternative authentication methods. Keep one of them."
    if catalog.client_id is not None and catalog.client_secret is None:
        yield "catalog.client_id requires catalog.client_secret. Set it, or remove catalog.client_id."
    if catalog.client_secret is not None and catalog.client_id is None:
        yield "catalog.client_secret requires catalog.client_id. Set it, or remove catalog.client_secret."
    if catalog.signing_region is not None and catalog.signing_name is None:
        yield "catalog.signing_region requires catalog.signing_name. Set it, or remove catalog.signing_region."
