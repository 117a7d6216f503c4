"""What catalogs differ in: who may ask, what they hand out, and what they refuse."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import quote

from emulated_aws.server import ACCESS_KEY_ID, ACCOUNT_ID, REGION, SECRET_ACCESS_KEY

MEGABYTE = 1024 * 1024


@dataclass(frozen=True)
class OAuth:
    """Whoever shows the credentials of a client has a token (RFC 6749, 4.4), which the catalog asks for.

    `path` is where. `refusal` is the status that says that a token has expired: 419 by the specification, and 401 by
    servers that leave it to a library.
    """

    client_id: str = "airbyte"
    client_secret: str = field(default="a-secret-of-catalogs", repr=False)
    scope: str = "catalog"
    path: str = "/v1/oauth/tokens"
    lifetime_seconds: int = 3600
    refusal: Literal[401, 419] = 401


@dataclass(frozen=True)
class SigV4:
    """Requests are signed with AWS's keys for a service; the secrets of sessions are AWS's, and are not checked."""

    service: str
    region: str = REGION
    secrets: Mapping[str, str] = field(default_factory=lambda: {ACCESS_KEY_ID: SECRET_ACCESS_KEY}, repr=False)


@dataclass(frozen=True)
class Behaviour:
    """A catalog's ways. The default asks for nothing, hands out no credentials, and refuses only what nobody accepts.

    `prefix` is a part of all paths but two, as it stands in them. A `warehouse` is asked for by its name, and `headers`
    with their values, as Polaris asks for a realm. `delegates` is how clients come to a table's objects, and
    `table_config` what all tables are loaded with. `page_size` bounds listings. `idempotency_lifetime` is an ISO 8601
    duration in which a repeated key has its first answer again.
    """

    prefix: str = ""
    warehouse: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    authorization: OAuth | SigV4 | None = None
    delegates: Literal["vended-credentials", "remote-signing", None] = None
    table_config: Mapping[str, str] = field(default_factory=dict)
    idempotency_lifetime: str | None = None
    page_size: int | None = None

    names: str = r"[^\x00-\x1f]+"
    """What names of namespaces and of tables match."""
    nested_namespaces: bool = True
    assigns_locations: bool = False
    """Tables lie where the server says, and nowhere else."""
    stages_creation: bool = True
    drops_only_with_purge: bool = False
    format_versions: tuple[int, ...] = (1, 2, 3)
    max_metadata_bytes: int | None = None


def s3_tables(bucket_arn: str = f"arn:aws:s3tables:{REGION}:{ACCOUNT_ID}:bucket/lake") -> Behaviour:
    """Return the ways of Amazon S3 Tables' own endpoint.

    https://docs.aws.amazon.com/AmazonS3/latest/userguide/s3-tables-integrating-open-source.html
    """
    return Behaviour(
        prefix=quote(bucket_arn, safe=""),
        warehouse=bucket_arn,
        authorization=SigV4("s3tables"),
        names="[0-9a-z][0-9a-z_]{0,254}",
        nested_namespaces=False,
        assigns_locations=True,
        stages_creation=False,
        drops_only_with_purge=True,
        format_versions=(2,),
        max_metadata_bytes=50 * MEGABYTE,
    )


def glue(catalog: str = ACCOUNT_ID) -> Behaviour:
    """Return the ways of the Glue Iceberg REST endpoint, for tables of an account's catalog.

    https://docs.aws.amazon.com/glue/latest/dg/connect-glu-iceberg-rest.html
    """
    return Behaviour(
        prefix=f"catalogs/{catalog}",
        warehouse=catalog,
        authorization=SigV4("glue"),
        names="[^A-Z\\x00-\\x1f]{1,255}",
        nested_namespaces=False,
        format_versions=(1, 2),
        max_metadata_bytes=20 * MEGABYTE,
    )
