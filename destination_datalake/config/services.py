"""Options for the services that a sync uses: AWS, the catalog, Lake Formation, Spark, notices and lineage."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, SecretStr

from destination_datalake.config.base import REGION, ROLE_ARN, AnyCase, Entries, Options

# --- AWS --------------------------------------------------------------------------------------------------------------
# Options for the connector's AWS identity and for the encryption of objects in S3.


class IamRole(Options):
    """A role that the connector assumes with the credentials of its environment, and renews during a sync."""

    credentials_title: Literal["IAM Role"]
    role_arn: Annotated[str, Field(pattern=ROLE_ARN)]
    external_id: Annotated[str | None, Field(pattern=r"^[A-Za-z0-9_+=,.@:/-]{2,1224}$")] = None
    session_duration_seconds: Annotated[int, Field(ge=900, le=43200)] = 3600


class IamUser(Options):
    """The access key of an IAM user."""

    credentials_title: Literal["IAM User"]
    aws_access_key_id: Annotated[SecretStr, Field(min_length=1)]
    aws_secret_access_key: Annotated[SecretStr, Field(min_length=1)]


class DefaultChain(Options):
    """The credentials of AWS's default chain: environment variables, a profile, or a container's role."""

    credentials_title: Literal["Default chain"]


Credentials = IamRole | IamUser | DefaultChain


class BucketDefault(Options, title="Bucket Default"):
    """The bucket's default encryption. Requests do not set any encryption."""

    encryption_type: Literal["Bucket default"]


class SseS3(Options, title="SSE-S3: Keys Managed by S3"):
    """Encryption with keys that S3 manages (SSE-S3)."""

    encryption_type: Literal["SSE-S3"]


class SseKms(Options, title="SSE-KMS: Your Key in KMS"):
    """Encryption with your own key in KMS (SSE-KMS)."""

    encryption_type: Literal["SSE-KMS"]
    # The pattern rejects aliases, because an IAM policy cannot allow the use of a key by the ARN of the key's alias
    # (KMS: aliases and IAM policies).
    kms_key_arn: Annotated[str, Field(pattern=r"^arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+$")]
    bucket_key: bool = True


# --- Catalog ----------------------------------------------------------------------------------------------------------
# Options for the catalog of the tables: Glue, or a catalog with Iceberg's REST protocol.
#
# Glue's REST endpoint and Amazon S3 Tables are REST catalogs with limits. The connector checks these limits before a
# sync begins.


@dataclass(frozen=True, slots=True)
class CatalogLimits:
    """The limits of a catalog: the valid names, the size of metadata files, and the choice of table locations."""

    name: str = ".+"
    """The regular expression for valid database and table names. `name_in_words` describes the rule to users."""
    name_in_words: str = "any characters"
    assigns_locations: bool = False
    """Whether the catalog assigns the locations of tables. Such a catalog also maintains the tables."""
    metadata_bytes: int | None = None
    """The maximum size of a metadata file in bytes, or None if there is no limit."""

    def is_valid_name(self, name: str) -> bool:
        """Return whether the catalog accepts `name` for a database or a table."""
        return re.fullmatch(self.name, name) is not None


NO_LIMITS = CatalogLimits()
"""The value for a catalog that has no limits, or whose limits are unknown."""

_S3_TABLES = CatalogLimits(
    # https://docs.aws.amazon.com/AmazonS3/latest/userguide/s3-tables-buckets-naming.html
    r"(?!aws)[0-9a-z][0-9a-z_]{0,254}",
    "lower-case letters, digits and underscores, without an underscore or aws at the beginning",
    assigns_locations=True,
    metadata_bytes=50 * 1024**2,
)


class GlueCatalogOptions(Options, title="Glue Data Catalog"):
    """Tables in the AWS Glue Data Catalog, optionally governed by Lake Formation."""

    type: Literal["glue"]
    limits: ClassVar[CatalogLimits] = NO_LIMITS
    vended_credentials: ClassVar[bool] = False
    """Whether the connector reads and writes tables with credentials that the catalog vends."""


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
    """Whether the connector reads and writes tables with credentials that the catalog vends."""


Catalog = GlueCatalogOptions | RestCatalogOptions | GlueRestCatalogOptions | S3TablesCatalogOptions


def contradictory_catalog(
    catalog: Catalog, glue_only: Mapping[str, bool], storage: Mapping[str, bool], *, spark_is_local: bool
) -> Iterator[str]:
    """Yield a message for each option that contradicts the options of the catalog.

    `glue_only` contains the options that only Glue supports. `storage` contains the options for file storage, which do
    not apply to S3 Tables. Both map the name of each option to whether the option is set.
    """
    if isinstance(catalog, GlueCatalogOptions):
        return
    for name, is_set in glue_only.items():
        if is_set and not (name in _DATA_CATALOG_OPTIONS and isinstance(catalog, GlueRestCatalogOptions)):
            yield (
                f"{name} requires catalog.type glue, but catalog.type is {catalog.type}. Remove {name}, or set "
                "catalog.type to glue."
            )
    if catalog.limits.assigns_locations:
        for name, is_set in storage.items():
            if is_set:
                yield f"{name} does not apply to table buckets, which Amazon S3 Tables manages. Remove {name}."
    if catalog.vended_credentials and not spark_is_local:
        # Vended credentials allow access only to tables, not to the staging folder that remote executors read.
        yield (
            "catalog.vended_credentials requires spark.mode local, because vended credentials do not allow access to "
            "the staging folder of remote executors. Set catalog.vended_credentials to false."
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
        yield f"{names} are alternative authentication methods. Keep one of these options, and remove the rest."
    if catalog.client_id is not None and catalog.client_secret is None:
        yield (
            "catalog.client_id requires catalog.client_secret. Set catalog.client_secret, or remove catalog.client_id."
        )
    if catalog.client_secret is not None and catalog.client_id is None:
        yield (
            "catalog.client_secret requires catalog.client_id. Set catalog.client_id, or remove catalog.client_secret."
        )
    if catalog.signing_region is not None and catalog.signing_name is None:
        yield (
            "catalog.signing_region requires catalog.signing_name. Set catalog.signing_name, or remove "
            "catalog.signing_region."
        )


# --- Lake Formation ---------------------------------------------------------------------------------------------------
# Options for Lake Formation: registration of the data location, LF-Tags and grants.


GovernanceMode = Literal["none", "hybrid", "managed"]
Permission = Literal[
    "ALL", "ALTER", "CREATE_TABLE", "DATA_LOCATION_ACCESS", "DELETE", "DESCRIBE", "DROP", "INSERT", "SELECT"
]

LOCATION_PERMISSIONS: frozenset[Permission] = frozenset({"DATA_LOCATION_ACCESS"})
DATABASE_PERMISSIONS: frozenset[Permission] = frozenset({"ALL", "ALTER", "CREATE_TABLE", "DESCRIBE", "DROP"})
TABLE_PERMISSIONS: frozenset[Permission] = frozenset({"ALL", "ALTER", "DELETE", "DESCRIBE", "DROP", "INSERT", "SELECT"})
COLUMN_PERMISSIONS: frozenset[Permission] = frozenset({"SELECT"})
"""The permissions that users can grant on data locations, databases, tables and columns, respectively (Lake Formation
API: GrantPermissions)."""

ALL_TABLES = "*"

# Lake Formation API: LFTag. Keys have 1 to 128 characters, values 0 to 256. An empty value is equivalent to no value.
_TagKey = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[\w\s.:/=+\-@%]+$")]
_TagValue = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[\w\s.:/=+\-@%]+$")]
Tags = dict[_TagKey, Annotated[list[_TagValue], Field(min_length=1, max_length=1000)]]
"""Maps the key of each LF-Tag to its values. The connector adds all values to the LF-Tag's definition, and assigns only
the first value to the resource."""

_Database = Annotated[str | None, Field(pattern=r"^[a-z0-9_-]{1,255}$")]
_Columns = Annotated[list[Annotated[str, Field(min_length=1, max_length=255)]] | None, Field(min_length=1)]


class LfTag(Options):
    """An LF-Tag and its values."""

    name: _TagKey
    values: Annotated[list[_TagValue], Field(min_length=1)]


class TableTags(Options):
    """The LF-Tags of a table, or of some of its columns, in addition to the tags inherited from the database."""

    table: Annotated[str, Field(min_length=1, max_length=255)]
    tags: Annotated[Tags, Field(min_length=1), Entries(LfTag)]
    database: _Database = None
    columns: _Columns = None


class Grant(Options):
    """Permissions granted to one principal on the data location and the databases, on tables, or on columns."""

    principal: Annotated[str, Field(pattern=r"^(arn:aws[a-z-]*:[a-z0-9-]+:[a-z0-9-]*:[0-9]{0,12}:.+|[0-9]{12})$")]
    permissions: Annotated[list[Permission], Field(min_length=1)]
    grantable: bool = False
    database: _Database = None
    table: Annotated[str | None, Field(min_length=1, max_length=255)] = None
    columns: _Columns = None


class LakeFormationOptions(Options):
    """Options of governance by Lake Formation: the mode, LF-Tags and grants."""

    mode: GovernanceMode = "none"
    registration_role_arn: Annotated[str | None, Field(pattern=ROLE_ARN)] = None
    tags: Annotated[Tags, Entries(LfTag)] = Field(default_factory=dict)
    table_tags: list[TableTags] = Field(default_factory=list)
    grants: list[Grant] = Field(default_factory=list)


def contradictory_governance(options: LakeFormationOptions, *, governed_tables: bool) -> Iterator[str]:
    """Yield a message for each contradiction among Lake Formation options that are valid individually.

    `governed_tables` is the value of the older option lakeformation_governed_tables.
    """
    if governed_tables and options.mode != "managed":
        yield (
            "lakeformation_governed_tables true requires lake_formation.mode managed, but lake_formation.mode is "
            f"{options.mode}. Set lake_formation.mode to managed, or lakeformation_governed_tables to false."
        )
    elif options.mode == "none":
        candidates = ("registration_role_arn", "tags", "table_tags", "grants")
        if ignored := [f"lake_formation.{name}" for name in candidates if getattr(options, name)]:
            verb = "has" if len(ignored) == 1 else "have"
            yield (
                f"{' and '.join(ignored)} {verb} no effect with lake_formation.mode none. Set lake_formation.mode to "
                f"hybrid or managed, or remove {'it' if len(ignored) == 1 else 'them'}."
            )
    for number, grant in enumerate(options.grants):
        yield from _contradictory_grant(f"lake_formation.grants.{number}", grant)


def _contradictory_grant(name: str, grant: Grant) -> Iterator[str]:
    permissions = frozenset(grant.permissions)
    if grant.columns is not None:
        if grant.table is None:
            yield f'{name}.columns requires {name}.table. Set table to the name of a table, or to "*" for all tables.'
        elif unsupported := permissions - COLUMN_PERMISSIONS:
            yield (
                f"{name}: {', '.join(sorted(unsupported))} cannot be granted on columns, because Lake Formation "
                "supports only SELECT on columns. Remove columns, or move these permissions to a separate grant "
                "without columns."
            )
    elif grant.table is not None:
        if unsupported := permissions - TABLE_PERMISSIONS:
            yield (
                f"{name}: {', '.join(sorted(unsupported))} cannot be granted on a table. "
                "Move these permissions to a separate grant without table."
            )
    elif unsupported := permissions - DATABASE_PERMISSIONS - LOCATION_PERMISSIONS:
        yield (
            f"{name}: {', '.join(sorted(unsupported))} cannot be granted on a database. "
            'Set table to the name of a table, or to "*" for all tables.'
        )


# --- Spark ------------------------------------------------------------------------------------------------------------
# Options for Spark: where it runs, its properties, and the credentials that remote executors use.


ExecutorCredentials = Literal["role", "session"]


class Setting(Options):
    """A property of Spark."""

    name: Annotated[str, Field(min_length=1)]
    value: str


class SparkOptions(Options):
    """Where Spark runs, and the properties of Spark. Subclasses restrict the values of `master` and `remote`."""

    master: str = "local[*]"
    remote: str | None = None
    token: SecretStr | None = None
    python: Annotated[str, Field(pattern=r"^(same|pack|/\S.*)$"), AnyCase()] = "same"
    executor_credentials: ExecutorCredentials = "role"
    conf: Annotated[dict[str, str], Entries(Setting)] = Field(default_factory=dict)

    @property
    def is_local(self) -> bool:
        """Whether Spark runs only on this machine. If so, executors share the connector's disk and AWS identity."""
        return self.master.startswith("local") and not self.is_connect

    @property
    def is_connect(self) -> bool:
        """Whether the connector uses Spark Connect. If so, the driver runs on another machine."""
        return self.remote is not None

    @property
    def is_authenticated(self) -> bool:
        """Whether Spark's processes authenticate each other with a shared secret.

        They do so by default, except on a standalone cluster, where users must configure the secret:
        https://spark.apache.org/docs/latest/security.html#spark-rpc-communication-protocol-between-spark-processes
        """
        return self.conf.get(_AUTHENTICATES, str(not self.master.startswith("spark://"))).lower() == "true"

    @property
    def is_unencrypted(self) -> bool:
        """Whether Spark sends tasks to other machines without encryption, judging by the connector's options.

        AES and SASL encrypt only authenticated connections. If a token is set, PySpark uses TLS for all connections
        except those to localhost. https://spark.apache.org/docs/latest/security.html#network-encryption
        """
        if self.remote is not None:
            uses_tls = self.token is not None and not _TO_LOCALHOST.match(self.remote)
            return not uses_tls and "use_ssl=true" not in self.remote.lower()
        if self.is_local:
            return False
        on = {name for name, value in self.conf.items() if value.lower() == "true"}
        encrypts = self.is_authenticated and not on.isdisjoint(_ENCRYPTS_IF_AUTHENTICATED)
        return _ENCRYPTS_ALONE not in on and not encrypts

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about network connections of Spark that lack encryption or authentication."""
        warnings = []
        if self.is_connect and self.is_unencrypted:
            warnings.append(
                "The connection to spark.remote does not use TLS, so an attacker on the network can change the data. "
                f"Set use_ssl=true in spark.remote.{_SEE}"
            )
        elif not self.is_connect and not self.is_authenticated:
            warnings.append(
                "Spark does not authenticate connections. Anyone with access to the ports of its driver or executors "
                "can run code in the connector and read its credentials. Set spark.authenticate and "
                f"spark.network.crypto.enabled to true in spark.conf.{_SEE}"
            )
        if self.is_unencrypted and self.executor_credentials != "role":
            encrypt = (
                "use_ssl=true in spark.remote"
                if self.is_connect
                else "spark.authenticate and spark.network.crypto.enabled to true in spark.conf"
            )
            warnings.append(
                "Spark sends session credentials to its executors in clear text. "
                f"Set {encrypt}, or give the executors their own role and set spark.executor_credentials to role."
            )
        return tuple(warnings)


_SEE = " See docs/operating/security.md."
_TO_LOCALHOST = re.compile(r"sc://localhost(?:[:/;]|$)", re.IGNORECASE)


class LocalSpark(SparkOptions, title="On this machine"):
    """Spark in the connector's container. It is included in the image and needs no setup."""

    fields_in_form: ClassVar = ("mode", "master", "conf")

    mode: Literal["local"] = "local"
    master: Annotated[str, Field(pattern=r"^local(\[[0-9*]+(, *[0-9]+)?\]|-cluster\[[0-9, ]+\])?$"), AnyCase()] = (
        "local[*]"
    )


class ClusterSpark(SparkOptions, title="On a cluster"):
    """Executors on other machines, and the driver in the connector's container."""

    fields_in_form: ClassVar = ("mode", "master", "python", "executor_credentials", "conf")

    mode: Literal["cluster"]
    master: Annotated[str, Field(pattern=r"^(spark://\S+|k8s://\S+|yarn)$")]


class ConnectSpark(SparkOptions, title="Behind Spark Connect"):
    """Driver and executors on other machines, behind a Spark Connect server."""

    fields_in_form: ClassVar = ("mode", "remote", "token", "python", "executor_credentials", "conf")

    mode: Literal["connect"]
    remote: Annotated[str, Field(pattern=r"^sc://[^\s/;]+(/\S*)?$")]


Spark = LocalSpark | ClusterSpark | ConnectSpark


def inferred_mode(spark: Mapping[str, Any]) -> str:
    """Return the value of `mode` for Spark options that do not contain `mode`, as in older configurations."""
    if spark.get("remote") is not None:
        return "connect"
    return "local" if str(spark.get("master", "local")).lower().startswith("local") else "cluster"


_ENCRYPTS_ALONE = "spark.ssl.rpc.enabled"
_AUTHENTICATES = "spark.authenticate"
_ENCRYPTS_IF_AUTHENTICATED = ("spark.network.crypto.enabled", "spark.authenticate.enableSaslEncryption")

_TOKEN_IN_ADDRESS = re.compile(r";token=", re.IGNORECASE)


def contradictory_spark(spark: Spark) -> Iterator[str]:
    """Yield a message for each contradiction among Spark options that are valid individually."""
    if {"master", "remote"} <= spark.model_fields_set:
        yield "spark.master and spark.remote exclude each other. Remove one of them."
    elif spark.remote is not None and not isinstance(spark, ConnectSpark):
        yield (
            f"spark.remote requires spark.mode connect, but spark.mode is {spark.mode}. Set spark.mode to connect, or "
            "remove spark.remote."
        )
    if spark.remote is not None and _TOKEN_IN_ADDRESS.search(spark.remote):
        yield (
            "spark.remote contains a token, but the connector does not treat spark.remote as a secret. Move the token "
            "to spark.token."
        )
    if spark.token is not None and spark.remote is None:
        yield "spark.token requires spark.remote, but spark.remote is not set. Set spark.remote, or remove spark.token."
    for name in ("spark.pyspark.python", "spark.pyspark.driver.python"):
        if name in spark.conf:
            yield f"{name} has no effect in spark.conf. Set spark.python instead."
    for name in ("spark.master", "spark.remote"):
        if name in spark.conf:
            yield f"{name} is not allowed in spark.conf. Set the option {name} instead."


# --- Notices and lineage ----------------------------------------------------------------------------------------------
# Options for notices to Amazon SNS about syncs, and for lineage events to OpenLineage.


class NotifyOptions(Options):
    """The SNS topic for messages about failed syncs, and the numbers of failures that send one."""

    sns_topic_arn: Annotated[
        str | None, Field(pattern=r"^arn:aws[a-z-]*:sns:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9_-]{1,256}(\.fifo)?$")
    ] = None
    after: list[Annotated[int, Field(ge=1, le=1000)]] = Field(default_factory=lambda: [1, 5, 20])


class LineageOptions(Options):
    """The receiver of OpenLineage events."""

    endpoint: Annotated[str | None, Field(pattern=r"^(https?://[^\s@?#]+|/[^\x00-\x1f]+)$")] = None
    api_key: SecretStr | None = None
