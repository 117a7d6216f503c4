"""The rules of the policy: capability → actions → resources, each action with its reason and when it is needed.

The page docs/permissions.md is generated from this table, and tests compare it with the requests of syncs and checks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate
from typing import Self, TypeAlias

from destination_datalake.aws.address import S3Address, partition_of
from destination_datalake.config.aws import SseKms
from destination_datalake.config.catalog import GlueRestCatalogOptions, S3TablesCatalogOptions
from destination_datalake.config.governance import LOCATION_PERMISSIONS, Grant, TableTags
from destination_datalake.config.options import Config
from destination_datalake.config.tables import REPORTS_TABLE, GlueOptimizers
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.rejects.ledger import REJECTS_TABLE
from destination_datalake.tables.naming import REBUILD_SUFFIX, TableNaming

_ROLE_ACCOUNT = re.compile(r"^arn:[^:]+:iam::(\d{12}):role/")

# The characters of a policy document (IAM API: policyDocumentType); "*" matches any run of others.
_NOT_IN_POLICIES = re.compile(r"[^\x20-\xff]+")


@dataclass(frozen=True, slots=True)
class Scope:
    """What the statements of one configuration's policy are about.

    `account` owns the Data Catalog; it is ANY_ACCOUNT if no option names it. `databases` begins with
    lakeformation_database_name. `outside` are folders in S3, without a slash at the end, of tables elsewhere
    (follow_table_location).
    """

    config: Config
    account: str
    databases: tuple[str, ...]
    outside: tuple[S3Address, ...] = ()

    @classmethod
    def of(cls, config: Config, streams: Iterable[StreamId] = (), outside: Iterable[S3Address] = ()) -> Self:
        """Return the scope of a configuration; `streams` have databases of their own if they have namespaces."""
        folders = tuple(S3Address(address.bucket, address.key.strip("/")) for address in outside)
        return cls(config, _catalog_account(config), _databases(config, streams), folders)

    @property
    def partition(self) -> str:
        """The partition of AWS in ARNs: aws, aws-cn, …."""
        return partition_of(self.config.region)

    @property
    def warehouse(self) -> S3Address:
        """The folder of bucket_name and bucket_prefix, without a slash at the end."""
        return S3Address(self.config.bucket_name, self.config.key().rstrip("/"))

    @property
    def folders(self) -> tuple[S3Address, ...]:
        """The warehouse and the folders outside it."""
        return (self.warehouse, *self.outside)

    def replaced(self) -> tuple[str, ...]:
        """The names of folders and databases that a policy document cannot hold, so that wildcards stand for them."""
        names = (*(folder.key for folder in self.folders), *self.databases)
        return tuple(name for name in names if _in_policy(name) != name)

    @property
    def database(self) -> str:
        """The database of streams without a namespace, of rejects and of `check`."""
        return self.databases[0]

    def objects(self) -> tuple[str, ...]:
        """The ARNs of all objects in the folders."""
        return tuple(self.s3(f"{address.bucket}/{_under(address)}") for address in self.folders)

    def s3(self, name: str) -> str:
        """The ARN of a bucket, of a folder or of objects."""
        return _in_policy(f"arn:{self.partition}:s3:::{name}")

    def catalog(self, *names: str) -> tuple[str, ...]:
        """The ARNs of the Data Catalog and of these resources in it, such as `database/landing`.

        Glue authorizes a request for a resource together with the resources that contain it:
        https://docs.aws.amazon.com/glue/latest/dg/glue-specifying-resource-arns.html
        """
        region = self.config.glue_region or self.config.region
        root = f"arn:{self.partition}:glue:{region}:{self.account}"
        below = self._federated()
        catalogs = ["catalog", *(f"catalog/{name}" for name in accumulate(below, "{}/{}".format))]
        inside = ("/".join([kind, *below, name]) for kind, _, name in (each.partition("/") for each in names))
        return tuple(_in_policy(f"{root}:{name}") for name in (*catalogs, *inside))

    def _federated(self) -> Sequence[str]:
        """The names of the catalog that the Data Catalog has of others, the outermost first: `s3tablescatalog`, …."""
        catalog = self.config.catalog
        warehouse = catalog.warehouse if isinstance(catalog, GlueRestCatalogOptions) else None
        return warehouse.partition(":")[2].split("/") if warehouse is not None and ":" in warehouse else ()

    def table_bucket(self) -> str | None:
        """The ARN of the table bucket that tables are in; None if they are in no such bucket."""
        catalog = self.config.catalog
        if isinstance(catalog, S3TablesCatalogOptions):
            return catalog.table_bucket_arn
        if not catalog.limits.assigns_locations:
            return None
        region = self.config.glue_region or self.config.region
        return f"arn:{self.partition}:s3tables:{region}:{self.account}:bucket/{self._federated()[-1]}"

    def tables(self, databases: Sequence[str], *names: str) -> tuple[str, ...]:
        """The ARNs of tables with these names or patterns in each database, and of what contains them."""
        in_databases = [f"database/{database}" for database in databases]
        return self.catalog(*in_databases, *(f"table/{database}/{name}" for database in databases for name in names))


def _in_policy(text: str) -> str:
    """Return text with what a policy document cannot hold replaced by the wildcard `*`."""
    return _NOT_IN_POLICIES.sub("*", text)


def _under(folder: S3Address) -> str:
    return f"{folder.key}/*" if folder.key else "*"


def _catalog_account(config: Config) -> str:
    credentials = config.credentials
    role_account = _ROLE_ACCOUNT.match(credentials.role_arn) if credentials.credentials_title == "IAM Role" else None
    account = config.glue_catalog_id or config.aws_account_id or (role_account[1] if role_account else None)
    if isinstance(config.catalog, GlueRestCatalogOptions) and config.catalog.warehouse is not None:
        return config.catalog.warehouse.partition(":")[0]
    return account or ANY_ACCOUNT


def _databases(config: Config, streams: Iterable[StreamId]) -> tuple[str, ...]:
    naming = TableNaming.of(config)
    governance = config.lake_formation
    options: tuple[Grant | TableTags, ...] = (*governance.grants, *governance.table_tags)
    named = (each.database for each in options if each.database)
    others = {*(naming.table_of(stream).database for stream in streams), *named} - {naming.database}
    return (naming.database, *sorted(others))


ANY_ACCOUNT = "*"
"""The account of ARNs in a policy that is for the Data Catalog of any account that lets the user or role in."""

CHECKED_TABLES = "airbyte_check_*"
"""The names of the tables that `check` creates and drops."""

Condition: TypeAlias = Mapping[str, Mapping[str, Sequence[str]]]
"""Operator → condition key → values, as a policy document has them."""


class Need(Enum):
    """Which commands use an action."""

    BOTH = "syncs, `check`"
    SYNC = "syncs"
    CHECK = "`check`"
    OPTIONAL = "`check`; optional"
    MAINTAIN = "`maintain`"
    REPLAY = "`replay --replace`"
    ERASURE = "`delete-rows`"


@dataclass(frozen=True, slots=True)
class When:
    """The configurations that need something; `options` says which, in Markdown."""

    options: str
    holds: Callable[[Config], bool]


def _tags(config: Config) -> bool:
    governance = config.lake_formation
    return bool(governance.tags or governance.table_tags or config.database_default_tag())


def _opts_in(config: Config) -> bool:
    """Principals are opted in on databases and tables, not on data locations."""
    granted = {permission for grant in config.lake_formation.grants for permission in grant.permissions}
    return config.lake_formation.mode == "hybrid" and bool(granted - LOCATION_PERMISSIONS)


def registers_partitions(config: Config) -> bool:
    """Whether the options mean Hive tables whose partitions are registered in the catalog."""
    partitioned = (
        config.partitioning != "NO PARTITIONING"
        or config.path_layout != "hive"
        or any(stream.partition_by for stream in config.streams)
    )
    return config.table_type == "HIVE" and partitioned and config.catalog_partitions != "projection"


ALWAYS = When("", lambda _config: True)
IN_GLUE = When("`catalog.type` glue", lambda config: config.catalog.type == "glue")
OF_GLUE = When("`catalog.type` glue or glue_rest", lambda config: config.catalog.type in ("glue", "glue_rest"))
GLUE_REST = When("`catalog.type` glue_rest", lambda config: config.catalog.type == "glue_rest")
HAS_LINES_TABLES = When(
    "`catalog.type` glue or glue_rest, without a table bucket",
    lambda config: OF_GLUE.holds(config) and not config.catalog.limits.assigns_locations,
)
REPORTS = When(
    "`sync_reports`, and the same catalogs", lambda config: config.sync_reports and HAS_LINES_TABLES.holds(config)
)
NOTIFIED = When("`notify.sns_topic_arn`", lambda config: config.notify.sns_topic_arn is not None)
S3_TABLES = When("`catalog.type` s3_tables", lambda config: config.catalog.type == "s3_tables")
TABLE_BUCKET = When("tables in a table bucket", lambda config: config.catalog.limits.assigns_locations)
LENT = When(
    "`catalog.type` glue_rest with `vended_credentials`",
    lambda config: isinstance(config.catalog, GlueRestCatalogOptions) and config.catalog.vended_credentials,
)
ARCHIVED = When("`raw_archive.enabled`", lambda config: config.raw_archive.enabled)
REPLAYED = When("the same, with tables in Glue", lambda config: ARCHIVED.holds(config) and OF_GLUE.holds(config))
ENCRYPTED = When("`encryption` SSE-KMS", lambda config: config.encryption.encryption_type == "SSE-KMS")
PARTITIONED = When("partitioned Hive tables, unless `catalog_partitions` is projection", registers_partitions)
GOVERNED = When("`lake_formation.mode` hybrid or managed", lambda config: config.lake_formation.mode != "none")
REGISTERED = When(
    "`lake_formation.registration_role_arn`", lambda config: config.lake_formation.registration_role_arn is not None
)
TAGGED = When("`lake_formation.tags`, `table_tags`, or the default tag", _tags)
GRANTED = When("`lake_formation.grants`", lambda config: bool(config.lake_formation.grants))
OPTED_IN = When("`lake_formation.grants` with mode hybrid", _opts_in)

MAINTAINED = When(
    "`maintenance.mode` connector",
    lambda config: config.maintenance.mode == "connector" and config.table_type == "ICEBERG" and OF_GLUE.holds(config),
)
MAINTAINED_BY_NAMESPACE = When(
    "the same, and `database_strategy` namespace",
    lambda config: MAINTAINED.holds(config) and config.database_strategy == "namespace",
)
OPTIMIZED = When(
    "`maintenance.mode` glue", lambda config: config.maintenance.mode == "glue" and config.table_type == "ICEBERG"
)


@dataclass(frozen=True, slots=True)
class Permission:
    """One IAM action, when it is needed and why."""

    action: str
    need: Need
    why: str
    when: When = ALWAYS


@dataclass(frozen=True, slots=True)
class Capability:
    """Actions on the same resources: one statement of the policy."""

    sid: str
    permissions: tuple[Permission, ...]
    resources: Callable[[Scope], Sequence[str]]
    condition: Callable[[Scope], Condition] = lambda _scope: {}


def _buckets(scope: Scope) -> Sequence[str]:
    return tuple(dict.fromkeys(scope.s3(address.bucket) for address in scope.folders))


def _listed_prefixes(scope: Scope) -> Condition:
    return {"StringLike": {"s3:prefix": tuple(dict.fromkeys(_in_policy(_under(each)) for each in scope.folders))}}


def _via_s3(scope: Scope) -> Condition:
    # https://docs.aws.amazon.com/kms/latest/developerguide/conditions-kms.html#conditions-kms-via-service
    names = [f"s3.{scope.config.region}.amazonaws.com"]
    if scope.partition == "aws-cn":
        # Services have both names there; which of the two KMS compares is not documented for every service.
        names.append(f"{names[0]}.cn")
    return {"StringEquals": {"kms:ViaService": names}}


CAPABILITIES: Sequence[Capability] = (
    Capability(
        "Objects",
        (
            Permission(
                "s3:PutObject",
                Need.BOTH,
                "data files, metadata of Iceberg tables, rejects, reports, the archive, staged segments",
            ),
            Permission(
                "s3:GetObject",
                Need.BOTH,
                "metadata of Iceberg tables; files that are rewritten or copied; staged segments; whose records are "
                "suppressed, by the ledger of `delete-rows`; the archive, which `replay` and `maintain` read",
            ),
            Permission(
                "s3:DeleteObject",
                Need.BOTH,
                "the object of `check`, staged segments, old metadata, folders that a Hive table has left, files of "
                "failed batches; of the archive what a refresh has replaced, with `raw_archive.superseded` delete",
            ),
            Permission("s3:AbortMultipartUpload", Need.BOTH, "uploads of failed batches"),
        ),
        Scope.objects,
    ),
    Capability(
        "Folders",
        (
            Permission(
                "s3:ListBucket",
                Need.BOTH,
                "the files of a Hive table; what killed syncs have staged; the ledger of `delete-rows`; the archive, "
                "for `replay` and `maintain`",
            ),
        ),
        _buckets,
        _listed_prefixes,
    ),
    Capability(
        "Lifecycle",
        # https://docs.aws.amazon.com/AmazonS3/latest/API/API_GetBucketLifecycleConfiguration.html
        (
            Permission(
                "s3:GetLifecycleConfiguration",
                Need.OPTIONAL,
                "warnings of `check` about rules that keep the archive shorter or longer than `retention_days`",
                ARCHIVED,
            ),
        ),
        lambda scope: [scope.s3(scope.warehouse.bucket)],
    ),
    Capability(
        "Key",
        (
            Permission("kms:GenerateDataKey", Need.BOTH, "objects that are written", ENCRYPTED),
            # https://docs.aws.amazon.com/AmazonS3/latest/userguide/mpuoverview.html#mpuAndPermissions
            Permission("kms:Decrypt", Need.BOTH, "objects that are read; parts of multipart uploads", ENCRYPTED),
        ),
        lambda scope: [kms.kms_key_arn] if isinstance(kms := scope.config.encryption, SseKms) else [],
        _via_s3,
    ),
    Capability(
        "Databases",
        (
            Permission("glue:GetDatabase", Need.BOTH, "whether a database exists", OF_GLUE),
            Permission("glue:CreateDatabase", Need.BOTH, "databases that do not exist", OF_GLUE),
        ),
        lambda scope: scope.catalog(*(f"database/{database}" for database in scope.databases)),
    ),
    Capability(
        "Tables",
        (
            Permission("glue:GetTable", Need.BOTH, "every commit", OF_GLUE),
            Permission("glue:CreateTable", Need.BOTH, "new tables, and those of rejects and reports", OF_GLUE),
            Permission("glue:UpdateTable", Need.BOTH, "every commit", OF_GLUE),
        ),
        lambda scope: scope.tables(scope.databases, "*"),
    ),
    Capability(
        "Catalogs",
        (Permission("glue:GetCatalog", Need.BOTH, "every request to the REST endpoint", GLUE_REST),),
        lambda scope: scope.catalog(),
    ),
    Capability(
        # https://docs.aws.amazon.com/AmazonS3/latest/userguide/s3-tables-integrating-open-source.html
        "TableBucket",
        (
            Permission("s3tables:GetTableBucket", Need.BOTH, "the configuration of the REST endpoint", S3_TABLES),
            Permission("s3tables:GetNamespace", Need.BOTH, "whether a namespace exists", S3_TABLES),
            Permission("s3tables:CreateNamespace", Need.BOTH, "namespaces that do not exist", S3_TABLES),
            Permission("s3tables:CreateTable", Need.BOTH, "new tables", S3_TABLES),
        ),
        lambda scope: [arn] if (arn := scope.table_bucket()) is not None else [],
    ),
    Capability(
        "TablesInBucket",
        (
            Permission("s3tables:GetTableMetadataLocation", Need.BOTH, "every commit", S3_TABLES),
            Permission("s3tables:UpdateTableMetadataLocation", Need.BOTH, "every commit", S3_TABLES),
            Permission("s3tables:GetTableData", Need.BOTH, "metadata; files that are rewritten", TABLE_BUCKET),
            Permission("s3tables:PutTableData", Need.BOTH, "data files, and metadata", TABLE_BUCKET),
            Permission("s3tables:DeleteTable", Need.CHECK, "the table that `check` creates", S3_TABLES),
        ),
        lambda scope: [f"{arn}/table/*"] if (arn := scope.table_bucket()) is not None else [],
    ),
    Capability(
        "Partitions",
        (
            Permission("glue:BatchGetPartition", Need.BOTH, "whether the partitions of a batch exist", PARTITIONED),
            Permission("glue:GetPartitions", Need.BOTH, "all partitions, when a table has changed", PARTITIONED),
            Permission("glue:BatchCreatePartition", Need.BOTH, "partitions that do not exist", PARTITIONED),
            Permission("glue:BatchUpdatePartition", Need.BOTH, "partitions of tables that have changed", PARTITIONED),
            Permission("glue:BatchDeletePartition", Need.BOTH, "partitions that an overwrite replaces", PARTITIONED),
        ),
        lambda scope: scope.tables(scope.databases, "*"),
    ),
    Capability(
        "Rejects",
        (
            Permission(
                "glue:BatchCreatePartition",
                Need.BOTH,
                "partitions of the table of rejects; without it, rejects are in S3 alone",
                HAS_LINES_TABLES,
            ),
        ),
        lambda scope: scope.tables([scope.database], REJECTS_TABLE, CHECKED_TABLES),
    ),
    Capability(
        "Reports",
        (
            Permission("glue:GetPartition", Need.SYNC, "whether the day's reports are in their table", REPORTS),
            Permission("glue:BatchCreatePartition", Need.SYNC, "a day whose reports are not in it", REPORTS),
        ),
        lambda scope: scope.tables([scope.database], REPORTS_TABLE),
    ),
    Capability(
        "Topic",
        (Permission("sns:Publish", Need.SYNC, "notices of failed syncs", NOTIFIED),),
        lambda scope: [topic] if (topic := scope.config.notify.sns_topic_arn) is not None else [],
    ),
    Capability(
        "CheckedTables",
        (
            Permission(
                "glue:DeleteTable", Need.CHECK, "the table that `check` creates; a sync never drops a table", OF_GLUE
            ),
        ),
        lambda scope: scope.tables([scope.database], CHECKED_TABLES),
    ),
    Capability(
        "Rebuilds",
        (
            Permission(
                "glue:DeleteTable",
                Need.REPLAY,
                "the table whose content has taken the place of another one's",
                REPLAYED,
            ),
        ),
        lambda scope: scope.tables(scope.databases, f"*{REBUILD_SUFFIX}"),
    ),
    Capability(
        "ExistingTables",
        (
            Permission(
                "glue:GetTables", Need.OPTIONAL, "notes of `check` about tables that the options leave behind", IN_GLUE
            ),
        ),
        lambda scope: scope.tables([scope.database], "*"),
    ),
    Capability(
        "MaintainedTables",
        (Permission("glue:GetTables", Need.MAINTAIN, "the tables of a database", MAINTAINED),),
        lambda scope: scope.tables(scope.databases, "*"),
    ),
    Capability(
        "MaintainedDatabases",
        (
            Permission(
                "glue:GetDatabases",
                Need.MAINTAIN,
                "databases that the connector has created; without it, name streams with `--stream`",
                MAINTAINED_BY_NAMESPACE,
            ),
        ),
        lambda scope: scope.catalog("database/*"),
    ),
    Capability(
        "TableOptimizers",
        (
            Permission("glue:BatchGetTableOptimizer", Need.BOTH, "whether tables have optimizers", OPTIMIZED),
            Permission("glue:CreateTableOptimizer", Need.BOTH, "optimizers of tables that have none", OPTIMIZED),
        ),
        lambda scope: scope.tables(scope.databases, "*"),
    ),
    Capability(
        "OptimizerRole",
        # https://docs.aws.amazon.com/glue/latest/webapi/API_TableOptimizerConfiguration.html
        (Permission("iam:PassRole", Need.BOTH, "the role that Glue's optimizers use", OPTIMIZED),),
        lambda scope: [glue.role_arn] if isinstance(glue := scope.config.maintenance, GlueOptimizers) else [],
        lambda _scope: {"StringEquals": {"iam:PassedToService": ["glue.amazonaws.com"]}},
    ),
    Capability(
        "LakeFormation",
        (
            Permission("lakeformation:GetDataAccess", Need.BOTH, "credentials for the files of tables", LENT),
            Permission("lakeformation:ListResources", Need.BOTH, "whether the data location is registered", GOVERNED),
            Permission("lakeformation:RegisterResource", Need.SYNC, "a location that is not registered", REGISTERED),
            Permission("lakeformation:GetLFTag", Need.BOTH, "definitions of LF-Tags", TAGGED),
            Permission("lakeformation:CreateLFTag", Need.SYNC, "LF-Tags that are not defined", TAGGED),
            Permission("lakeformation:UpdateLFTag", Need.SYNC, "values that a definition lacks", TAGGED),
            Permission("lakeformation:GetResourceLFTags", Need.BOTH, "LF-Tags of databases and tables", TAGGED),
            Permission("lakeformation:AddLFTagsToResource", Need.BOTH, "LF-Tags that a resource lacks", TAGGED),
            Permission(
                "lakeformation:ListPermissions",
                Need.BOTH,
                "grants that exist; `check` also reads what the connector and IAM_ALLOWED_PRINCIPALS hold",
                GOVERNED,
            ),
            Permission("lakeformation:GrantPermissions", Need.SYNC, "grants that are missing", GRANTED),
            Permission("lakeformation:ListLakeFormationOptIns", Need.BOTH, "opt-ins that exist", OPTED_IN),
            Permission("lakeformation:CreateLakeFormationOptIn", Need.SYNC, "opt-ins that are missing", OPTED_IN),
            Permission(
                "lakeformation:GetDataLakeSettings",
                Need.CHECK,
                "whether default permissions (IAM_ALLOWED_PRINCIPALS) would void governance",
                GOVERNED,
            ),
        ),
        # Lake Formation's actions take no resources:
        # https://docs.aws.amazon.com/service-authorization/latest/reference/list_awslakeformation.html
        lambda _scope: ["*"],
    ),
    Capability(
        "RegistrationRole",
        (
            # https://docs.aws.amazon.com/lake-formation/latest/dg/registration-role.html
            Permission("iam:PassRole", Need.SYNC, "the role that Lake Formation gets with the location", REGISTERED),
            # https://docs.aws.amazon.com/aws-managed-policy/latest/reference/AWSLakeFormationDataAdmin.html
            Permission("iam:GetRole", Need.SYNC, "the same; AWS allows it to administrators of data lakes", REGISTERED),
        ),
        lambda scope: [role] if (role := scope.config.lake_formation.registration_role_arn) is not None else [],
    ),
)
"""Every capability, in the order of the policy's statements."""

ASKED = When("`iam-policy --delete-rows`", lambda _config: True)
ASKED_OF_GLUE = When("the same, with tables in Glue", OF_GLUE.holds)
ASKED_BY_NAMESPACE = When(
    "the same, and `database_strategy` namespace",
    lambda config: OF_GLUE.holds(config) and config.database_strategy == "namespace",
)

ERASURE: Sequence[Capability] = (
    Capability(
        # https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListObjectVersions.html
        "ErasedVersions",
        (
            Permission("s3:ListBucketMultipartUploads", Need.ERASURE, "uploads that killed syncs have left", ASKED),
            Permission("s3:ListBucketVersions", Need.ERASURE, "noncurrent versions; where there are none, too", ASKED),
            Permission(
                "s3:GetBucketVersioning", Need.ERASURE, "whether there may be any, where they may not be listed", ASKED
            ),
            Permission(
                "s3:GetLifecycleConfiguration", Need.ERASURE, "when a version ends that may not be deleted", ASKED
            ),
        ),
        _buckets,
    ),
    Capability(
        "ErasedObjects",
        (
            Permission("s3:GetObjectVersion", Need.ERASURE, "whether a noncurrent version has the rows", ASKED),
            Permission("s3:DeleteObjectVersion", Need.ERASURE, "noncurrent versions that have the rows", ASKED),
            Permission("s3:GetObjectRetention", Need.ERASURE, "until when Object Lock keeps a version", ASKED),
            Permission("s3:GetObjectLegalHold", Need.ERASURE, "whether a legal hold keeps a version", ASKED),
        ),
        Scope.objects,
    ),
    Capability(
        "ErasedTables",
        (Permission("glue:GetTables", Need.ERASURE, "the tables of a database", ASKED_OF_GLUE),),
        lambda scope: scope.tables(scope.databases, "*"),
    ),
    Capability(
        "ErasedPartitions",
        (
            Permission("glue:GetPartitions", Need.ERASURE, "the folders of a Hive table", ASKED_OF_GLUE),
            Permission(
                "glue:BatchDeletePartition", Need.ERASURE, "partitions of a Hive table by the column", ASKED_OF_GLUE
            ),
        ),
        lambda scope: scope.tables(scope.databases, "*"),
    ),
    Capability(
        "ErasedDatabases",
        (
            Permission(
                "glue:GetDatabases",
                Need.ERASURE,
                "databases that the connector has created; without it, name streams with `--stream`",
                ASKED_BY_NAMESPACE,
            ),
        ),
        lambda scope: scope.catalog("database/*"),
    ),
)
"""What `delete-rows` needs besides: nobody should be able to delete versions who does not have to."""
