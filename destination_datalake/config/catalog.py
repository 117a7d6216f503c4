"""Options of the catalog that tables are in: Glue, or one that speaks Iceberg's REST protocol."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field, SecretStr

from destination_datalake.config.base import Expects, Form, Options


class GlueCatalogOptions(Options, title="Glue Data Catalog"):
    """In the AWS Glue Data Catalog, under Lake Formation where it governs."""

    type: Literal["glue"]


class RestCatalogOptions(Options, title="Iceberg REST Catalog"):
    """In a catalog that speaks Iceberg's REST protocol, as Polaris, Lakekeeper, Nessie, Gravitino and Unity do."""

    fields_in_form: ClassVar = (
        *("type", "uri", "warehouse", "client_id", "client_secret", "scope", "oauth2_server_uri", "token", "realm"),
        *("signing_name", "signing_region", "ca_certificates", "vended_credentials"),
    )

    type: Literal["rest"]
    uri: Annotated[
        str,
        Field(pattern=r"^https?://[^\s@?#]+$"),
        Expects("the address of the catalog, such as https://polaris.example.com/api/catalog, without user"),
        Form(
            "The address of the catalog, without /v1 and what follows.",
            title="Address",
            examples=("https://polaris.example.com/api/catalog",),
        ),
    ]
    warehouse: Annotated[
        str | None,
        Field(min_length=1),
        Expects("the name of a warehouse in the catalog"),
        Form("The warehouse, for catalogs that have several.", examples=("lake",)),
    ] = None
    client_id: Annotated[
        str | None,
        Field(pattern=r"^[^:]+$"),  # RFC 7617: what is before the first colon.
        Expects("the id of an OAuth2 client, without a colon"),
        Form("The id of the OAuth2 client that the connector is.", title="Client Id", secret=False),
    ] = None
    client_secret: Annotated[
        SecretStr | None,
        Field(min_length=1),
        Expects("the secret of an OAuth2 client"),
        Form("The secret of the OAuth2 client.", title="Client Secret"),
    ] = None
    scope: Annotated[
        str,
        Field(min_length=1),
        Expects("what the OAuth2 client asks for, such as PRINCIPAL_ROLE:ALL"),
        Form("What the OAuth2 client asks for.", examples=("PRINCIPAL_ROLE:ALL",)),
    ] = "catalog"
    oauth2_server_uri: Annotated[
        str | None,
        Field(pattern=r"^https?://[^\s@?#]+$"),
        Expects("the address that issues OAuth2 tokens, without user"),
        Form(
            "The address that issues OAuth2 tokens. If empty: v1/oauth/tokens of the catalog.",
            title="Token Endpoint",
            examples=("https://keycloak.example.com/realms/iceberg/protocol/openid-connect/token",),
        ),
    ] = None
    token: Annotated[
        SecretStr | None,
        Field(min_length=1),
        Expects("a bearer token of the catalog"),
        Form("A bearer token, in place of an OAuth2 client. It is not renewed.", title="Bearer Token"),
    ] = None
    realm: Annotated[
        str | None,
        Field(pattern=r"^[^\x00-\x1f\x7f]+$"),
        Expects("the realm that requests name in the header Polaris-Realm"),
        Form("The realm, for a Polaris that has several.", examples=("POLARIS",)),
    ] = None
    signing_name: Annotated[
        str | None,
        Field(pattern=r"^[a-z0-9-]+$"),
        Expects("the name of an AWS service, such as execute-api"),
        Form(
            "Sign requests with the AWS credentials (SigV4), for this service. If empty: they are not signed.",
            title="Sign for Service",
            examples=("execute-api",),
        ),
    ] = None
    signing_region: Annotated[
        str | None,
        Field(pattern=r"^[a-z]{2,4}(-[a-z]+)+-[0-9]+$"),
        Expects("the code of a region, such as eu-west-1"),
        Form("The region that requests are signed for. If empty: Region.", title="Sign for Region"),
    ] = None
    ca_certificates: Annotated[
        str | None,
        Field(pattern=r"-----BEGIN CERTIFICATE-----"),
        Expects("certificates in PEM, each from -----BEGIN CERTIFICATE----- on"),
        Form(
            "Certificates, in PEM, of the authorities that the catalog's certificate is from, if they are not public.",
            title="Certificate Authorities",
            secret=False,
        ),
    ] = None
    vended_credentials: Annotated[
        bool,
        Form(
            "Read and write each table's files with credentials that the catalog lends, if it does. Off: always with "
            "the AWS credentials.",
            title="Vended Credentials",
        ),
    ] = True

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values that must be masked in every output."""
        return tuple(each.get_secret_value() for each in (self.client_secret, self.token) if each is not None)


Catalog = GlueCatalogOptions | RestCatalogOptions


def contradictory_catalog(catalog: Catalog, glue_only: dict[str, bool], *, spark_is_local: bool) -> Iterator[str]:
    """Yield a sentence for each pair of options that contradict each other.

    `glue_only` are options that mean something in Glue alone, and whether they are set.
    """
    if not isinstance(catalog, RestCatalogOptions):
        return
    for name, is_set in glue_only.items():
        if is_set:
            yield (
                f"{name} is for tables in Glue, and catalog.type is {catalog.type}. Leave it out, or set "
                "catalog.type to glue."
            )
    ways = {
        "catalog.client_secret": catalog.client_secret is not None,
        "catalog.token": catalog.token is not None,
        "catalog.signing_name": catalog.signing_name is not None,
    }
    if sum(ways.values()) > 1:
        given = " and ".join(name for name, is_given in ways.items() if is_given)
        yield f"{given} each say how the catalog knows the connector. Keep one of them."
    if catalog.vended_credentials and not spark_is_local:
        # What executors elsewhere are sent in S3 lies outside the tables that the catalog lends credentials for.
        yield (
            "catalog.vended_credentials are for executors on this machine, and spark has others. Set "
            "catalog.vended_credentials to false."
        )
    if catalog.client_id is not None and catalog.client_secret is None:
        yield "catalog.client_id is of a client whose catalog.client_secret is not set. Set it, or leave both out."
    if catalog.client_secret is not None and catalog.client_id is None:
        yield "catalog.client_secret is of a client whose catalog.client_id is not set. Set it."
    if catalog.signing_region is not None and catalog.signing_name is None:
        yield "catalog.signing_region is for signed requests. Set catalog.signing_name too, or leave it out."
