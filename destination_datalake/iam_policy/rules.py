"""Load the rules for policies from permissions.toml. A rule contains actions, resources, reasons and conditions.

This module defines the types and the terms that the rules use. The docs generator creates the page docs/permissions.md
from the rules. Tests compare the rules with the requests that syncs and checks send.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate
from pathlib import Path
from typing import Self, TypeAlias

from destination_datalake.aws.objects import S3Address, partition_of
from destination_datalake.config.options import Config
from destination_datalake.config.services import (
    GlueRestCatalogOptions,
    Grant,
    S3TablesCatalogOptions,
    SseKms,
    TableTags,
)
from destination_datalake.config.tables import REPORTS_TABLE, GlueOptimizers
from destination_datalake.iam_policy import conditions
from destination_datalake.iam_policy.conditions import When
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.rejects.ledger import REJECTS_TABLE
from destination_datalake.tables.naming import REBUILD_SUFFIX, TableNaming

_ROLE_ACCOUNT = re.compile(r"^arn:[^:]+:iam::(\d{12}):role/")

# Characters that a policy document does not support (IAM API: policyDocumentType). `_in_policy` replaces them by `*`.
_NOT_IN_POLICIES = re.compile(r"[^\x20-\xff]+")


@dataclass(frozen=True, slots=True)
class Scope:
    """The resources to which a configuration's policy applies.

    `account` is the ID of the account that owns the Data Catalog, or ANY_ACCOUNT if the owner is unknown. The first
    member of `databases` is lakeformation_database_name. `outside` contains the folders of tables outside
    bucket_prefix. Only configurations with follow_table_location use such tables.
    """

    config: Config
    account: str
    databases: tuple[str, ...]
    outside: tuple[S3Address, ...] = ()

    @classmethod
    def for_config(cls, config: Config, streams: Iterable[StreamId] = (), outside: Iterable[S3Address] = ()) -> Self:
        """Return the scope of a configuration, including the databases to which syncs write `streams`."""
        return cls(config, _catalog_account(config), _databases(config, streams), tuple(outside))

    @property
    def partition(self) -> str:
        """The AWS partition of the resources' ARNs, such as aws or aws-cn."""
        return partition_of(self.config.region)

    @property
    def warehouse(self) -> S3Address:
        """The address of the folder bucket_prefix in the bucket bucket_name, without a trailing slash."""
        return S3Address(self.config.bucket_name, self.config.key().rstrip("/"))

    @property
    def folders(self) -> tuple[S3Address, ...]:
        """The warehouse, and the folders of tables outside the warehouse, without leading and trailing slashes."""
        return (self.warehouse, *(S3Address(folder.bucket, folder.key.strip("/")) for folder in self.outside))

    def replaced(self) -> tuple[str, ...]:
        """Return the names of folders and databases in which the policy replaces characters by wildcards."""
        names = (*(folder.key for folder in self.folders), *self.databases)
        return tuple(name for name in names if _in_policy(name) != name)

    @property
    def database(self) -> str:
        """The database for streams without a namespace, for the tables of rejects and reports, and for `check`."""
        return self.databases[0]

    def objects(self) -> tuple[str, ...]:
        """Return ARN patterns that match all objects in the folders of the scope."""
        return tuple(self.s3(f"{address.bucket}/{_under(address)}") for address in self.folders)

    def s3(self, name: str) -> str:
        """Return an S3 ARN. `name` is a bucket, or a bucket with a key or a key pattern, such as `lake/raw/*`."""
        return _in_policy(f"arn:{self.partition}:s3:::{name}")

    def catalog(self, *names: str) -> tuple[str, ...]:
        """Return the ARNs of the Data Catalog, and of resources in the Data Catalog.

        `names` contains the kinds and names of the resources, such as `database/landing`. The result includes the Data
        Catalog, because Glue authorizes a request for a resource only if the policy also allows the request for all
        resources that contain this resource:
        https://docs.aws.amazon.com/glue/latest/dg/glue-specifying-resource-arns.html
        """
        region = self.config.glue_region or self.config.region
        root = f"arn:{self.partition}:glue:{region}:{self.account}"
        below = self._federated()
        catalogs = ["catalog", *(f"catalog/{name}" for name in accumulate(below, "{}/{}".format))]
        inside = ("/".join([kind, *below, name]) for kind, _, name in (path.partition("/") for path in names))
        return tuple(_in_policy(f"{root}:{name}") for name in (*catalogs, *inside))

    def _federated(self) -> Sequence[str]:
        """Return the names on the path of the federated catalog in the Data Catalog, such as `s3tablescatalog`.

        The outermost name comes first. Returns an empty sequence if the tables are not in a federated catalog.
        """
        # A warehouse has the form `account:catalog/…`. An account alone means its default catalog, which is not
        # federated.
        catalog = self.config.catalog
        warehouse = catalog.warehouse if isinstance(catalog, GlueRestCatalogOptions) else None
        return warehouse.partition(":")[2].split("/") if warehouse is not None and ":" in warehouse else ()

    def table_bucket(self) -> str | None:
        """Return the ARN of the table bucket that contains the tables, or None if no table bucket contains them."""
        catalog = self.config.catalog
        if isinstance(catalog, S3TablesCatalogOptions):
            return catalog.table_bucket_arn
        if not catalog.limits.assigns_locations:
            return None
        # The last name in a federated catalog of S3 Tables is that of the table bucket.
        region = self.config.glue_region or self.config.region
        return f"arn:{self.partition}:s3tables:{region}:{self.account}:bucket/{self._federated()[-1]}"

    def tables(self, databases: Sequence[str], *names: str) -> tuple[str, ...]:
        """Return the ARNs of the tables with these names in each database, and of the resources that contain them.

        `names` can contain patterns.
        """
        in_databases = [f"database/{database}" for database in databases]
        return self.catalog(*in_databases, *(f"table/{database}/{name}" for database in databases for name in names))


def _in_policy(text: str) -> str:
    """Replace each sequence of characters that a policy does not support by the wildcard `*`."""
    return _NOT_IN_POLICIES.sub("*", text)


def _under(folder: S3Address) -> str:
    return f"{folder.key}/*" if folder.key else "*"


def _catalog_account(config: Config) -> str:
    # Without an explicit account, the catalog belongs to the account of the role that the connector assumes.
    credentials = config.credentials
    role_account = _ROLE_ACCOUNT.match(credentials.role_arn) if credentials.credentials_title == "IAM Role" else None
    account = config.glue_catalog_id or config.aws_account_id or (role_account[1] if role_account else None)
    if isinstance(config.catalog, GlueRestCatalogOptions) and config.catalog.warehouse is not None:
        return config.catalog.warehouse.partition(":")[0]
    return account or ANY_ACCOUNT


def _databases(config: Config, streams: Iterable[StreamId]) -> tuple[str, ...]:
    naming = TableNaming.from_config(config)
    governance = config.lake_formation
    options: tuple[Grant | TableTags, ...] = (*governance.grants, *governance.table_tags)
    configured = (option.database for option in options if option.database)
    additional = {*(naming.table_of(stream).database for stream in streams), *configured} - {naming.database}
    # lakeformation_database_name stays first, because `Scope.database` takes the first one.
    return (naming.database, *sorted(additional))


ANY_ACCOUNT = "*"
"""The wildcard for an unknown account in ARNs. A policy with this wildcard covers the Data Catalogs of all accounts
that grant access."""

CHECKED_TABLES = "airbyte_check_*"
"""The pattern that matches the names of the tables that `check` creates and drops."""

Condition: TypeAlias = Mapping[str, Mapping[str, Sequence[str]]]
"""The member `Condition` of a policy statement. It maps operators to condition keys, and condition keys to values."""


class Need(Enum):
    """The commands of the connector that need an action."""

    SYNC_AND_CHECK = "syncs, `check`"
    SYNC = "syncs"
    CHECK = "`check`"
    OPTIONAL = "`check`; optional"
    MAINTAIN = "`maintain`"
    REPLAY = "`replay --replace`"
    ERASURE = "`delete-rows`"


@dataclass(frozen=True, slots=True)
class Permission:
    """An IAM action, the commands that need the action, the reason, and the condition under which they need it."""

    action: str
    need: Need
    why: str
    when: When


@dataclass(frozen=True, slots=True)
class Capability:
    """IAM actions on the same resources, under the same condition. A policy contains one statement per capability."""

    sid: str
    permissions: tuple[Permission, ...]
    resources: Callable[[Scope], Sequence[str]]
    condition: Callable[[Scope], Condition]


def _buckets(scope: Scope) -> Sequence[str]:
    return tuple(dict.fromkeys(scope.s3(address.bucket) for address in scope.folders))


def _listed_prefixes(scope: Scope) -> Condition:
    # IAM compares the prefix of a list request with these patterns, so other folders of the bucket cannot be listed.
    return {"StringLike": {"s3:prefix": tuple(dict.fromkeys(_in_policy(_under(folder)) for folder in scope.folders))}}


def _via_s3(scope: Scope) -> Condition:
    # https://docs.aws.amazon.com/kms/latest/developerguide/conditions-kms.html#conditions-kms-via-service
    names = [f"s3.{scope.config.region}.amazonaws.com"]
    if scope.partition == "aws-cn":
        # In this partition, service names exist with and without `.cn`. AWS does not document which of them KMS
        # compares.
        names.append(f"{names[0]}.cn")
    return {"StringEquals": {"kms:ViaService": names}}


_RESOURCES: Mapping[str, Callable[[Scope], Sequence[str]]] = {
    "objects": Scope.objects,
    "buckets": _buckets,
    "warehouse": lambda scope: [scope.s3(scope.warehouse.bucket)],
    "key": lambda scope: [kms.kms_key_arn] if isinstance(kms := scope.config.encryption, SseKms) else [],
    "catalog": lambda scope: scope.catalog(),
    "databases": lambda scope: scope.catalog(*(f"database/{database}" for database in scope.databases)),
    "all databases": lambda scope: scope.catalog("database/*"),
    "tables": lambda scope: scope.tables(scope.databases, "*"),
    "tables of database": lambda scope: scope.tables([scope.database], "*"),
    "checked tables": lambda scope: scope.tables([scope.database], CHECKED_TABLES),
    "rejects": lambda scope: scope.tables([scope.database], REJECTS_TABLE, CHECKED_TABLES),
    "reports": lambda scope: scope.tables([scope.database], REPORTS_TABLE),
    "rebuilds": lambda scope: scope.tables(scope.databases, f"*{REBUILD_SUFFIX}"),
    "table bucket": lambda scope: [arn] if (arn := scope.table_bucket()) is not None else [],
    "tables in bucket": lambda scope: [f"{arn}/table/*"] if (arn := scope.table_bucket()) is not None else [],
    "topic": lambda scope: [topic] if (topic := scope.config.notify.sns_topic_arn) is not None else [],
    "optimizers' role": lambda scope: (
        [glue.role_arn] if isinstance(glue := scope.config.maintenance, GlueOptimizers) else []
    ),
    "location's role": lambda scope: (
        [role] if (role := scope.config.lake_formation.registration_role_arn) is not None else []
    ),
    "everything": lambda _scope: ["*"],
}
_CONDITIONS: Mapping[str, Callable[[Scope], Condition]] = {
    "none": lambda _scope: {},
    "listed folders": _listed_prefixes,
    "requests of S3": _via_s3,
    "passed to Glue": lambda _scope: {"StringEquals": {"iam:PassedToService": ["glue.amazonaws.com"]}},
}


def _capabilities() -> Iterator[Capability]:
    """Yield the capabilities in `permissions.toml`, in the order of the file."""
    table = tomllib.loads(Path(__file__).with_name("permissions.toml").read_text(encoding="utf-8"))
    for sid, rule in table.items():
        # `when` is the name of a constant in `iam_policy.conditions`.
        permissions = [
            Permission(action, Need[need], why, vars(conditions)[when]) for action, need, when, why in rule["actions"]
        ]
        condition = _CONDITIONS[rule.get("condition", "none")]
        yield Capability(sid, tuple(permissions), _RESOURCES[rule["on"]], condition)


_DECLARED = tuple(_capabilities())
# The first permission decides for the whole capability, because erasure has statements of its own.
CAPABILITIES = tuple(capability for capability in _DECLARED if capability.permissions[0].need is not Need.ERASURE)
"""The capabilities that syncs, `check`, `maintain` and `replay` need, in the order of the policy's statements."""
ERASURE = tuple(capability for capability in _DECLARED if capability not in CAPABILITIES)
"""The additional capabilities that `delete-rows` needs. A policy contains them only on request, because they include
the permanent deletion of object versions."""
